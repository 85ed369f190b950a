"""The ranks of one worker in one generation: started, read from, reaped, stopped, with nothing left of them.

A rank is the first process of its own session; what it leaves behind when it ends
(data loaders, daemons) is ended too."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial

from echelon.agent.loop import Loop, Timer
from echelon.agent.output.sink import RankLog, Sink, Stream
from echelon.agent.ranks import cgroups, interpreter, launch, report, shell
from echelon.agent.ranks.child import Child
from echelon.agent.ranks.processes import descendants, kill_below, send
from echelon.agent.task import Place, Task, write_atomically

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

LEFTOVER_GRACE = 2.0  # seconds that children of an ended rank get


class Rank:
    """One process, its two streams, and how it ended."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: Child | None = None
        self.streams: list[Stream] = []  # standard output and standard error
        self.log: RankLog | None = None
        self.tail = b""  # the end of both streams, in the order they came
        self.error_file = ""
        self.code: int | None = None


class Ranks:
    """All ranks of a worker.

    `on_failed(end)` is called for each that fails, `on_done()` once when all have ended well.
    """

    def __init__(self, loop: Loop, task: Task, place: Place, sink: Sink) -> None:
        self._loop = loop
        self._task = task
        self._place = place
        self._sink = sink
        self._ranks: dict[int, Rank] = {}  # those that run, by process id
        self._all: list[Rank] = []
        self._modules: set[str] = set()  # those that the launch asks about and the ranks' Python has
        self._asked = False
        self._stopping = False
        self._settling = False
        self._starved = cgroups.memory_kills()  # those killed for lack of memory that are known of
        self._kill_timer: Timer | None = None
        self._on_stopped: list[Callable[[], object]] = []
        self.on_failed: Callable[[dict[str, Any]], object] = lambda _end: None
        self.on_done: Callable[[], object] = lambda: None
        self.ahead: dict[str, str] = {}  # what is put before the value of a variable of the ranks
        self.children: dict[int, Callable[[int], object]] = {}  # what to call when a process ends
        sink.on_drained = self._resume_all

    def start(self, generation: int, roll: launch.Roll) -> None:
        """Start every rank."""
        self._stopping = False
        self._all = []
        details = self._task.groups[self._place.group]["launch"]
        try:
            _write_files(launch.file_texts(self._task, self._place, roll))
        except OSError as error:
            self._cannot_begin("cannot write %s: %s" % (error.filename, error.strerror))
            return
        argv = launch.fill_argv(details["argv"], self._task, launch.file_paths(self._task, self._place))
        for local in range(launch.starts(self._task, self._place)):
            rank = Rank(self._place.first_rank + local)
            name = "error-%d-%d.json" % (rank.number, generation)
            rank.error_file = os.path.join(self._task.reports, name)
            env = launch.environment(
                dict(os.environ),
                self._task,
                self._place,
                local,
                generation,
                roll,
                rank.error_file,
                self._modules,
                self.ahead,
            )
            self._all.append(rank)
            shell.keep(self._task, rank.number, env)
            self._spawn(rank, argv, env, generation)
        self._sink.event(
            "worker-running",
            worker=self._place.worker,
            restart=generation,
            pids={str(rank.number): rank.child.pid for rank in self._all if rank.child},
        )
        if not self._all:  # its part is done; the worker stays in the gang until the run ends
            self._loop.call_later(0, self._done_without_ranks)

    def reap(self) -> None:
        """Collect every process that has ended: ranks, and orphans that came to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if pid in self.children:
                self.children.pop(pid)(code)

    def stop(self, grace: float, on_stopped: Callable[[], object]) -> None:
        """SIGTERM to every rank, SIGKILL to what is left after `grace` seconds; then call `on_stopped()`.

        Several callers may ask; all are called.
        """
        self._on_stopped.append(on_stopped)
        if not self._stopping:
            self._stopping = True
            for pid in list(self._ranks):
                send(pid, signal.SIGTERM)
            self._kill_timer = self._loop.call_later(grace, self._kill_all)
        elif grace == 0:
            self._loop.call_later(0, self._kill_all)  # a second stop, without time to save
        if not self._ranks:
            self._settle()

    def kill_now(self) -> None:
        """Kill everything at once; no callback follows."""
        self._stopping = True
        self._kill_all()

    def find_modules(self, then: Callable[[], object]) -> None:
        """Find out which of the modules that the launch asks about the ranks' Python has, once; then call
        `then()`.
        """
        details = self._task.groups[self._place.group]["launch"]
        wanted = details.get("if_importable")
        if not wanted or self._asked:
            then()
            return

        def answered(modules: set[str]) -> None:
            self._asked, self._modules = True, modules
            then()

        env = launch.with_ahead(dict(os.environ), self.ahead)
        python = interpreter.find_python(details["argv"][0], env.get("PATH", ""))
        interpreter.find_modules(self._loop, self.children, python, wanted, env, answered)

    # Starting

    def _done_without_ranks(self) -> None:
        if not self._stopping:
            self.on_done()

    def _cannot_begin(self, text: str) -> None:
        """Fail as the first rank would have failed."""
        rank = Rank(self._place.first_rank)
        rank.tail, rank.code = text.encode(), 126
        self._all = [rank]
        self._loop.call_later(0, partial(self._report, rank, text))

    def _spawn(self, rank: Rank, argv: list[str], env: dict[str, str], generation: int) -> None:
        log = RankLog(os.path.join(self._task.logs, "rank-%d.log" % rank.number))
        if log.trouble is not None:
            self._sink.event(
                "note", reason="the log of rank %d cannot be kept: %s" % (rank.number, log.trouble.strerror)
            )
        if generation:
            log.write(b"--- restart %d ---\n" % generation)
        try:
            rank.child = Child(
                self._loop,
                self.children,
                argv,
                env,
                partial(self._on_data, rank),
                partial(self._ended, rank),
                cwd=self._task.cwd,
                stdin=None if self._task.interactive else subprocess.DEVNULL,
                wide=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._loop.call_later(0, partial(self._never_started, rank, argv[0], error, log))
            return
        self._ranks[rank.child.pid] = rank
        rank.log = log
        hold = not self._task.interactive
        rank.streams = [Stream(self._sink, log, rank.number, letter, hold) for letter in "oe"]

    def _never_started(self, rank: Rank, program: str, error: Exception, log: RankLog) -> None:
        missing = isinstance(error, FileNotFoundError)
        reason = getattr(error, "strerror", None) or str(error)
        where = getattr(error, "filename", None)
        if missing and where not in (None, program):
            text = "cannot start in %s: %s" % (where, reason)
        else:
            text = "cannot start %s: %s" % (program, reason)
            if missing and "/" not in program and os.path.exists(os.path.join(self._task.cwd, program)):
                text += " on the PATH; it is in the working folder: ./%s" % program
        log.write(text.encode() + b"\n")
        log.close()
        rank.tail = text.encode()
        rank.code = 127 if missing else 126
        self._report(rank, text)

    # Reading

    def _on_data(self, rank: Rank, stream: int, data: bytes) -> None:
        rank.streams[stream - 1].feed(data)
        rank.tail = (rank.tail + data[-4096:])[-4096:]
        if self._sink.full:
            for each in self._ranks.values():
                if each.child is not None:
                    each.child.pause()

    def _resume_all(self) -> None:
        for rank in self._ranks.values():
            if rank.child is not None:
                rank.child.resume()

    # Ending

    def _ended(self, rank: Rank, code: int) -> None:
        assert rank.child is not None
        self._ranks.pop(rank.child.pid, None)
        rank.code = code
        for stream in rank.streams:  # after both are read: what is left of a line stands at the very end
            stream.close()
        errors = rank.streams[1].tail
        rank.streams = []
        if rank.log is not None:
            rank.log.close()
        self._report(rank, report.read_error_file(rank.error_file) or report.find_error(errors))

    def _report(self, rank: Rank, error: str | None) -> None:
        code = rank.code
        assert code is not None
        shell.forget(self._task, rank.number)
        end = report.make_end(
            rank.number,
            self._place.worker,
            code,
            error if code else None,
            report.last_lines(rank.tail),
            time.time(),
        )
        if code == -signal.SIGKILL and cgroups.memory_kills() > self._starved:
            self._starved += 1
            limit = cgroups.memory_limit()
            at = ", the limit is %s" % limit if limit else ""
            end["summary"] = "rank %d was killed by SIGKILL: out of memory%s" % (rank.number, at)
        self._sink.event(
            "rank-ended",
            worker=self._place.worker,
            rank=rank.number,
            exit_code=end["exit_code"],
            signal=end["signal"],
            reason=None if code == 0 or self._stopping else end["summary"],
        )
        if code != 0 and (not self._stopping or end["consequence"]):
            self.on_failed(end)  # also while it is being stopped, if it blames a peer that has gone
        if any(one.code is None for one in self._all):
            return
        if self._stopping or all(one.code == 0 for one in self._all):
            self._settle()

    def _kill_all(self) -> None:
        kill_below(os.getpid(), self.reap, [rank.child.pid for rank in self._all if rank.child])

    def _settle(self) -> None:
        """All ranks have ended: end what they left behind, then call `on_done`, or what `stop` was given."""
        if self._settling:
            return
        self._settling = True
        deadline = time.monotonic() + LEFTOVER_GRACE

        def look(first: bool = False) -> None:
            self.reap()
            left = descendants(os.getpid())
            if left and first:
                for pid in left:
                    send(pid, signal.SIGTERM)
            if left and time.monotonic() < deadline:
                self._loop.call_later(0.02, look)
                return
            self._kill_all()
            self._settled()

        look(first=True)

    def _settled(self) -> None:
        self._settling = False
        if self._kill_timer is not None:
            self._kill_timer.cancel()
            self._kill_timer = None
        if self._stopping:
            announcements, self._on_stopped = self._on_stopped, []
            for announce in announcements:
                announce()
        else:
            self.on_done()


def _write_files(texts: dict[str, str]) -> None:
    for path, text in texts.items():
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_atomically(path, text.encode())
