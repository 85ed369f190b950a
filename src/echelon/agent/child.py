"""A helper process of the agent (a question to the ranks' Python, pip), read from without blocking.

The agent's leader wants to hear of it meanwhile, and a Python on a slow disk takes its time. Who calls it:
`interpreter.py` and `packages.py`. The one place that reaps processes is `ranks.py`, which tells of the end
by `helpers`."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial

from .loop import READ, Loop
from .processes import die_with_parent

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

_PIECE = 64 * 1024
_MOST_PIECES = 64  # read after the end: what is in the pipe by then, not what somebody else still writes


class Child:
    """One helper: `on_data(stream, data)` with 1 or 2 for each piece, `on_end(code)` once. OSError if it
    cannot be started.
    """

    def __init__(
        self,
        loop: Loop,
        helpers: dict[int, Callable[[int], object]],
        argv: list[str],
        env: dict[str, str],
        on_data: Callable[[int, bytes], object],
        on_end: Callable[[int], object],
        cwd: str | None = None,
    ) -> None:
        self._loop = loop
        self._on_data = on_data
        self._on_end: Callable[[int], object] | None = on_end
        self._process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        helpers[self._process.pid] = self._ended
        self._pipes = [pipe for pipe in (self._process.stdout, self._process.stderr) if pipe is not None]
        for number, pipe in enumerate(self._pipes, 1):
            os.set_blocking(pipe.fileno(), False)
            loop.watch(pipe.fileno(), READ, partial(self._on_readable, number, pipe.fileno()))

    def cancel(self) -> None:
        """End it, and everything it has started; nobody will be told."""
        if self._on_end is not None:
            self._on_end = None
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def _on_readable(self, number: int, descriptor: int, _events: int) -> None:
        self._read(number, descriptor)

    def _read(self, number: int, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.forget(descriptor)
        elif self._on_end is not None:
            self._on_data(number, data)
        return bool(data)

    def _ended(self, code: int) -> None:
        self._process.returncode = code
        for number, pipe in enumerate(self._pipes, 1):
            for _ in range(_MOST_PIECES):
                if not self._read(number, pipe.fileno()):
                    break
            self._loop.forget(pipe.fileno())
            pipe.close()
        announce, self._on_end = self._on_end, None
        if announce is not None:
            announce(code)
