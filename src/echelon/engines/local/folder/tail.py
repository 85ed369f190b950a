"""The output files of a run's agents, read as one stream of lines, while they are still being written."""

from __future__ import annotations

import heapq
import os
import re
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from echelon.agent.ranks.processes import allow_descriptors
from echelon.engines.local.folder.rundir import RunDir, open_log
from echelon.engines.results import RECENT
from echelon.model.output.log import LOOSE, EventLine, LogBlock, LogLine, parse_blocks, parse_line

_PIECE = 1024 * 1024
# What an agent writes before a line, cut anywhere: of such a line nothing was kept.
_TORN_MARK = re.compile(r"\d{1,10}(\.\d{0,9}( (\d{1,18}e?[+~]?( (\[(\d{0,9}|-|e|ev|eve|even|event))?)?)?)?)?")


class _Tail:
    """One file, read to its current end; a line still being written is kept for the next read."""

    def __init__(self, path: Path, worker: int) -> None:
        self._file = open_log(path)
        self._worker = worker
        self._partial = b""

    def read(self) -> Iterator[LogLine | LogBlock]:
        while piece := self._file.read(_PIECE):
            whole, newline, rest = piece.rpartition(b"\n")
            if not newline:
                self._partial += piece
                continue
            raw, self._partial = self._partial + whole + newline, rest
            for found in parse_blocks(raw, self._worker):
                if not isinstance(found, EventLine) and not _is_torn_mark(found):
                    yield found

    def rest(self) -> Iterator[LogLine]:
        """The unfinished line of an agent that was killed."""
        if self._partial:
            line = parse_line(self._partial, self._worker)
            if isinstance(line, LogLine) and not _is_torn_mark(line):
                yield line

    def close(self) -> None:
        self._file.close()


def follow_logs(
    folder: RunDir, is_last_look: Callable[[], bool], pause: float
) -> Iterator[LogLine | LogBlock]:
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
            for piece in heapq.merge(*sources, key=_time) if first else chain.from_iterable(sources):
                found = True
                yield piece
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


def read_earlier(folder: RunDir) -> Iterator[LogLine | LogBlock]:
    """Every line of the starts before the run was resumed, one start after the other."""
    for start in folder.earlier_starts():
        yield from follow_logs(start, lambda: True, 0.0)


def recent_output(folder: RunDir, worker: int) -> Iterator[LogLine] | None:
    """The last lines of a worker's agent; None where no such file can be read, or it was compressed."""
    paths = [path for number, _failures, path in folder.worker_logs() if number == worker]
    try:
        with paths[-1].open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - RECENT)
            file.seek(start)
            lines = file.read(RECENT).split(b"\n")[1 if start else 0 : -1]  # those that are whole
    except (IndexError, OSError):
        return None
    found = (parse_line(raw, worker) for raw in lines)
    return (line for line in found if isinstance(line, LogLine))


def _is_torn_mark(piece: LogLine | LogBlock) -> bool:
    """Whether a line was cut by a full disk, or with its agent, before it had begun."""
    loose = isinstance(piece, LogLine) and piece.sequence == LOOSE
    return loose and _TORN_MARK.fullmatch(piece.text) is not None  # type: ignore[union-attr]


def _time(piece: LogLine | LogBlock) -> float:
    return piece.at if isinstance(piece, LogLine) else piece.first.at
