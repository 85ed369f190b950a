"""A run's results, brought from its workers or its volume to where they belong on this machine.

Whoever waits for a run does it once, when the run is over; `echelon get` may do it before, for a part. Then
the end is written into the record, so that it is known without any log, and the workers are let go."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from echelon.engines.base import current_user
from echelon.engines.kubernetes import control, names, objects
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.client.fields import json_object
from echelon.engines.kubernetes.files.transfer import Opener, Progress, fetch_tree, pod_opener
from echelon.engines.kubernetes.state import history, workers
from echelon.engines.results import check_inside, copy_result
from echelon.errors import Denied, EchelonError, InvalidJob, StateTrouble
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.run import Record, RunRef

if TYPE_CHECKING:
    from echelon.engines.kubernetes.engine import KubernetesEngine
    from echelon.model.volume import Volume

_LOGS = "logs/"
Heard = Callable[[int, int], object]  # the bytes that have come, and how many there are


def collect_results(engine: KubernetesEngine, ref: RunRef, progress: Heard | None) -> None:
    """Fetch what a run that is over has made, and let its workers go; nothing the second time.

    What is on a volume of the user's stays there."""
    obj = engine.record_of(ref)
    if history.annotation(obj, names.COLLECTED) is not None:
        return
    record = history.read_record(obj, ref)
    jobs, pods = engine.jobs_of(ref), engine.pods_of(ref)
    told = {event.kind: event for event in engine.events(ref)}
    end = told.get("finished")
    if end is None:
        return
    home, made = home_of(record), has_own_claim(record)
    try:
        brought = _may_hold("holding" in told, pods) and _fetch_from_workers(
            engine, record, _within_reach(pods, end), home, progress
        )
        if made and jobs and _volume_of(engine, record).status == "Bound":
            with _reached(engine, record) as (opener, root):
                fetch_tree(opener, root, home, progress=_told(progress))
            brought = True
    except EchelonError:
        if history.annotation(engine.record_of(ref), names.COLLECTED) is None:
            raise
        return  # somebody else was faster, and has let the workers go
    _write_down(engine, record, end, home if brought else None)
    objects.adopt(engine.api, obj, jobs)  # whoever made them may have been cut off right after
    with suppress(Denied):  # then they leave by themselves, when their time is over
        control.tell_leader(engine.api, record, pods, "release")


def fetch_results(engine: KubernetesEngine, ref: RunRef, path: str, to: Path) -> Path:
    """A file or folder of the results: from here if they were brought here, else from where they are."""
    obj = engine.record_of(ref)
    record = history.read_record(obj, ref)
    home, output = home_of(record), record.job.pod.output
    check_inside(home, path)
    if history.annotation(obj, names.COLLECTED) is None:
        engine.collect(ref)
        obj = engine.record_of(ref)
    collected = history.annotation(obj, names.COLLECTED)
    stays = output is not None and output.claim is not None
    if collected is not None and not stays and (_is_here(collected, home) or home.exists()):
        return copy_result(home, path, to)
    target = to if path in (".", "") else to / Path(path).name
    leader = [pod for pod in workers.leader_pods(engine.pods_of(ref)) if workers.is_running(pod)]
    if leader and history.written_end(obj) is None:  # when the run is over, they may leave at any moment
        root = names.OUTPUT if output is None else names.RESULTS_VOLUME
        opener = pod_opener(engine.api, leader[-1]["metadata"]["name"], python=record.job.python)
        return Path(fetch_tree(opener, root, target, path=path).target)
    if output is not None and engine.jobs_of(ref):
        with _reached(engine, record) as (opener, root):
            return Path(fetch_tree(opener, root, target, path=path).target)
    raise _nowhere(record, path, collected)


def home_of(record: Record) -> Path:
    """Where the results belong on this machine: where the submitter said, or, if that was on another machine
    or is another user's, in ./runs.
    """
    said = Path(record.results)
    beside = next((folder for folder in (said, *said.parents[:2]) if folder.is_dir()), None)
    if beside is not None and os.access(beside, os.W_OK | os.X_OK):
        return said
    return Path("runs").absolute() / record.ref.name


def fetched_to(engine: KubernetesEngine, ref: RunRef) -> Path | None:
    """Where on this machine the results are, if they were brought here."""
    obj = engine.record_of(ref)
    collected = history.annotation(obj, names.COLLECTED)
    home = home_of(history.read_record(obj, ref))
    return home if collected is not None and _is_here(collected, home) and home.is_dir() else None


def check_fetched(engine: KubernetesEngine, record: Record) -> None:
    """Refuse to forget a run whose workers still keep results that nobody has fetched, and we could."""
    held = any(event.kind == "holding" for event in engine.events(record.ref))
    if held and engine.api.may("create", "Pod", subresource="exec"):
        name = record.ref.name
        raise StateTrouble(
            f"the results of run {name!r} were not fetched yet, and would be lost",
            hint=f"`echelon get {name}` brings them, and lets the workers go",
        )


def keeps_results(record: Record) -> bool:
    """Whether the workers themselves keep what the run has made; on a volume it is kept without them."""
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


def has_own_claim(record: Record) -> bool:
    """Whether the results are on a volume that was made for this run alone."""
    return record.job.pod.output is not None and record.job.pod.output.claim is None


def _may_hold(told: bool, pods: Sequence[Object]) -> bool:
    """Whether workers keep results. Their leader says so, but its log may have been turned over since."""
    return told or any(map(workers.is_running, workers.leader_pods(pods)))


def _within_reach(pods: Sequence[Object], end: Event) -> list[Object]:
    """The pods that may still answer: not those on dead nodes, and not that of the worker whose loss ended
    the run, which the cluster may take for running for a while yet.
    """
    lost = end.cause.worker if end.cause is not None and end.cause.rank is None else None
    return [pod for pod in pods if workers.worker_of(pod) != lost and not workers.is_cut_off(pod)]


def _fetch_from_workers(
    engine: KubernetesEngine, record: Record, pods: Sequence[Object], home: Path, progress: Heard | None
) -> bool:
    """Bring what lies in pods that are still there; whether there were any."""
    found = False
    before = 0
    for worker, mine in workers.pods_by_worker(pods).items() if keeps_results(record) else ():
        if not workers.is_running(mine[-1]):
            continue
        opener = pod_opener(engine.api, mine[-1]["metadata"]["name"], python=record.job.python)
        with suppress(NotThere):  # its time to linger was over just now
            if record.job.pod.output is None:
                move = partial(_place, worker)
                copied = fetch_tree(opener, names.OUTPUT, home, move=move, progress=_told(progress, before))
                before += copied.size
            for path in record.job.pod.collect:
                target = home / _place(worker, Path(path).name)
                before += fetch_tree(opener, path, target, progress=_told(progress, before)).size
            found = True
    return found


def _told(progress: Heard | None, before: int = 0) -> Callable[[Progress], object]:
    def tell(now: Progress) -> None:
        if progress is not None:
            progress(before + now.done, before + now.total)

    return tell


def _volume_of(engine: KubernetesEngine, record: Record) -> Volume:
    from echelon.engines.kubernetes.files.volumes import read_volume

    output = record.job.pod.output
    assert output is not None
    return read_volume(engine.api, output.claim or names.claim_name(record.ref.name))


@contextmanager
def _reached(engine: KubernetesEngine, record: Record) -> Iterator[tuple[Opener, str]]:
    """A way to the volume that has the results, through a small pod, and where on it they are."""
    from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume

    output = record.job.pod.output
    assert output is not None
    volume = _volume_of(engine, record)
    with reach_volume(engine.api, volume, record.job.pod, owner=current_user(), writes=False) as opener:
        yield opener, f"{MOUNT}/{output.path}".rstrip("/")


def _place(worker: int, path: str) -> str:
    """Where a worker's file belongs: logs are numbered by rank, so that those of all go together."""
    return path if worker == 0 or path.startswith(_LOGS) or path == "logs" else f"worker-{worker}/{path}"


def _write_down(engine: KubernetesEngine, record: Record, end: Event, home: Path | None) -> None:
    """The end and, if anything was brought, when and where to."""
    change: Object = {"data": {names.FINISHED_KEY: msgspec.json.encode(end).decode()}}
    if home is not None or not keeps_results(record):
        where = {"at": round(time.time(), 3), "host": socket.gethostname(), "path": str(home or "")}
        change["metadata"] = {"annotations": {names.COLLECTED: json.dumps(where)}}
    engine.api.patch("ConfigMap", record.ref.name, change)


def _is_here(collected: str, home: Path) -> bool:
    """Whether results were brought to this machine's folder, though there may have been none."""
    where = json_object(collected)
    return (where.get("host"), where.get("path")) == (socket.gethostname(), str(home))


def _nowhere(record: Record, path: str, collected: str | None) -> InvalidJob:
    where = json_object(collected or "")
    if where.get("path"):
        hint = f"the results were brought to {where['path']} on {where['host']}"
    elif record.job.pod.output is not None:
        claim = record.job.pod.output.claim or names.claim_name(record.ref.name)
        there = f"{claim}/{record.job.pod.output.path}".rstrip("/")
        hint = f"they are on a volume: echelon cp pvc:{there}/{path} ."
    else:
        kept = f"{record.job.pod.linger:g} s"
        hint = f"workers keep them for {kept} after the end (--linger), and then they are gone"
    return InvalidJob("path", path, "is not among the results any more", hint=hint)
