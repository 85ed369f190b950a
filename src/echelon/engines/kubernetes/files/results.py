"""A run's results, fetched from its workers or its volume to where they belong on this machine.

The run's tender does it once, when the run is over; `echelon get` may do it before, for a part. Then the end
is written into the record, so that it is known without any log, and the workers are released."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.engines.base import current_user
from echelon.engines.kubernetes import control, names, objects
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.files.transfer import Opener, Progress, fetch_tree, pod_opener
from echelon.engines.kubernetes.follow.follow import read_events
from echelon.engines.kubernetes.follow.view import jobs_of, look, pods_of, read_record
from echelon.engines.kubernetes.record import Collected, Stored, finished
from echelon.engines.kubernetes.state import workers
from echelon.engines.machine import Submissions
from echelon.engines.results import check_inside, copy_result, holds_results
from echelon.errors import Denied, EchelonError, InvalidJob, StateTrouble
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.run import Record, RunRef

if TYPE_CHECKING:
    from echelon.model.volume import Volume

_LOGS = "logs/"
Progressed = Callable[[int, int], object]  # the bytes that have come, and how many there are


def collect_results(api: Api, submissions: Submissions, ref: RunRef, progress: Progressed | None) -> None:
    """Fetch what a run that is over has made, and release its workers; nothing the second time.

    What is on a volume of the user's stays there."""
    view = look(api, ref)
    stored, pods = view.stored, view.pods
    if stored.collected is not None:
        return
    seen = {event.kind: event for event in read_events(api, ref)}
    end = seen.get("finished")
    if end is None:
        return
    folder, record = local_folder(stored, submissions), stored.run
    try:
        brought = _may_hold("holding" in seen, pods) and _fetch_from_workers(
            api, record, _within_reach(pods, end), folder, progress
        )
        if has_own_claim(record) and view.jobs and _volume_of(api, record).status == "Bound":
            with _reached(api, record) as (opener, root):
                fetch_tree(opener, root, folder, progress=_adding(progress))
            brought = True
    except EchelonError:
        if read_record(api, ref).collected is None:
            raise
        return  # another client was faster, and has released the workers
    _write_down(api, record, end, folder if brought else None)
    objects.tie_record(api, stored, view.jobs)  # the client that made them may have been cut off right after
    with suppress(Denied):  # then they leave by themselves, when their time is over
        control.release_workers(api, record, view.jobs, pods)


def fetch_results(api: Api, submissions: Submissions, ref: RunRef, path: str, to: Path) -> Path:
    """A file or folder of the results: from here if they were fetched already, else from where they are."""
    stored = read_record(api, ref)
    record = stored.run
    folder, output = local_folder(stored, submissions), record.job.pod.output
    check_inside(folder, path)
    if stored.collected is None:
        collect_results(api, submissions, ref, None)
        stored = read_record(api, ref)
    stays = output is not None and output.claim is not None
    if (
        stored.collected is not None
        and not stays
        and (_is_here(stored.collected, folder) or holds_results(folder))
    ):
        return copy_result(folder, path, to)
    target = to if path in (".", "") else to / Path(path).name
    leader = [pod for pod in workers.leader_pods(pods_of(api, ref.name)) if workers.is_running(pod)]
    if leader and stored.end is None:  # when the run is over, they may leave at any moment
        root = names.OUTPUT if output is None else names.RESULTS_VOLUME
        opener = pod_opener(api, leader[-1]["metadata"]["name"], python=record.job.python)
        return Path(fetch_tree(opener, root, target, path=path).target)
    if output is not None and jobs_of(api, stored):
        with _reached(api, record) as (opener, root):
            return Path(fetch_tree(opener, root, target, path=path).target)
    raise _nowhere(record, path, stored.collected)


def local_folder(stored: Stored, submissions: Submissions) -> Path:
    """Where the results belong on this machine: in the submission's folder, if this machine submitted the run
    and the folder can be used, else in ./runs.
    """
    written = Path(stored.run.results) if stored.run.results else None  # by schema 1
    wanted = submissions.results_of(stored.uid) or written
    if wanted is not None:
        beside = next((each for each in (wanted, *wanted.parents[:2]) if each.is_dir()), None)
        if beside is not None and os.access(beside, os.W_OK | os.X_OK):
            return wanted
    return Path("runs").absolute() / stored.run.ref.name


def fetched_to(stored: Stored, submissions: Submissions) -> Path | None:
    """Where on this machine the results are, if they were fetched to it."""
    folder = local_folder(stored, submissions)
    here = stored.collected is not None and _is_here(stored.collected, folder)
    return folder if here and folder.is_dir() else None


def check_fetched(api: Api, ref: RunRef) -> None:
    """Refuse to forget a run whose workers still keep results that were not fetched, and could be."""
    held = any(event.kind == "holding" for event in read_events(api, ref))
    if held and api.may("create", "Pod", subresource="exec"):
        raise StateTrouble(
            f"the results of run {ref.name!r} were not fetched yet, and would be lost",
            hint=f"`echelon get {ref.name}` brings them, and lets the workers go",
        )


def keeps_results(record: Record) -> bool:
    """Whether the workers themselves keep what the run has made; on a volume it stays without them."""
    return record.job.pod.output is None or bool(record.job.pod.collect)


def note_on_rights(api: Api, job: Job) -> str | None:
    """What a user without the right to `pods/exec` should know before the run starts."""
    output = job.pod.output
    stays = output is not None and output.claim is not None and not job.pod.collect
    if stays or api.may("create", "Pod", subresource="exec"):
        return None
    return (
        "you may not create pods/exec, so results that lie in the workers cannot be fetched, and a stop ends "
        "them with their pods; --output pvc:NAME keeps them on a volume"
    )


def stay_on_volume(record: Record) -> bool:
    """Whether the results, logs too, are on a volume of the user's, and stay there."""
    return record.job.pod.output is not None and record.job.pod.output.claim is not None


def has_own_claim(record: Record) -> bool:
    """Whether the results are on a volume that was made for this run alone."""
    return record.job.pod.output is not None and record.job.pod.output.claim is None


def _may_hold(reported: bool, pods: Sequence[Object]) -> bool:
    """Whether workers keep results. Their leader reports it, but its log may have been rotated since, or the
    leader be gone.
    """
    return reported or any(map(workers.is_running, pods))


def _within_reach(pods: Sequence[Object], end: Event) -> list[Object]:
    """The pods that may still respond: not those on dead nodes, and not that of the worker whose loss ended
    the run, which the cluster may take for running for a while yet.
    """
    lost = end.cause.worker if end.cause is not None and end.cause.rank is None else None
    return [pod for pod in pods if workers.worker_of(pod) != lost and not workers.is_cut_off(pod)]


def _fetch_from_workers(
    api: Api, record: Record, pods: Sequence[Object], folder: Path, progress: Progressed | None
) -> bool:
    """Fetch what is in pods that are still there; whether there were any."""
    found = False
    before = 0
    for worker, mine in workers.pods_by_worker(pods).items() if keeps_results(record) else ():
        if not workers.is_running(mine[-1]):
            continue
        opener = pod_opener(api, mine[-1]["metadata"]["name"], python=record.job.python)
        with suppress(NotThere):  # its time to linger was over just now
            if record.job.pod.output is None:
                move = partial(_place, worker)
                copied = fetch_tree(
                    opener, names.OUTPUT, folder, move=move, progress=_adding(progress, before)
                )
                before += copied.size
            for path in record.job.pod.collect:
                target = folder / _place(worker, Path(path).name)
                before += fetch_tree(opener, path, target, progress=_adding(progress, before)).size
            found = True
    return found


def _adding(progress: Progressed | None, before: int = 0) -> Callable[[Progress], object]:
    def report(now: Progress) -> None:
        if progress is not None:
            progress(before + now.done, before + now.total)

    return report


def _volume_of(api: Api, record: Record) -> Volume:
    from echelon.engines.kubernetes.files.volumes import read_volume

    output = record.job.pod.output
    assert output is not None
    return read_volume(api, output.claim or names.claim_name(record.ref.name))


@contextmanager
def _reached(api: Api, record: Record) -> Iterator[tuple[Opener, str]]:
    """A way to the volume that has the results, through a small pod, and where on it they are."""
    from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume

    output = record.job.pod.output
    assert output is not None
    volume = _volume_of(api, record)
    with reach_volume(api, volume, record.job.pod, owner=current_user(), writes=False) as opener:
        yield opener, f"{MOUNT}/{output.path}".rstrip("/")


def _place(worker: int, path: str) -> str:
    """Where a worker's file belongs: logs are numbered by rank, so that those of all go together."""
    return path if worker == 0 or path.startswith(_LOGS) or path == "logs" else f"worker-{worker}/{path}"


def _write_down(api: Api, run: Record, end: Event, folder: Path | None) -> None:
    """The end and, if anything was fetched, when and where to."""
    collected = None
    if folder is not None or not keeps_results(run):
        where = str(folder or "")
        collected = Collected(at=round(time.time(), 3), host=socket.gethostname(), path=where)
    api.patch("ConfigMap", run.ref.name, finished(end, collected))


def _is_here(collected: Collected, folder: Path) -> bool:
    """Whether results were fetched to this machine's folder, though there may have been none."""
    return (collected.host, collected.path) == (socket.gethostname(), str(folder))


def _nowhere(record: Record, path: str, collected: Collected | None) -> InvalidJob:
    if collected is not None and collected.path:
        hint = f"the results were brought to {collected.path} on {collected.host}"
    elif record.job.pod.output is not None:
        claim = record.job.pod.output.claim or names.claim_name(record.ref.name)
        there = f"{claim}/{record.job.pod.output.path}".rstrip("/")
        hint = f"they are on a volume: echelon cp pvc:{there}/{path} ."
    else:
        kept = f"{record.job.pod.linger:g} s"
        hint = f"workers keep them for {kept} after the end (--linger), and then they are gone"
    return InvalidJob("path", path, "is not among the results any more", hint=hint)
