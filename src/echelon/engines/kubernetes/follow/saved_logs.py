"""The logs of a run as far as they are on this machine, for what the cluster no longer has: lines of pods
that are gone, and lines that the kubelet has thrown away.

The kubelet keeps ten mebibytes of a log and serves its newest file only. The files among the results were
fetched from the workers, or streamed while the run went on (`streamed_logs`); they have neither the time of
each line nor the order between ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.follow.log_files import SavedPod, read_notes
from echelon.engines.kubernetes.follow.logs import gap, read_all, read_pod, unreadable
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.workers import has_started, pods_by_worker
from echelon.errors import Denied, EchelonError
from echelon.model.output.log import GAP, LOOSE, Line, LogLine, decode, is_gap
from echelon.model.status import WorkerStatus

_LOST = re.compile(r"\.lost-(\d+)\.log$")


def read_with_saved(
    api: Api, pods: Sequence[Pod], logs: Path | None, workers: Sequence[WorkerStatus]
) -> Iterator[Line]:
    """The lines of all pods; those of a worker that the cluster lacks some of, from the folder `logs` of this
    machine first, one rank after another.
    """
    if logs is None or not logs.is_dir():
        yield from read_all(api, pods)
        return
    started = {worker: list(filter(has_started, mine)) for worker, mine in pods_by_worker(pods).items()}
    notes = read_notes(logs)
    from_here = [each for each in workers if _lacks(api, started.get(each.worker, []), each, logs)]
    for each in from_here:
        yield from read_saved(logs, each, notes)
    there = {each.worker for each in from_here}
    for worker in sorted(there):
        for pod in started.get(worker, []):
            if (noted := notes.get(pod.metadata.uid)) is not None:
                yield from _since(api, pod, noted)
    yield from read_all(api, [pod for worker, mine in started.items() if worker not in there for pod in mine])


def read_saved(logs: Path, worker: WorkerStatus, notes: dict[str, SavedPod]) -> Iterator[LogLine]:
    """Every line in the files of a worker's ranks; as its time, when the file was written last.

    Of a file that is being streamed, the part that is noted: the cluster has what follows it."""
    noted = {(file.name, file.inode): file.size for pod in notes.values() for file in pod.files.values()}
    for rank in worker.ranks:
        for path in _files_of(logs, rank):
            about = path.stat()
            left = noted.get((path.name, about.st_ino), about.st_size)
            with path.open("rb") as file:
                for number, raw in enumerate(file):
                    if left <= 0:
                        break
                    text = decode(raw[:left].removesuffix(b"\n").rpartition(b"\r")[2])
                    left -= len(raw)
                    yield LogLine(
                        text=text, at=about.st_mtime, worker=worker.worker, rank=rank, sequence=number
                    )


def _files_of(logs: Path, rank: int) -> list[Path]:
    """The files with a rank's lines: those of pods that were lost come first."""
    lost = sorted(
        (int(found[1]), path)
        for path in logs.glob(f"rank-{rank}.lost-*.log")
        if (found := _LOST.search(path.name))
    )
    last = (logs / f"rank-{rank}.streamed.log", logs / f"rank-{rank}.log")
    return [*(path for _, path in lost), *[path for path in last if path.is_file()][:1]]


def _lacks(api: Api, pods: Sequence[Pod], worker: WorkerStatus, logs: Path) -> bool:
    """Whether this machine has lines of a worker that the cluster does not have."""
    here = max((len(_files_of(logs, rank)) for rank in worker.ranks), default=0)
    return bool(here) and (len(pods) < here or any(_is_torn(api, pod) for pod in pods))


def _since(api: Api, pod: Pod, noted: SavedPod) -> Iterator[Line]:
    """What came after the lines that are noted."""
    last = noted.last
    try:
        for line in chain.from_iterable(read_pod(api, pod)):
            if line.sequence in (GAP, LOOSE) or line.sequence <= last:
                continue
            if line.sequence > last + 1:
                yield gap(noted.worker, line.sequence - last - 1, line.at)
            if isinstance(line, LogLine):
                last = line.sequence
                yield line
    except Denied:
        raise
    except EchelonError as error:
        yield unreadable(noted.worker, error)


def _is_torn(api: Api, pod: Pod) -> bool:
    """Whether a gap comes before the first numbered line: a log that was cut in the middle of a line begins
    with its rest, which has no number.
    """
    try:
        for line in chain.from_iterable(read_pod(api, pod)):
            if line.sequence != LOOSE:
                return is_gap(line)
    except EchelonError:
        return True
    return True
