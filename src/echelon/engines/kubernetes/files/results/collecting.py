"""A run's results come home: what the machine that submitted it does when it is over.

Each worker's part is fetched and checked against what the worker stated at its end. Only when all of it is
here, or what is not here is lost for good, is that noted on this machine, written into the record, and are
the workers released. What the record says of it is for people and other machines: here only the own note
counts."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from echelon.engines import durable
from echelon.engines.base import TakeOver
from echelon.engines.kubernetes import control, objects
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.results.forgetting import still_hold
from echelon.engines.kubernetes.files.results.gather import Gathered, Progressed, gather
from echelon.engines.kubernetes.files.results.home import elsewhere, local_folder
from echelon.engines.kubernetes.files.results.reaching import reach_output, reach_pods, see_all, volume_of
from echelon.engines.kubernetes.files.results.seen import Seen, see
from echelon.engines.kubernetes.files.results.shards import (
    Shard,
    check_came,
    check_complete,
    describe,
    incomplete,
    left_out_of,
    on_volume,
    without_right,
)
from echelon.engines.kubernetes.files.results.waiting_for_owner import Wanted, wait_for_owner
from echelon.engines.kubernetes.files.results.whereabouts import has_own_claim, keeps_results
from echelon.engines.kubernetes.files.transfer import Progress, fetch_tree
from echelon.engines.kubernetes.follow.keeper import find_keeper
from echelon.engines.kubernetes.follow.view import View, read_alone, read_record
from echelon.engines.kubernetes.record import Collected, finished
from echelon.engines.kubernetes.render.task import kept_folders
from echelon.engines.kubernetes.state.whole import none_ran, other_jobs
from echelon.engines.machine import Fetched, SafeCheckpoints, Submissions, process_name
from echelon.engines.results import check_kept
from echelon.errors import Denied, ResultsIncomplete, Unreachable, from_os_error
from echelon.model.copy import LeftOut
from echelon.model.event import Event
from echelon.model.pods.way_home import keeps_checkpoints
from echelon.model.run import Record, RunRef

_NODES_RETURN = 60.0  # seconds that nodes may take to respond again after the API server was away


def collect_results(
    api: Api,
    submissions: Submissions,
    ref: RunRef,
    progress: Progressed | None,
    wanted: Wanted | None = None,
) -> tuple[LeftOut, ...]:
    """Bring home what a run that is over has made, and release its workers; nothing the second time, and
    nothing of a run that another machine submitted, unless this process has taken it over. Returns what
    cannot be copied; raises ResultsIncomplete, which has that too, and leaves the workers, if any of it is
    not here then.

    With `wanted`, a claim that is to be taken over, the process that has it is waited for: it may be
    fetching. If it has them then, what is missing is raised here as it is there; if it gives up or dies, this
    process takes over.

    What is on a volume of the user's stays there."""
    try:
        if wanted is not None:
            wait_for_owner(api, ref, wanted)
        asked = wanted.asked if wanted is not None else TakeOver()
        left_out, end = _collect(api, submissions, ref, progress, asked.tell)
    except _NotLetGo:
        raise
    except Unreachable as error:
        reason = f"the results of run {ref.name!r} were not fetched: {error.message}"
        raise ResultsIncomplete(reason, hint=_again(ref)) from error
    try:
        check_kept(ref.name, end, "free some space, or write to another volume: --output")
    except ResultsIncomplete as error:
        error.left_out = left_out
        raise
    return left_out


class _NotLetGo(Unreachable):
    """The results are here, and the cluster could not be told."""


def _collect(
    api: Api,
    submissions: Submissions,
    ref: RunRef,
    progress: Progressed | None,
    tell: Callable[[str], object],
) -> tuple[tuple[LeftOut, ...], Event | None]:
    """What cannot be copied, and the end of the run if its results are this process's to fetch."""
    stored = read_record(api, ref)
    taken_over = stored.claim is not None and stored.claim.holder == process_name()
    submitted = submissions.results_of(stored.uid) is not None
    if not submitted and not taken_over:
        return (), None
    own = submissions.fetched(stored.uid, stored.run.created)
    if own is not None and stored.collected is not None:
        check_complete(ref, own.missing)
        return (), stored.end
    seen = _look_at_end(api, ref)
    view = seen.view
    end = next((event for event in seen.events if event.kind == "finished"), None)
    if end is None:
        return (), None
    if own is not None:  # the command that fetched them was cut off before it let the workers go
        _let_go(api, ref, view, seen.events, own)
        return (), end
    if stored.collected is not None and not submitted:

        def hold() -> bool:
            return any(each.pod for each in see(api, ref).shards())

        # The owner gives its claim up when it has told the workers to leave, before they have left.
        if not any(each.pod for each in seen.shards()) or not still_hold(hold, stored.collected, tell):
            check_complete(ref, stored.collected.missing)  # nothing but the record can say more of it
            return (), end
    left_out: list[LeftOut] = []
    try:
        _bring_home(api, submissions, ref, seen, progress, left_out)
    except ResultsIncomplete as error:
        error.left_out = left_out
        raise
    return tuple(left_out), end


def _bring_home(
    api: Api,
    submissions: Submissions,
    ref: RunRef,
    seen: Seen,
    progress: Progressed | None,
    left_out: list[LeftOut],
) -> None:
    """Fetch what is not here, note it, and release the workers; what cannot be copied is added to the list,
    whatever becomes of the rest.
    """
    view, stored = seen.view, seen.view.stored
    folder, record = local_folder(stored, submissions), stored.run
    created, submitted = record.created, submissions.results_of(stored.uid) is not None
    gathered = Gathered()
    if keeps_results(record):
        gathered, view = _gather_all(api, ref, seen, folder, progress)
        left_out += gathered.left_out
    brought, lacking = gathered.brought, gathered.missing
    may_fetch = not (lacking or has_own_claim(record)) or api.may("create", "Pod", subresource="exec")
    if not may_fetch:
        lacking = without_right(lacking, record)
    if has_own_claim(record) and view.jobs and _has_volume(api, record, may_fetch=may_fetch):
        if may_fetch:
            with reach_output(api, record) as (opener, root):
                copied = fetch_tree(opener, root, folder, progress=_reporting(progress))
            brought = True
            left_out += left_out_of(copied)
            check_came(ref, copied)
        else:
            lacking = (*lacking, on_volume(record))
    missing = tuple(map(describe, lacking))
    if missing:
        # Another process of this machine may have all of it here, and have released the workers.
        if (own := submissions.fetched(stored.uid, created)) is not None:
            check_complete(ref, own.missing)
            return
        now = read_alone(api, ref).collected
        lost = all(each.lost for each in lacking)
        if now is not None and not submitted and lost:
            # The owner, from whom this process has taken over, has released them.
            check_complete(ref, now.missing)
            return
        if now is not None or not lost:
            hint = elsewhere(now) if now is not None and now.path else _again(ref, may_fetch=may_fetch)
            raise incomplete(ref.name, missing, hint=hint)
    if brought:
        _force_to_disk(folder)
    if keeps_checkpoints(record.job.pod):
        _note_safe(api, submissions, seen, folder)
    own = Fetched(path=str(folder) if brought else "", missing=missing)
    submissions.note_fetched(stored.uid, created, own)
    _let_go(api, ref, view, seen.events, own)


def _note_safe(api: Api, submissions: Submissions, seen: Seen, folder: Path) -> None:
    """Note which checkpoints came home of a run that may be resumed, as its keeper states it now: it may have
    got the last ones since it was looked at, and is released next.
    """
    stored = seen.view.stored
    if any(event.kind == "finished" and event.outcome == "succeeded" for event in seen.events):
        return
    for keeper in (find_keeper(api, stored), seen.keeper):
        if keeper is not None and keeper.kept:
            parts = {worker: each.parts for worker, each in keeper.kept.items()}
            submissions.note_safe(stored.uid, SafeCheckpoints(path=str(folder), parts=parts))
            return


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
    check_complete(ref, own.missing)


def _force_to_disk(folder: Path) -> None:
    """A power cut must not cost what the workers no longer have."""
    try:
        durable.sync_tree(folder)
    except OSError as error:
        raise from_os_error(error, folder) from error


def _look_at_end(api: Api, ref: RunRef) -> Seen:
    """The run and its events. Nodes that could not reach the API server count as lost when it is back, for
    some seconds: they are waited for.
    """
    deadline = time.monotonic() + _NODES_RETURN
    while True:
        try:
            seen = see_all(api, ref)
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
    api: Api, ref: RunRef, seen: Seen, folder: Path, progress: Progressed | None
) -> tuple[Gathered, View]:
    """Fetch every shard from where it is; a worker may give its own to the keeper meanwhile, and leave."""
    record = seen.view.stored.run
    keeper = seen.keeper.pod if seen.keeper is not None else None
    with control.at_work(api, record, seen.view.pods, keeper):
        while True:
            gathered = gather(
                seen.shards(),
                kept_folders(record),
                folder,
                reach_pods(api, record, keeper),
                progress=progress,
            )
            if not gathered.missing or seen.keeper is None:
                return gathered, seen.view
            tried = {each.worker: _place(each) for each in seen.shards()}
            seen = see_all(api, ref)
            elsewhere = {
                each.worker for each in seen.shards() if each.pod and _place(each) != tried[each.worker]
            }
            if not elsewhere.intersection(each.worker for each in gathered.missing):
                return gathered, seen.view


def _place(shard: Shard) -> tuple[str | None, bool]:
    return shard.pod, shard.only_checkpoints


def _reporting(progress: Progressed | None) -> Callable[[Progress], object]:
    def report(now: Progress) -> None:
        if progress is not None:
            progress(now.done, now.total)

    return report


def _has_volume(api: Api, record: Record, *, may_fetch: bool) -> bool:
    """Whether something may be on the volume that was made for a run: without one its claim was never
    mounted. Who may not fetch it anyway may lack the right to see it, too.
    """
    try:
        return volume_of(api, record).status == "Bound"
    except Denied:
        if may_fetch:
            raise
        return True


def _again(ref: RunRef, *, may_fetch: bool = True) -> str:
    if not may_fetch:
        return (
            f"with the right to create pods/exec `echelon get {ref.name}` brings them; "
            "`echelon doctor --role` prints a role that has it"
        )
    return f"the workers keep them for --keep after the last contact; `echelon get {ref.name}` goes on"
