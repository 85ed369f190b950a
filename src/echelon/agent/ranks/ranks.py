"""The ranks of one worker in one generation: started, read from, reaped, stopped, with nothing left of them.

A rank is the first process of its own session; what it leaves behind when it ends (what ran below a shell,
data loaders, daemons) is ended too (`leftovers.py`). `launched.py` has the ranks of a launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from functools import partial

from echelon.agent import stopping
from echelon.agent.loop import Loop, Timer
from echelon.agent.output.sink import RankLog, Sink
from echelon.agent.ranks import interpreter
from echelon.agent.ranks.child import Child
from echelon.agent.ranks.ladder import Ladder
from echelon.agent.ranks.launching import launch
from echelon.agent.ranks.launching.roll import Roll
from echelon.agent.ranks.leftovers import Leftovers
from echelon.agent.ranks.processes import kill_below, session_of
from echelon.agent.ranks.rank import Rank, describe_no_start, find_start_hint, open_log
from echelon.agent.task import Place, Task, write_atomically

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

    from echelon.agent.ranks.cgroups import MemoryKills
    from echelon.agent.ranks.reports import Reports
    from echelon.agent.ranks.terminal import RankTerminal

_LOOK = 0.1  # seconds between two looks at what ranks have left


class Ranks:
    """All ranks of a worker.

    `on_failed(end)` is called for each that fails, `on_well(rank, seconds)` for each that ends well by
    itself, `on_done()` once when all have.
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
        self._notice: dict[str, object] = {}  # why they are stopped, for scripts that look at a file
        self._ladder = Ladder(loop, self._to_signal, self._kill_late)
        self._leftovers = Leftovers(self._ladder)
        self._next_look: Timer | None = None
        self._settling = self._looking = False
        self._kills: MemoryKills | None = None  # since the first start
        self._on_stopped: list[Callable[[], object]] = []
        self.on_failed: Callable[[dict[str, Any]], object] = lambda _end: None
        self.on_well: Callable[[int, float], object] = lambda _rank, _seconds: None
        self.on_done: Callable[[], object] = lambda: None
        self.on_interrupted: Callable[[], object] = lambda: None  # Ctrl-C at its terminal ended the rank
        self.terminal: RankTerminal | None = None  # of a single rank that the user sits before
        self.printed = 0.0  # when a rank last wrote anything, as time.monotonic() counts
        self.places: dict[str, str] = {}  # where ranks were that were asked before they were stopped
        self.killed: dict[str, float] = {}  # ranks that needed SIGKILL, and after how many seconds
        self.left: dict[str, dict[str, Any]] = {}  # what ranks told before, or left at, their end
        self._began = time.monotonic()
        self.ahead: dict[str, str] = {}  # what is put before the value of a variable of the ranks
        self.children: dict[int, Callable[[int], object]] = {}  # what to call when a process ends
        self.commands: set[int] = set()  # processes that run here for a launcher
        self.beside: set[int] = set()  # processes of the agent that outlive the ranks
        self.on_stopping: Callable[[], object] = lambda: None
        self._generation = 0
        self._reports: Reports | None = None  # since the first start
        self._env: dict[str, str] | None = None  # of the worker, while a launcher may start ranks on it
        sink.on_drained = self._resume_all

    def start(self, generation: int, roll: Roll, place: Place) -> None:
        """Start every rank of the worker that stands there in this generation."""
        self._task, self._place = roll.task, place
        self._stopping, self._generation, self._notice = False, generation, {}
        self._ladder.forget()
        self._leftovers.forget()
        self._all, self.places, self.killed, self.left = [], {}, {}, {}
        self._began = time.monotonic()
        details = self._task.groups[self._place.group]["launch"]
        try:
            launch.write_files(self._task, self._place, roll)
        except OSError as error:
            self._cannot_begin("cannot write %s: %s" % (error.filename, error.strerror))
            return
        argv = launch.fill_argv(details["argv"], self._task, launch.file_paths(self._task, self._place))
        leads = details.get("per") == "leader"
        if leads:
            self._env = self._environment(0, roll, "")
        environments = []
        for local in range(launch.starts(self._task, self._place)):
            rank = Rank(self._place.first_rank + local, leads, leads and launch.takes_ranks_in(self._task))
            rank.error_file = os.path.join(self._task.reports, "error-%d-%d.json" % (rank.number, generation))
            env = self._environment(local, roll, rank.error_file)
            if leads:
                env["PATH"] = launch.launcher_path(env.get("PATH", os.defpath), argv, self._task)
                self._check_launcher(env["PATH"], roll)
            else:
                env.update(self._report_variables(rank.number, env))
            self._all.append(rank)
            self._spawn(rank, argv, env)
            environments.append(env)
        self._announce()
        self._note_start(environments)
        if not self._all and not launch.serves(self._task, self._place):
            # It stays in the gang until the run ends.
            self._loop.call_later(0, lambda: self._stopping or self.on_done())

    def ended_by_themselves(self) -> bool:
        """Whether no signal has ended a rank of this generation, nor what ran below a shell."""
        return not self.killed and all(rank.code is not None and 0 <= rank.code < 128 for rank in self._all)

    def pids(self) -> dict[int, int]:
        """The number of each rank that runs, by its process."""
        return {pid: rank.number for pid, rank in self._ranks.items() if not rank.apart}

    def reap(self) -> bool:
        """Collect every process that has ended: ranks, and orphans that came to us. Whether there was any."""
        some = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            some = True
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self._leftovers.ended(pid, code)
            if pid in self.children:
                self.children.pop(pid)(code)
        if some and (self._stopping or self._settling):
            self._look_soon(0.0)
        return some

    def stop(
        self,
        name: str,
        on_stopped: Callable[[], object],
        ask_first: str = "",
        within: float | None = None,
        notice: dict[str, object] | None = None,
    ) -> None:
        """Send every rank that signal, and the harder ones to what is left: SIGKILL after `within` seconds or
        else by the task's grace. Then call `on_stopped()`. With `ask_first` Python ranks write their stacks
        before; if that is "all", of every rank what can be found out is written; if it is "look", they are
        looked at without a trace in their output.

        Several callers may ask; all are called, the hardest signal counts, the last `within`, and the first
        `notice`, which is in the file that `ECHELON_NOTICE` names when the signal comes.
        """
        self._on_stopped.append(on_stopped)
        self._notice = self._notice or notice or {}
        seconds = stopping.time_left(name, self._task.grace) if within is None else within
        if ask_first and not self._stopping:
            self._stopping = True
            then = partial(self._stop_after_answers, name, seconds)
            from echelon.agent.ranks.stuck import looking, stacks

            running = {
                rank.number: ([pid, *looking.pythons(rank.looks)][-1], rank.streams[-1])
                for pid, rank in self._ranks.items()
                if not rank.launcher
            }
            if ask_first == "look":
                self.look("stacks", partial(self._stop_after_look, name, seconds))
            elif ask_first == "all":
                from echelon.agent.ranks.stuck import hanging

                env = launch.with_ahead(dict(os.environ), self.ahead)
                hanging.ask(self._loop, self.children, running, env, self._python(), then)
            else:
                stacks.ask(self._loop, running, then)
        else:
            self._stopping = True
            if stopping.is_harder(name, self._ladder.sent):
                self._stop_with(name, seconds)
            elif within is not None and name == self._ladder.sent:
                self._write_notice(name, within)
                self._ladder.move(time.monotonic() + within)
        self.on_stopping()
        self._settle_if_over()

    def look(self, what: str, then: Callable[[dict[str, dict[str, Any]]], object]) -> None:
        """Call `then()` with what can be told of where the ranks are, without a trace in their output: with
        their "stacks", by their "recorders" alone, or only the "times" that those tell.
        """
        from echelon.agent.ranks.stuck import looking, recorder

        running = {rank.number: (pid, rank.looks) for pid, rank in self._ranks.items() if not rank.launcher}
        read = recorder.read_times if what == "times" else recorder.read
        looking.look(self._loop, running, then, what != "stacks", read)

    def printed_at(self) -> dict[int | None, float]:
        """When each rank last wrote anything, as time.monotonic() counts."""
        return {rank.number: rank.printed for rank in self._ranks.values() if not rank.launcher}

    def waits_for_keys(self) -> bool:
        """Whether the rank reads what the user types at its terminal."""
        return self.terminal is not None and any(map(self.terminal.is_read_by, self._ranks))

    def kill_now(self) -> None:
        """Kill everything at once; no callback follows."""
        self.beside.clear()
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

    def _environment(self, local: int, roll: Roll, error_file: str) -> dict[str, str]:
        return launch.environment(
            dict(os.environ),
            self._task,
            self._place,
            local,
            self._generation,
            roll,
            error_file,
            self._modules,
            self.ahead,
        )

    def _report_variables(self, number: int, env: dict[str, str]) -> dict[str, str]:
        """The variables of Kubeflow's by which a rank reports its progress, where its controller, or the
        user, has not set them.
        """
        from echelon.agent.ranks import reports

        if reports.URL in env:
            return {}
        try:
            self._reports = self._reports or reports.Reports(
                self._loop, self._task.reports, self._place.worker, self._on_report
            )
        except OSError:  # no descriptor, or no room for a token: ranks do without
            return {}
        return self._reports.variables(number)

    def _on_report(self, number: int, line: str) -> None:
        for rank in self._ranks.values():
            if rank.number == number and rank.streams:
                self.printed = time.monotonic()
                rank.streams[0].show(line)

    def _announce(self) -> None:
        ranks = self._hosted() or self._all
        self._sink.event(
            "worker-running",
            worker=self._place.worker,
            restart=self._generation,
            pids={str(rank.number): rank.child.pid for rank in ranks if rank.child},
        )

    def _note_start(self, environments: list[dict[str, str]]) -> None:
        """Do what has time until the ranks run, and takes modules of its own."""
        from echelon.agent.ranks import cgroups, shell

        self._kills = self._kills or cgroups.MemoryKills()
        for rank, env in zip(self._all, environments):
            shell.keep(self._task, rank.number, env)

    def _cannot_begin(self, text: str) -> None:
        """Fail as the first rank would have failed."""
        rank = Rank(self._place.first_rank)
        rank.tail, rank.code = text.encode(), 126
        self._all = [rank]
        self._loop.call_later(0, partial(self._report, rank, text))

    def _spawn(self, rank: Rank, argv: list[str], env: dict[str, str]) -> None:
        elastic = self._task.elastic
        log = open_log(rank, self._task.logs, self._sink, 0 if elastic else self._generation)
        if not rank.launcher:  # another program may start Python, as a shell does
            env = launch.with_ahead(dict(env), {"PYTHONPATH": launch.STARTUP})
            env[launch.LOOKS] = rank.looks = launch.looks_of(self._task, rank.number, self._generation)
        opened = self._open_terminal(rank)
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
                wide=opened is None,
                terminal=opened,
                shared=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._loop.call_later(0, partial(self._never_started, rank, argv[0], error, log))
            return
        self._ranks[rank.child.pid] = rank
        rank.connect(self._sink, log, not self._task.interactive, "oe" if opened is None else "o")
        if elastic and self._generation:  # the lines before are of another size, perhaps of another worker
            told = (self._generation, rank.number, self._task.ranks(), self._place.worker)
            rank.streams[0].feed(b"--- restart %d: rank %d of %d, on worker %d ---\n" % told)

    def _open_terminal(self, rank: Rank) -> tuple[int, int] | None:
        if self.terminal is None:
            return None
        from echelon.agent.ranks.terminal import PlainText

        rank.plain = PlainText()
        self.terminal.on_drained = self._resume_all
        try:
            return self.terminal.open()
        except OSError as error:  # the system has no pseudo-terminal left; pipes will do
            self._sink.event("note", reason="rank %d gets no terminal: %s" % (rank.number, error.strerror))
            self.terminal = rank.plain = None
            return None

    def _never_started(self, rank: Rank, program: str, error: Exception, log: RankLog) -> None:
        if self.terminal is not None:
            self.terminal.close()
        text = describe_no_start(program, error, self._task.cwd)
        log.write(text.encode() + b"\n")
        log.close()
        rank.tail = text.encode()
        rank.code = 127 if isinstance(error, FileNotFoundError) else 126
        in_pod = self._task.control is not None
        self._report(rank, text, find_start_hint(program, error, self._task.cwd, in_pod))

    # Reading

    def _on_data(self, rank: Rank, stream: int, data: bytes) -> None:
        full = self._sink.full
        self.printed = rank.printed = time.monotonic()
        if self.terminal is not None and rank.plain is not None:
            self.terminal.show(data)
            full = full or self.terminal.full
            data = rank.plain.feed(data)
        rank.streams[stream - 1].feed(data)
        rank.tail = (rank.tail + data[-4096:])[-4096:]
        if full:
            for each in self._all:
                if each.child is not None:
                    each.child.pause()

    def _resume_all(self) -> None:
        for rank in self._all:
            if rank.child is not None:
                rank.child.resume()

    # Ending

    def _ended(self, rank: Rank, code: int) -> None:
        assert rank.child is not None
        self._ranks.pop(rank.child.pid, None)
        rank.code = code
        by_itself = code and not self._stopping and rank.plain is not None
        if by_itself and self.terminal is not None and self.terminal.was_interrupted(code, self._task.grace):
            self.on_interrupted()
        errors = rank.take_errors()
        if not rank.child.open:
            self._end_output(rank)
        from echelon.agent.ranks import report

        rank.place = report.find_crash(errors) if code < 0 else None
        self._report(rank, report.read_error_file(rank.error_file) or report.find_error(errors))

    def _end_output(self, rank: Rank) -> None:
        """No process writes for this rank any more, or those that did are to be read no longer."""
        if rank.child is not None:
            rank.child.close()
        if self.terminal is not None and rank.plain is not None and rank.streams:
            self.terminal.close()
            rank.streams[0].feed(rank.plain.rest())
        rank.close_streams()

    def _report(self, rank: Rank, error: str | None, hint: str | None = None) -> None:
        code = rank.code
        assert code is not None
        from echelon.agent.ranks import report, shell

        shell.forget(self._task, rank.number)
        if rank.looks:
            self._take_what_it_left(rank)

        if code and hint is None:
            hint = report.find_hint(error, self._python(), self._task.control is not None)
        end = report.make_end(
            rank.number,
            self._place.worker,
            code,
            error if code else None,
            report.last_lines(rank.tail),
            time.time(),
            hint,
            rank.place,
        )
        if rank.launcher:
            report.make_launchers(end, code, rank.apart)
        elif rank in self._hosted():
            report.make_hosted(end, rank.tail, rank.child is not None and rank.child.cut_off)
        if code == -signal.SIGKILL and self._kills is not None and self._kills.take_one():
            end["summary"] = "rank %d was killed by SIGKILL: %s" % (rank.number, self._kills.describe())
        self._sink.event(
            "rank-ended",
            worker=self._place.worker,
            rank=end["rank"],
            exit_code=end["exit_code"],
            signal=end["signal"],
            reason=None if code == 0 or self._stopping else end["summary"],
            **({"told": True} if self._stopping else {}),
        )
        if code != 0 and (not self._stopping or end["consequence"]):
            self.on_failed(end)  # also while it is being stopped, if it blames a peer that has gone
        if code == 0 and not self._stopping:
            if rank.launcher:
                self._launcher_ended_well()
            else:
                self.on_well(rank.number, time.monotonic() - self._began)
        self._settle_if_over()

    def _take_what_it_left(self, rank: Rank) -> None:
        from echelon.agent.ranks.stuck import dumps, looking

        if rank.code:
            left = dumps.read(rank.looks, rank.number)
            self.left.update((str(number), look) for number, look in left.items())
            dumps.keep(rank.looks, self._task.logs)
        looking.forget(rank.looks)

    def _check_launcher(self, path: str, roll: Roll) -> None:
        """Say what is known to go wrong with the launcher on this PATH."""

    def _launcher_ended_well(self) -> None:
        pass

    def _hosted(self) -> list[Rank]:
        """The ranks that a launcher has started here."""
        return []

    def _python(self) -> str:
        """The Python that ran the ranks, as a path where it is found."""
        path = os.environ.get("PATH", "")
        python = interpreter.find_python(self._task.groups[self._place.group]["launch"]["argv"][0], path)
        from shutil import which

        return which(python, path=path) or python

    def _stop_after_look(self, name: str, seconds: float, looks: dict[str, dict[str, Any]]) -> None:
        if self._stopping:  # what a rank has left that ended meanwhile tells more
            self.left = dict(looks, **self.left)
        self._stop_after_answers(name, seconds, {})

    def _stop_after_answers(self, name: str, seconds: float, places: dict[str, str]) -> None:
        if self._stopping:  # else they have ended, and others were started
            self.places = places
            if self._ranks and self._ladder.sent is None:
                self._stop_with(name, seconds)

    def _stop_with(self, name: str, seconds: float) -> None:
        self._write_notice(name, seconds)
        self._ladder.climb(name, time.monotonic() + seconds)
        self._look_soon(0.0)  # a rank that failed may have left processes before

    def _write_notice(self, name: str, seconds: float) -> None:
        if name == stopping.KILL or not self._notice:
            return
        told = dict(self._notice, deadline=round(time.time() + seconds, 3))
        try:
            write_atomically(launch.notice_of(self._task, self._generation), json.dumps(told).encode())
        except OSError as error:
            reason = "ECHELON_NOTICE cannot be written: %s" % error.strerror
            self._sink.event("note", worker=self._place.worker, reason=reason)

    def _to_signal(self) -> list[int]:
        """A launcher ends when its ranks do, and would leave them less time than the task does."""
        return [pid for pid, rank in self._ranks.items() if not rank.launcher] or list(self._ranks)

    def _settle_if_over(self) -> None:
        """Settle when nothing is left to wait for: all ranks have ended well, or have ended while they were
        stopped, and with them what runs here for a launcher.
        """
        serves = launch.serves(self._task, self._place)
        over = not serves and all(one.code == 0 for one in self._all)
        if over or (self._stopping and not self._ranks and not self.commands):
            self._settle()

    def _kill_late(self, seconds: float | None) -> None:
        """The time of a stop is over, after so many seconds; or it was to kill at once."""
        if seconds is not None:
            left = [rank.number for rank in self._ranks.values() if not rank.apart]
            sessions = {session_of(pid) for pid in self._leftovers.find(self._known())}
            left += [rank.number for rank in self._all if rank.child and rank.child.pid in sessions]
            self.killed = {str(number): seconds for number in left or [self._place.first_rank]}
            from echelon.agent.ranks.report import describe_killed

            self._sink.event("note", worker=self._place.worker, reason=describe_killed(self.killed))
        self._kill_all()

    def _kill_all(self) -> None:
        kill_below(os.getpid(), self.reap, self._groups(), but=self.beside)

    def _groups(self) -> list[int]:
        return [rank.child.pid for rank in self._all if rank.child]

    def _settle(self) -> None:
        """All ranks have ended: end what they left behind, then call `on_done`, or what `stop` was given."""
        if not self._settling:
            self._settling = True
            self._look()

    def _known(self) -> set[int]:
        return {*self.children, *self._ranks, *self.commands}

    def _look_soon(self, seconds: float) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """See what ended ranks have left, and end it; with the last of it the generation is over."""
        if self._looking or not (self._settling or self._stopping):
            return
        self._looking = True
        found = self._leftovers.find(self._known())
        while self.reap():  # until it is known of all that were found how their parents ended
            found = self._leftovers.find(self._known())
        self._looking = False
        if found:
            if self._ladder.sent is None:
                if not self._settling:
                    return  # ranks are asked where they are before they get a signal
                self._ladder.climb(stopping.TERMINATE, time.monotonic() + self._task.grace)
            self._leftovers.tell(found)
            self._look_soon(_LOOK)
        elif self._settling:
            self._kill_all()  # where the tree of processes is not shown, nothing else ends what is left
            self._settled()

    def _settled(self) -> None:
        self._settling, self._env = False, None
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        self._ladder.cancel()
        for rank in self._all:
            self._end_output(rank)
        if self._stopping:
            announcements, self._on_stopped = self._on_stopped, []
            for announce in announcements:
                announce()
        else:
            self.on_done()
