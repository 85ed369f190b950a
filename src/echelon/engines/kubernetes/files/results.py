"""A run's results: where they are, and how they come home.

They belong to the machine that submitted the run. When the run is over it collects them: each worker's part
is fetched and checked against what the worker stated at its end. Only when all of it is here, or what is not
here is lost for good, is that noted on this machine, written into the record, and are the workers released.
What the record says of it is for people and other machines: here only the own note counts. `get --to` copies
from the workers to any folder, on any machine, and changes nothing."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.engines import durable
from echelon.engines.base import current_user
from echelon.engines.kubernetes import control, names, objects
from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.engines.kubernetes.files.gather import Gathered, Progressed, gather, root_of
from echelon.engines.kubernetes.files.shards import (
    Shard,
    check_copy,
    describe,
    find_shards,
    incomplete,
    left_out_of,
    shards_now,
)
from echelon.engines.kubernetes.files.transfer import Opener, Progress, fetch_tree, pod_opener
from echelon.engines.kubernetes.files.whereabouts import has_own_claim, keeps_results
from echelon.engines.kubernetes.follow.follow import read_events
from echelon.engines.kubernetes.follow.keeper import KeeperView, find_keeper
from echelon.engines.kubernetes.follow.view import View, jobs_of, look, pods_of, read_record
from echelon.engines.kubernetes.record import Collected, Stored, finished
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.image import image_of
from echelon.engines.kubernetes.render.task import kept_folders
from echelon.engines.kubernetes.state import workers
from echelon.engines.kubernetes.state.whole import none_ran, other_jobs
from echelon.engines.machine import Fetched, Submissions, process_name
from echelon.engines.results import check_inside, copy_result, holds_results
from echelon.errors import (
    Denied,
    InvalidJob,
    ResultsIncomplete,
    StateTrouble,
    Unavailable,
    Unreachable,
    from_os_error,
)
from echelon.model.copy import Copied, LeftOut
from echelon.model.event import Event
from echelon.model.run import Record, RunRef
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.model.volume import Volume

_LEAVING = 90.0  # seconds within which workers have left whose results were fetched: others may copy yet
_OWNER_LOOK = 1.0  # seconds between two looks at who fetches a run's results
_NODES_RETURN = 60.0  # seconds that nodes may take to respond again after the API server was away


def collect_results(
    api: Api,
    submissions: Submissions,
    ref: RunRef,
    progress: Progressed | None,
    take_over: Callable[[], bool] | None = None,
) -> tuple[LeftOut, ...]:
    """Bring home what a run that is over has made, and release its workers; nothing the second time, and
    nothing of a run that another machine submitted, unless this process has taken it over. Returns what
    cannot be copied; raises ResultsIncomplete, and leaves the workers, if any of it is not here then.

    With `take_over`, the process that looks after the run is waited for: it may be fetching. If it has them
    then, what is missing is raised here as it is there; if it gives up or dies, this process takes over.

    What is on a volume of the user's stays there."""
    try:
        if take_over is not None:
            _wait_for_owner(api, ref, take_over)
        return _collect(api, submissions, ref, progress)
    except _NotLetGo:
        raise
    except Unreachable as error:
        reason = f"the results of run {ref.name!r} were not fetched: {error.message}"
        raise ResultsIncomplete(reason, hint=_again(ref)) from error


class _NotLetGo(Unreachable):
    """The results are here, and the cluster could not be told."""


def _wait_for_owner(api: Api, ref: RunRef, take_over: Callable[[], bool]) -> None:
    """Wait until this process has the claim, or the one that holds it has fetched the results and let the
    workers go. What the record says of that, anybody may have written: while workers hold results, they are
    not fetched.
    """
    while True:
        if take_over():
            return
        collected = read_record(api, ref).collected
        if collected is not None and not _are_held(api, ref):
            _check_complete(ref, collected.missing)
            return
        time.sleep(_OWNER_LOOK)


def _are_held(api: Api, ref: RunRef) -> bool:
    """Whether workers, or the keeper, still keep results, as they say themselves."""
    return _say_held(read_events(api, ref, of_pods=True))


def _can_be_fetched(api: Api, ref: RunRef) -> bool:
    """Whether results are kept, and a pod is left that could still give any of them."""
    seen = _see(api, ref)
    return _say_held(seen.events) and any(each.pod is not None for each in seen.shards())


def _say_held(events: Iterable[Event]) -> bool:
    return any(event.kind in ("holding", "keeping") for event in events)


def _collect(
    api: Api, submissions: Submissions, ref: RunRef, progress: Progressed | None
) -> tuple[LeftOut, ...]:
    stored = read_record(api, ref)
    taken_over = stored.claim is not None and stored.claim.holder == process_name()
    submitted = submissions.results_of(stored.uid) is not None
    if not submitted and not taken_over:
        return ()
    created = stored.run.created
    own = submissions.fetched(stored.uid, created)
    if own is not None and stored.collected is not None:
        _check_complete(ref, own.missing)
        return ()
    seen = _look_at_end(api, ref)
    view = seen.view
    end = next((event for event in seen.events if event.kind == "finished"), None)
    if end is None:
        return ()
    if own is not None:  # the command that fetched them was cut off before it let the workers go
        _let_go(api, ref, view, seen.events, own)
        return ()
    if stored.collected is not None and not submitted and not any(each.pod for each in seen.shards()):
        _check_complete(ref, stored.collected.missing)  # nothing but the record can say more of it
        return ()
    folder, record = local_folder(stored, submissions), stored.run
    gathered = Gathered()
    if keeps_results(record):
        gathered, view = _gather_all(api, ref, seen, folder, progress)
    brought = gathered.brought
    not_kept = bool(gathered.missing) and record.job.pod.linger == 0
    if (not_kept or has_own_claim(record)) and not api.may("create", "Pod", subresource="exec"):
        gathered = replace(gathered, missing=())  # as was said before the start, so that it is no failure now
    elif has_own_claim(record) and view.jobs and _volume_of(api, record).status == "Bound":
        with _reached(api, record) as (opener, root):
            copied = fetch_tree(opener, root, folder, progress=_reporting(progress))
        brought = True
        _check_came(ref, copied)
        gathered = replace(gathered, left_out=(*gathered.left_out, *left_out_of(copied)))
    missing = tuple(map(describe, gathered.missing))
    if missing:
        # Another process of this machine may have all of it here, and have released the workers.
        if (own := submissions.fetched(stored.uid, created)) is not None:
            _check_complete(ref, own.missing)
            return gathered.left_out
        now = read_record(api, ref).collected
        if now is not None and not submitted and all(each.lost for each in gathered.missing):
            # The owner, from whom this process has taken over, has released them.
            _check_complete(ref, now.missing)
            return gathered.left_out
        if now is not None or not all(each.lost for each in gathered.missing):
            raise incomplete(ref.name, missing, hint=_again(ref) if now is None else _elsewhere(now))
    if brought:
        _force_to_disk(folder)
    own = Fetched(path=str(folder) if brought else "", missing=missing)
    submissions.note_fetched(stored.uid, created, own)
    _let_go(api, ref, view, seen.events, own)
    return gathered.left_out


def _let_go(api: Api, ref: RunRef, view: View, events: Sequence[Event], own: Fetched) -> None:
    """What comes once the results are on this machine, and may be done again: the record says so, and workers
    are released. Raises what is missing for good.
    """
    stored, end = view.stored, next(event for event in events if event.kind == "finished")
    collected = Collected(
        at=round(time.time(), 3), host=socket.gethostname(), path=own.path, missing=own.missing
    )
    try:
        api.patch("ConfigMap", ref.name, finished(end, collected), uid=stored.uid)
        # The client that made the Jobs may have been cut off right after.
        objects.tie_record(api, stored, view.jobs)
        control.release_workers(api, stored.run, view.jobs, view.pods)
        if end.outcome != "succeeded" and none_ran(events):  # of workers that never came, none was told
            control.end_jobs(api, other_jobs(stored, view.jobs))
        control.release_keeper(api, stored, view.jobs)
        with suppress(Denied):
            objects.drop_payload(api, stored)
    except Unreachable as error:
        where = f"are in {own.path}" if own.path else "are not needed any more"
        reason = f"the results of run {ref.name!r} {where}, and its workers were not told: {error.message}"
        raise _NotLetGo(reason, hint=f"`echelon get {ref.name}` lets them go") from error
    _check_complete(ref, own.missing)


def _force_to_disk(folder: Path) -> None:
    """A power cut must not cost what the workers no longer have."""
    try:
        durable.sync_tree(folder)
    except OSError as error:
        raise from_os_error(error, folder) from error


@frozen
class _Seen:
    """A run at one moment, as far as its results are concerned."""

    view: View
    events: Sequence[Event]
    keeper: KeeperView | None

    def shards(self) -> list[Shard]:
        stored = self.view.stored
        known = [stored.end] if stored.end is not None else []
        return find_shards(stored.run.plan, [*known, *self.events], self.view.pods, self.keeper)


def _see(api: Api, ref: RunRef) -> _Seen:
    view, events = look(api, ref), list(read_events(api, ref, of_pods=True))
    over = any(event.kind == "finished" for event in events)
    return _Seen(view=view, events=events, keeper=find_keeper(api, view.stored) if over else None)


def _look_at_end(api: Api, ref: RunRef) -> _Seen:
    """The run and its events. Nodes that could not reach the API server count as lost when it is back, for
    some seconds: they are waited for.
    """
    deadline = time.monotonic() + _NODES_RETURN
    while True:
        try:
            seen = _see(api, ref)
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(2.0)
            continue
        over = keeps_results(seen.view.stored.run) and any(event.kind == "finished" for event in seen.events)
        waits = over and any(not each.lost and each.pod is None for each in seen.shards())
        if not waits or time.monotonic() > deadline:
            return seen
        time.sleep(2.0)


def _gather_all(
    api: Api, ref: RunRef, seen: _Seen, folder: Path, progress: Progressed | None
) -> tuple[Gathered, View]:
    """Fetch every shard from where it is; a worker may give its own to the keeper meanwhile, and leave."""
    record = seen.view.stored.run
    keeper = seen.keeper.pod if seen.keeper is not None else None
    with control.attending(api, record, seen.view.pods, keeper) as attend:
        while True:
            gathered = gather(
                seen.shards(),
                kept_folders(record),
                folder,
                _reach(api, record, keeper),
                attend=attend,
                progress=progress,
            )
            if not gathered.missing or seen.keeper is None:
                return gathered, seen.view
            tried = {each.worker: each.pod for each in seen.shards()}
            seen = _see(api, ref)
            elsewhere = {each.worker for each in seen.shards() if each.pod not in (None, tried[each.worker])}
            if not elsewhere.intersection(each.worker for each in gathered.missing):
                return gathered, seen.view


def fetch_results(
    api: Api,
    submissions: Submissions,
    ref: RunRef,
    path: str,
    to: Path,
    notice: Callable[[LeftOut], object] = lambda _: None,
    tell: Callable[[str], object] = lambda _: None,
) -> Path:
    """Copy a file or folder of the results to the folder `to`: from this machine if they were collected to
    it, else from where they are. `notice` gets what cannot be copied, `tell` what is waited for.
    """
    stored = read_record(api, ref)
    record = stored.run
    folder, output = local_folder(stored, submissions), record.job.pod.output
    check_inside(folder, path)
    collected, own = stored.collected, submissions.fetched(stored.uid, record.created)
    stays = output is not None and output.claim is not None
    if own is not None and not stays and (own.path == str(folder) or holds_results(folder)):
        found = copy_result(folder, path, to, notice=notice)
        _check_complete(ref, own.missing)
        return found
    target = to if path in (".", "") else to / Path(path).name
    pods = pods_of(api, stored)
    if output is not None:
        leader = [pod for pod in workers.leader_pods(pods) if workers.is_running(pod)]
        if leader and stored.end is None:
            opener = _reach(api, record)(leader[-1]["metadata"]["name"])
            copied = fetch_tree(opener, names.RESULTS_VOLUME, target, path=path)
            return _came(ref, copied, notice)
        if jobs_of(api, stored):
            with _reached(api, record, tell) as (opener, root):
                copied = fetch_tree(opener, root, target, path=path)
            return _came(ref, copied, notice)
    elif any(map(workers.is_running, pods)) or _may_be_kept(api, stored):
        return _fetch_from_workers(api, ref, path, target, notice)
    raise _nowhere(record, path, collected)


def _check_came(ref: RunRef, copied: Copied) -> None:
    """Raise what was listed on a volume, and did not come: the volume has it, and nothing is given up."""
    if (lacks := check_copy(None, None, copied)) is not None:
        raise incomplete(ref.name, [describe(lacks)], hint="the volume keeps them; the same command goes on")


def _came(ref: RunRef, copied: Copied, notice: Callable[[LeftOut], object]) -> Path:
    """Where a copy from a volume is, all of it."""
    for each in left_out_of(copied):
        notice(each)
    _check_came(ref, copied)
    return Path(copied.target)


def _may_be_kept(api: Api, stored: Stored) -> bool:
    """Whether a run's keeper may have results: it has, or the record does not say that they were fetched."""
    if stored.run.job.pod.keeper is None:
        return False
    if stored.collected is None:
        return True
    keeper = find_keeper(api, stored)
    return keeper is not None and keeper.pod is not None


def _fetch_from_workers(
    api: Api, ref: RunRef, path: str, target: Path, notice: Callable[[LeftOut], object]
) -> Path:
    """Copy from the workers, or their keeper, whether the run is over or not; of one that goes on, what is
    there now.
    """
    seen = _see(api, ref)
    view, record = seen.view, seen.view.stored.run
    shards = seen.shards()
    if not any(event.kind == "finished" for event in seen.events):
        shards = shards_now(record.plan, view.pods)
    keeper = seen.keeper.pod if seen.keeper is not None else None
    reach = _reach(api, record, keeper)
    with control.attending(api, record, view.pods, keeper) as attend:
        if path in (".", ""):
            gathered = gather(shards, kept_folders(record), target, reach, attend=attend)
            for each in gathered.left_out:
                notice(each)
            if gathered.missing:
                hint = "the workers that are there keep what they have; the same command goes on"
                raise incomplete(ref.name, tuple(map(describe, gathered.missing)), hint=hint)
            return target
        attend()
        return _fetch_part(shards, reach, path, target, ref, notice)


def _reach(api: Api, record: Record, keeper: str | None = None) -> Callable[[str], Opener]:
    """How the agents in a run's pods, given by their names, are reached; the keeper is a pod of a Job."""
    container = dialects.named(record.job.pod.job_kind).CONTAINER

    def reach(pod: str) -> Opener:
        own = names.CONTAINER if pod == keeper else container
        return pod_opener(api, pod, container=own, python=record.job.python)

    return reach


def _fetch_part(
    shards: Sequence[Shard],
    reach: Callable[[str], Opener],
    path: str,
    target: Path,
    ref: RunRef,
    notice: Callable[[LeftOut], object],
) -> Path:
    """Copy one file or folder, named as it would be at home: `worker-1/x` is worker 1's, `logs/` is of all,
    anything else worker 0's.
    """
    of_worker = {f"worker-{shard.worker}": shard for shard in shards if shard.worker}
    first, _, rest = path.partition("/")
    chosen = [shard for shard in shards if shard.worker == 0]
    if first in of_worker:
        chosen, path = [of_worker[first]], rest or "."
    elif first == "logs":
        chosen = list(shards)
    found, told, gone = None, [], []
    for shard in chosen:
        if shard.pod is None:
            gone.append(f"worker {shard.worker}: {path} not fetched: {shard.why}")
            continue
        try:
            copied = fetch_tree(reach(shard.pod), root_of(shard, names.OUTPUT), target, path=path)
        except InvalidJob:
            continue
        except NotThere:
            gone.append(f"worker {shard.worker}: {path} not fetched: its pod is gone")
            continue
        found = Path(copied.target)
        for each in left_out_of(copied):
            notice(each)
        if (lacks := check_copy(shard.worker, None, copied)) is not None:
            told.append(describe(lacks))
    if found is None or path.rstrip("/") == "logs":  # else one worker has it, and it is here
        told += gone
    if told:
        raise incomplete(ref.name, told, hint="what the other workers have of it is copied")
    if found is None:
        raise InvalidJob("path", path, "is not among the results", hint="check its spelling")
    return found


def local_folder(stored: Stored, submissions: Submissions) -> Path:
    """Where the results belong on this machine: in the submission's folder, if this machine submitted the run
    and the folder can be used, else in ./runs. A path in a record (schema 1 had one) is anybody's to write.
    """
    wanted = submissions.results_of(stored.uid)
    if wanted is not None:
        beside = next((each for each in (wanted, *wanted.parents[:2]) if each.is_dir()), None)
        if beside is not None and os.access(beside, os.W_OK | os.X_OK):
            return wanted
    return Path("runs").absolute() / stored.run.ref.name


def fetched_to(stored: Stored, submissions: Submissions) -> Path | None:
    """Where on this machine the results are, if they were fetched to it."""
    folder = local_folder(stored, submissions)
    own = submissions.fetched(stored.uid, stored.run.created)
    return folder if own is not None and own.path == str(folder) and folder.is_dir() else None


def check_fetched(api: Api, submissions: Submissions, stored: Stored) -> None:
    """Refuse to forget a run whose workers still keep results that were not fetched, and could be. Of one
    whose results another machine has, they are leaving, or have left.
    """
    ref = stored.run.ref
    if submissions.fetched(stored.uid, stored.run.created) is not None:
        return
    deadline = time.monotonic() + (_LEAVING if stored.collected is not None else 0.0)
    while (held := _can_be_fetched(api, ref)) and time.monotonic() < deadline:
        time.sleep(_OWNER_LOOK)
    if held and api.may("create", "Pod", subresource="exec"):
        raise StateTrouble(
            f"the results of run {ref.name!r} were not fetched yet, and would be lost",
            hint=f"`echelon get {ref.name}` brings them, and lets the workers go",
        )


def _reporting(progress: Progressed | None) -> Callable[[Progress], object]:
    def report(now: Progress) -> None:
        if progress is not None:
            progress(now.done, now.total)

    return report


def _volume_of(api: Api, record: Record) -> Volume:
    from echelon.engines.kubernetes.files.volumes import read_volume

    output = record.job.pod.output
    assert output is not None
    return read_volume(api, output.claim or names.claim_name(record.ref.name))


@contextmanager
def _reached(
    api: Api, record: Record, tell: Callable[[str], object] = lambda _: None
) -> Iterator[tuple[Opener, str]]:
    """A way to the volume that has the results, through a small pod with the run's own image, and where on it
    they are. A claim without a volume was never mounted: nothing is on it.
    """
    from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume

    output = record.job.pod.output
    assert output is not None
    volume = _volume_of(api, record)
    if volume.status != "Bound":
        raise Unavailable(
            f"volume claim {volume.name} is {volume.status}, not Bound: no results can be read from it",
            hint=f"`kubectl describe pvc {volume.name}` says what it waits for",
        )
    options = replace(record.job.pod, image=image_of(record.job))
    with reach_volume(api, volume, options, owner=current_user(), writes=False, notice=tell) as opener:
        yield opener, f"{MOUNT}/{output.path}".rstrip("/")


def _check_complete(ref: RunRef, missing: Sequence[str]) -> None:
    """Raise what is missing of results that were fetched as far as they could be."""
    if missing:
        hint = "it is lost for good; --output keeps results on a volume, --linger workers for longer"
        raise incomplete(ref.name, missing, hint=hint)


def _elsewhere(collected: Collected) -> str:
    return f"the results were brought to {collected.path} on {collected.host}"


def _again(ref: RunRef) -> str:
    return f"the workers keep them for --linger after the last contact; `echelon get {ref.name}` goes on"


def _nowhere(record: Record, path: str, collected: Collected | None) -> InvalidJob:
    if collected is not None and collected.path:
        hint = _elsewhere(collected)
    elif record.job.pod.output is not None:
        claim = record.job.pod.output.claim or names.claim_name(record.ref.name)
        there = f"{claim}/{record.job.pod.output.path}".rstrip("/")
        hint = f"they are on a volume: echelon cp pvc:{there}/{path} ."
    else:
        kept = f"{record.job.pod.linger:g} s"
        hint = f"workers keep them for {kept} after the end (--linger), and then they are gone"
    return InvalidJob("path", path, "is not among the results any more", hint=hint)
