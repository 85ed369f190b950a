"""A queue of log lines whose reader may be slow, such as a pager, while the lines must be read on: what it
does not hold in memory is in a file, which goes with the process."""

from __future__ import annotations

import io
import pickle
import queue
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import deque

_CHUNK = 1 << 20  # bytes that are read from the file at once
_PAUSE = 1.0  # seconds without a line taken after which a reader counts as one that pauses


@dataclass(slots=True)
class _Spilled:
    pod: Any
    offset: int
    size: int


class SpillingQueue(queue.Queue[Any]):
    """Items are a pod and a list of its lines, or something else, which stays in memory.

    A reader that is only slower than the writers holds them up, which costs less than the file; one that
    pauses does not. `put` raises Full only if the file cannot be written."""

    queue: deque[Any]

    def __init__(self, in_memory: int, folder: Path) -> None:
        super().__init__()
        self._in_memory = in_memory
        self._where = folder
        self._file: Any = None
        self._spilled = 0
        self._closed = False

    def close(self) -> None:
        """Give the file up, with what is in it."""
        with self.mutex:
            self._closed = True
            self.queue.clear()
            self.not_full.notify_all()
            if self._file is not None:
                self._file.close()
                self._file = None

    def put(self, item: tuple[Any, Any], block: bool = True, timeout: float | None = None) -> None:
        """Add an item; while the reader takes others, wait until it fits into memory."""
        with self.not_full:
            if isinstance(item[1], list):
                self.not_full.wait_for(self._may_put, _PAUSE)
        super().put(item, block, timeout)

    def _may_put(self) -> bool:
        return self._closed or self._spilled > 0 or len(self.queue) < self._in_memory

    def _put(self, item: tuple[Any, Any]) -> None:
        if self._closed:
            raise queue.Full
        pod, found = item
        if not isinstance(found, list) or (not self._spilled and len(self.queue) < self._in_memory):
            self.queue.append(item)
            return
        data = pickle.dumps(found, pickle.HIGHEST_PROTOCOL)
        try:
            offset = self._append(data)
        except OSError:
            raise queue.Full from None
        last = self.queue[-1]
        if isinstance(last, _Spilled) and last.pod is pod and last.size + len(data) <= _CHUNK:
            last.size += len(data)
        else:
            self.queue.append(_Spilled(pod, offset, len(data)))
            self._spilled += 1

    def _append(self, data: bytes) -> int:
        if self._file is None:
            folder = self._where if self._where.is_dir() else None
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - it has no name
        offset: int = self._file.seek(0, io.SEEK_END)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(offset)
            raise
        return offset

    def _get(self) -> tuple[Any, Any]:
        item = self.queue.popleft()
        if not isinstance(item, _Spilled):
            found: tuple[Any, Any] = item
            return found
        self._file.seek(item.offset)
        rest = io.BytesIO(self._file.read(item.size))
        lines: list[Any] = []
        while rest.tell() < item.size:
            lines += pickle.load(rest)  # noqa: S301 - our own, in a file without a name
        self._spilled -= 1
        if not self._spilled:
            self._file.truncate(0)
        return item.pod, lines
