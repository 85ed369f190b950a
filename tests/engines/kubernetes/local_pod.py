"""The agent of a pod as a process of this machine, for tests of copies: real at both ends, and no cluster."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.conftest import PATIENCE

from echelon.engines.kubernetes.files.reconnect import Channel
from echelon.errors import Unreachable


class Local:
    """The agent in a process of this machine, as a channel; it may break after so many bytes."""

    def __init__(self, command: Sequence[str], breaks_after: int | None) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._process = subprocess.Popen(command, bufsize=0, **pipes)  # type: ignore[call-overload]
        self._selector = selectors.DefaultSelector()
        for number, stream in ((1, self._process.stdout), (2, self._process.stderr)):
            self._selector.register(stream, selectors.EVENT_READ, number)
        self._left = breaks_after
        self.exit_code: int | None = None

    def read(self, timeout: float | None = None) -> tuple[int, bytes] | None:
        while self._selector.get_map():
            ready = self._selector.select(timeout)
            if not ready:
                raise TimeoutError
            key, _ = ready[0]
            data = os.read(key.fd, 1 << 15)
            if data:
                self._count(len(data))
                return key.data, data
            self._selector.unregister(key.fileobj)
        self.exit_code = self._process.wait(PATIENCE)
        return None

    def write(self, data: bytes) -> None:
        self._count(len(data))
        assert self._process.stdin is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._process.stdin.fileno(), rest) :]

    def _count(self, size: int) -> None:
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise Unreachable("the connection was cut", hint="")

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._process.wait(PATIENCE)
        self._selector.close()


class Pod:
    """Opens agents; `breaks` says after how many bytes each connection breaks, in turn; then none does."""

    def __init__(self, archive: Path, python: str = sys.executable) -> None:
        self.words = [python, "-I", str(archive), "files"]
        self.breaks: list[int] = []
        self.opened = 0

    @contextlib.contextmanager
    def open(self, words: Sequence[str]) -> Iterator[Channel]:
        self.opened += 1
        channel = Local([*self.words, *words], self.breaks.pop(0) if self.breaks else None)
        try:
            yield channel
        finally:
            channel.close()
