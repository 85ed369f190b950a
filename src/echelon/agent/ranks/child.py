"""A process that the agent starts (a rank, a question to the ranks' Python, pip), or that a launcher has
started for it, read from without blocking.

The agent must answer its leader meanwhile, and a Python on a slow disk takes seconds. The one place that
reaps processes is `ranks.py`, which reports the end through `children`."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial

from echelon.agent.loop import READ, Loop
from echelon.agent.ranks.processes import die_with_parent

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import IO, Callable

_SET_PIPE_SIZE = 1031  # fcntl.F_SETPIPE_SZ, named since Python 3.10
_PIPE_SIZE = 1024 * 1024
_PIECE = 96 * 1024  # bytes read at a time; larger ones cost more in memory than they save in calls
_MOST_PIECES = 2 * _PIPE_SIZE // _PIECE  # read after the end


class Output:
    """The pipes of a process: `on_data(stream, data)` with 1 or 2 for each piece, `on_end(code)` once. With
    `shared` they are read beyond its end, until `close()`, while another process has them.
    """

    pid = 0
    cut_off = False  # it did not end by itself: its launcher has ended it

    def __init__(
        self,
        loop: Loop,
        pipes: list[IO[bytes]],
        on_data: Callable[[int, bytes], object],
        on_end: Callable[[int], object],
        wide: bool = False,
        shared: bool = False,
    ) -> None:
        self._loop = loop
        self._pipes = pipes
        self._open = {pipe.fileno() for pipe in pipes}
        self._shared = shared
        self._reads = True
        self._on_data = on_data
        self._on_end: Callable[[int], object] | None = on_end
        for pipe in pipes:
            os.set_blocking(pipe.fileno(), False)
            if wide:
                _widen(pipe.fileno())
        self.resume()

    @property
    def open(self) -> bool:
        """Whether a process may still write to it."""
        return bool(self._pipes and self._open)

    def pause(self) -> None:
        """Do not read for now: what it writes more than a pipe holds makes it wait."""
        for pipe in self._pipes:
            self._loop.forget(pipe.fileno())

    def resume(self) -> None:
        """Read on."""
        for number, pipe in enumerate(self._pipes, 1):
            if pipe.fileno() in self._open:
                self._loop.watch(pipe.fileno(), READ, partial(self._on_readable, number, pipe.fileno()))

    def end(self, code: int) -> None:
        """The process has ended: read what it has written, and report."""
        self._read_rest()
        if not (self._shared and self._open):
            self._close()
        announce, self._on_end = self._on_end, None
        if announce is not None:
            announce(code)

    def close(self) -> None:
        """Read no more, but for what was written; `on_end` is not called."""
        self._on_end = None
        if self._shared:
            self._read_rest()
        self._close()

    def _read_rest(self) -> None:
        """Read what is in the pipes by now; what is still written is not waited for."""
        for number, pipe in enumerate(self._pipes, 1):
            for _ in range(_MOST_PIECES):
                if not self._read(number, pipe.fileno()):
                    break

    def _close(self) -> None:
        self._reads = False
        for pipe in self._pipes:
            self._loop.forget(pipe.fileno())
            pipe.close()
        self._pipes = []

    def _on_readable(self, number: int, descriptor: int, _events: int) -> None:
        self._read(number, descriptor)

    def _read(self, number: int, descriptor: int) -> bool:
        """Take what there is; True if there may be more."""
        try:
            data = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._open.discard(descriptor)
            self._loop.forget(descriptor)
        elif self._reads:
            self._on_data(number, data)
        return bool(data)


class Child(Output):
    """One process of the agent's own.

    Raises what Popen raises if it cannot be started. `wide` pipes are for one that writes much. A `terminal`
    (a descriptor to read from, and the child's own) takes the place of all three streams; all is data of 1.
    """

    def __init__(
        self,
        loop: Loop,
        children: dict[int, Callable[[int], object]],
        argv: list[str],
        env: dict[str, str],
        on_data: Callable[[int, bytes], object],
        on_end: Callable[[int], object],
        *,
        cwd: str | None = None,
        stdin: int | None = subprocess.DEVNULL,
        wide: bool = False,
        terminal: tuple[int, int] | None = None,
        shared: bool = False,
    ) -> None:
        pipes: list[IO[bytes]] = []
        if terminal is None:
            self._process = _start(argv, env, cwd, stdin, subprocess.PIPE, die_with_parent)
            pipes += [pipe for pipe in (self._process.stdout, self._process.stderr) if pipe is not None]
        else:
            from echelon.agent.ranks.terminal import take_terminal

            ours, theirs = terminal
            pipes.append(os.fdopen(ours, "rb", buffering=0))
            try:
                self._process = _start(argv, env, cwd, theirs, theirs, take_terminal)
            finally:
                os.close(theirs)
        self.pid = self._process.pid
        children[self.pid] = self._ended
        super().__init__(loop, pipes, on_data, on_end, wide, shared)

    def cancel(self) -> None:
        """Kill it, and everything it has started; `on_end` is not called."""
        if self._on_end is not None:
            self._on_end, self._reads = None, False
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def _ended(self, code: int) -> None:
        self._process.returncode = code
        self.end(code)


def _start(
    argv: list[str],
    env: dict[str, str],
    cwd: str | None,
    stdin: int | None,
    output: int,
    before: Callable[[], object],
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=before,
    )


def _widen(descriptor: int) -> None:
    """A larger pipe means fewer switches between a process that writes much and its agent."""
    try:
        import fcntl

        fcntl.fcntl(descriptor, _SET_PIPE_SIZE, _PIPE_SIZE)
    except (ImportError, OSError):
        pass
