"""The newest sample of every worker, in a file beside the leader: the file is replaced, and never grows.

A client on the same machine reads it; another one through `exec` in the leader's pod: `python3 -S agent.pyz
samples FILE` prints it in one line, and with `follow` again whenever it has changed, until it is removed or
its reader is gone."""

from __future__ import annotations

import json
import os
import sys
import time

from echelon.agent.loop import Loop, Timer
from echelon.agent.task import write_atomically

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

NAME = "samples.json"
SOON = 0.2  # seconds within which samples that come together are written together
PER_WORKER = 0.002  # seconds for each worker of the gang between two writes
LOOK = 0.5  # seconds between two looks of one that follows
SIGN = 2.0  # seconds without a change after which an empty line is printed
MISSING = 30.0  # seconds without a file after which one that follows ends


class Board:
    """Holds the samples; writes the file soon after one has come."""

    def __init__(self, loop: Loop, folder: str, workers: int) -> None:
        self._loop = loop
        self._path = os.path.join(folder, NAME)
        self._pause = SOON + PER_WORKER * workers
        self._samples: dict[int, dict[str, Any]] = {}
        self._timer: Timer | None = None

    def put(self, worker: int, sample: object) -> None:
        """Take a worker's newest sample."""
        if isinstance(sample, dict):
            self._samples[worker] = dict(sample, worker=worker)
            self._write_soon()

    def drop(self, worker: int | None = None) -> None:
        """Forget a worker's, which is gone, or all of them."""
        if worker is None:
            self._samples.clear()
        else:
            self._samples.pop(worker, None)
        self._write_soon()

    def close(self) -> None:
        """Remove the file: the run is over."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            os.unlink(self._path)
        except OSError:
            pass

    def _write_soon(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._pause, self._write)

    def _write(self) -> None:
        self._timer = None
        newest = [self._samples[worker] for worker in sorted(self._samples)]
        try:
            write_atomically(self._path, json.dumps({"workers": newest}).encode())
        except OSError:
            pass  # a full disk must not end the run


def main(argv: list[str]) -> int:
    """Print the file's content, once or as it changes. An empty line from time to time shows whether anybody
    still reads; a run without samples for a while is looked at again by who wants to.
    """
    if not argv or argv[1:] not in ([], ["follow"]):
        print("usage: samples FILE [follow]", file=sys.stderr)
        return 2
    seen, unchanged, there = b"", 0.0, False
    while True:
        content = _read(argv[0])
        if content and content != seen:
            seen, unchanged = content, 0.0
        elif content is None and (there or unchanged > MISSING):
            return 0
        there = content is not None
        try:
            if unchanged == 0.0 and seen:
                os.write(1, seen + b"\n")
            elif unchanged % SIGN < LOOK:
                os.write(1, b"\n")
        except OSError:
            return 0
        if not argv[1:]:
            return 0
        unchanged += LOOK
        time.sleep(LOOK)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
