"""The logs of a run whose results were fetched, for when the cluster has thrown lines away.

The kubelet keeps ten mebibytes of a log and serves its newest file only; the files among the results have
every line, but neither the time of each nor the order between ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.follow.logs import read_pod
from echelon.engines.kubernetes.state.workers import has_started
from echelon.errors import EchelonError
from echelon.model.log import LogLine, decode, is_gap
from echelon.model.status import WorkerStatus


def has_lost_lines(api: Api, pods: Iterable[Object]) -> bool:
    """Whether the log of some pod does not begin with its first line, or cannot be read."""
    return any(_is_torn(api, pod) for pod in pods if has_started(pod))


def read_saved(folder: Path, workers: Sequence[WorkerStatus]) -> Iterator[LogLine]:
    """Every line of the log files, one rank after another; as its time, when the file was written last."""
    for worker in workers:
        for rank in worker.ranks:
            path = folder / f"rank-{rank}.log"
            if not path.is_file():
                continue
            at = path.stat().st_mtime
            with path.open("rb") as file:
                for number, raw in enumerate(file):
                    text = decode(raw.removesuffix(b"\n").rpartition(b"\r")[2])
                    yield LogLine(text=text, at=at, worker=worker.worker, rank=rank, sequence=number)


def _is_torn(api: Api, pod: Object) -> bool:
    """Whether a gap comes before the first numbered line: a log that was cut in the middle of a line begins
    with its rest, which has no number.
    """
    try:
        for line in chain.from_iterable(read_pod(api, pod)):
            if is_gap(line) or line.at:
                return is_gap(line)
    except EchelonError:
        return True
    return True
