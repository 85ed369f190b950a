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
    """One file, read as far as it goes; a line still being written waits for its end."""

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
        """Half a line that an agent left when it was killed."""
        if self._partial:
            line = parse_line(self._partial, self._worker)
            if isinstance(line, LogLine):
                yield line

    def close(self) -> None:
        self._file.close()


def follow_logs(folder: RunDir, is_last_look: Callable[[], bool], pause: float) -> Iterator[LogLine]:
    """Yield every line of every agent, until a look that began when `is_last_look` was true has found all
    there is.

    What lies there at the first look is put in the order of time; after that, in the order in which it comes.
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
