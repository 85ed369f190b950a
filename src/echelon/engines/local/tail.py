"""The output files of a run's agents, read as one stream of lines, while they are still being written."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from echelon.agent.ranks.processes import allow_descriptors
from echelon.engines.local.rundir import RunDir
from echelon.model.log import LogLine, parse_line

_PIECE = 1024 * 1024


class _Tail:
    """One file, read to its current end; a line still being written is kept for the next read."""

    def __init__(self, path: Path, worker: int) -> None:
        self._file = path.open("rb")
        self._worker = worker
        self._partial = b""

    def read(self) -> Iterator[LogLine]:
        while piece := self._file.read(_PIECE):
            *lines, self._partial = (self._partial + piece).split(b"\n")
            for raw in lines:
                line = parse_line(raw, self._worker)
                if isinstance(line, LogLine):
                    yield line

    def rest(self) -> Iterator[LogLine]:
        """The unfinished line of an agent that was killed."""
        if self._partial:
            line = parse_line(self._partial, self._worker)
            if isinstance(line, LogLine):
                yield line

    def close(self) -> None:
        self._file.close()


def follow_logs(folder: RunDir, is_last_look: Callable[[], bool], pause: float) -> Iterator[LogLine]:
    """Yield every line of every agent; the pass that begins when `is_last_look` is true is the last.

    The lines of the first pass are sorted by time; later ones come in the order of arrival.
    """
    tails: dict[Path, _Tail] = {}
    try:
        first = True
        while True:
            last = is_last_look()
            logs = folder.worker_logs()
            allow_descriptors(len(logs))
            for worker, _failures, path in logs:
                if path not in tails:
                    tails[path] = _Tail(path, worker)
            found = False
            sources = [tail.read() for tail in tails.values()]
            for line in heapq.merge(*sources, key=lambda each: each.at) if first else _chain(sources):
                found = True
                yield line
            first = False
            if last:
                for tail in tails.values():
                    yield from tail.rest()
                return
            if not found:
                time.sleep(pause)
    finally:
        for tail in tails.values():
            tail.close()


def _chain(sources: list[Iterator[LogLine]]) -> Iterator[LogLine]:
    for source in sources:
        yield from source
