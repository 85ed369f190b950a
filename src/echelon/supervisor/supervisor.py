"""The agents of one run on this machine: started, kept alive, and ended, until nothing of the run is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echelon.agent import stopping
from echelon.agent import task as agent_task
from echelon.agent.gang.generation import MOST_SPARED
from echelon.agent.gang.silence import OwnTicks
from echelon.agent.gang.wire import Connection
from echelon.agent.loop import Loop, Timer
from echelon.agent.ranks.processes import (
    adopt_orphans,
    allow_descriptors,
    descendants,
    kill_below,
    send,
    state_of,
)
from echelon.agent.ranks.report import signal_name
from echelon.engines import durable
from echelon.engines.local import agents
from echelon.engines.local.folder import rundir
from echelon.engines.local.folder.rundir import RunDir
from echelon.errors import EchelonError
from echelon.supervisor import ends
from echelon.supervisor.ends import Event

if TYPE_CHECKING:
    from echelon.supervisor.seats import Seats

LOOK = 0.1  # seconds between two looks for a request to stop
LOOK_FOR_SEATS = 2.0  # the same for room for more workers, where their number changes


class _Worker:
    """One worker's agent, as the supervisor knows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.failures = 0
        self.told = 0  # of its failures, those agents that were told to leave
        self.process: agents.Agent | None = None
        self.control: Connection | None = None
        self.beats = False  # it has sent its first heartbeat
        self.silent = False  # it was killed because it did not respond


class Supervisor:
    """Looks after the agents of one run until it is over. Of a run whose number of workers changes, those of
    seats that are filled (`seats.py`).
    """

    def __init__(self, folder: RunDir, task: dict[str, Any], loop: Loop, terminal: int | None = None) -> None:
        """`terminal` leads to the user's terminal: for a single rank, whichever agent starts it."""
        self._terminal = terminal
        self._folder = folder
        self._task = task
        self._loop = loop
        if not task["interactive"]:  # a queued run keeps the terminal's input until its size is known
            with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is all that is needed
                os.dup2(nothing.fileno(), 0)
            if terminal is not None:
                os.close(terminal)
                self._terminal = None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        task["leader"]["port"] = self._listener.getsockname()[1]
        durable.replace_file(folder.task, json.dumps(task).encode(), sync=False)
        self._workers = [
            _Worker(number) for number in range(sum(group["workers"] for group in task["groups"]))
        ]
        self._filled: set[int] = set(task.get("filled", range(len(self._workers))))
        self._seats: Seats | None = None
        if "least" in task:
            from echelon.supervisor.seats import Seats  # most runs have a fixed size

            self._seats = Seats(folder)
        self._spared = 0  # restarts so far that do not count, as the leader has told
        allow_descriptors(len(self._workers))
        self._verdict: Event | None = None
        self._stop_reason: str | None = None
        self._stop_signal: str | None = None  # the hardest that was asked for
        self._stop_grace: float | None = None  # what the last such request gave
        self._kill: Timer | None = None  # when the time for a stop is over
        self._generations = 0  # that were started so far
        self._losses: dict[int, str] = {}  # worker -> how its agent ended
        self._missing: list[str] = []  # what workers could not write down
        self._ending = False  # every agent was sent SIGTERM
        self._ticks = OwnTicks(task["heartbeat"], time.monotonic())

    def run(self) -> Event:
        """Start the agents, and return how the run ended when nothing of it is left."""
        Path(self._task["output"]).mkdir(parents=True, exist_ok=True)
        self._loop.on_signal(signal.SIGCHLD, self._reap)
        self._loop.on_signal(signal.SIGTERM, lambda: self._end("the supervisor was told to end (SIGTERM)"))
        self._start_all()
        self._look_for_stop()
        self._look_for_silence()
        if self._seats is not None:
            self._loop.call_later(LOOK_FOR_SEATS, self._look_for_seats)
        self._loop.run()
        kill_below(os.getpid(), self._collect)
        return self._final()

    # Agents

    def _start_all(self) -> None:
        first = [self._workers[number] for number in sorted(self._filled)]
        if adopt_orphans():
            self._start_together(first)
        for worker in first:
            if worker.process is None:
                self._start(worker)

    def _start_together(self, workers: list[_Worker]) -> None:
        pairs = [socket.socketpair() for _ in workers]
        orders = [self._order(*pair) for pair in zip(workers, (end for _, end in pairs), strict=True)]
        started = agents.start_together(self._folder.task, orders)
        for number, (ours, theirs) in enumerate(pairs):
            theirs.close()
            if number < len(started):
                self._started(workers[number], started[number], ours)
            else:
                ours.close()  # should there be an agent of which we do not know, it ends by this

    def _start(self, worker: _Worker) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            agent = agents.start(self._folder.task, self._order(worker, theirs))
        self._started(worker, agent, ours)

    def _order(self, worker: _Worker, control: socket.socket) -> agents.Order:
        handed = [control.fileno()]
        told = self._spared if self._seats is not None else max(worker.told, self._spared)
        spared = min(told, self._generations)
        options = {
            "--worker": str(worker.number),
            "--control-fd": str(control.fileno()),
            "--failures": str(self._generations - spared),
            "--spared": str(spared),
        }
        if worker.number == 0:
            handed.append(self._listener.fileno())
            options["--listen-fd"] = str(self._listener.fileno())
        if self._terminal is not None:
            handed.append(self._terminal)
            options["--terminal-fd"] = str(self._terminal)
        environment = {}
        if any(self._task["gpus"]):
            # A worker without GPUs among others that have some must not see theirs.
            gpus = ",".join(self._task["gpus"][worker.number])
            environment = {"CUDA_VISIBLE_DEVICES": gpus, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        log = self._folder.worker_log(worker.number, worker.failures)
        return agents.Order(options=options, descriptors=handed, log=log, environment=environment)

    def _started(self, worker: _Worker, agent: agents.Agent, ours: socket.socket) -> None:
        worker.process = agent
        worker.control = Connection(self._loop, ours)
        worker.control.trust()
        worker.control.on_message = lambda _connection, message: self._on_message(worker, message)
        worker.beats = worker.silent = False
        self._note("worker-started", worker, pid=worker.process.pid, version=agent_task.VERSION)

    def _reap(self) -> None:
        ended = dict(self._collect())
        gone = [
            worker for worker in self._workers if worker.process is not None and worker.process.pid in ended
        ]
        codes = {}
        for worker in gone:
            assert worker.process is not None
            codes[worker.number] = ended[worker.process.pid]
            worker.process.ended(codes[worker.number])
            worker.process = None
        if any(codes.values()):
            self._end_orphans()
        for worker in gone:
            self._agent_ended(worker, codes[worker.number])
        if not any(worker.process for worker in self._workers):
            self._loop.stop()

    def _collect(self) -> list[tuple[int, int]]:
        """Take in every child that has ended, adopted ones too."""
        ended = []
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                ended.append((found[0], os.waitstatus_to_exitcode(found[1])))
        return ended

    def _agent_ended(self, worker: _Worker, code: int) -> None:
        if worker.control is not None:
            worker.control.read_rest()
            worker.control.close()
        over = self._verdict is not None or self._stop_reason is not None
        over = over or (self._ending and not worker.silent)  # a leader that is missed, and not yet killed
        if code in (0, agent_task.RUN_OVER, agent_task.NO_LEADER) or over:
            self._note("worker-ended", worker, exit_code=code)
            if worker.number == 0 or code == agent_task.NO_LEADER:
                self._end_agents()  # the others would wait for a leader that is gone
            return
        reason = self._losses[worker.number] = self._how(worker, code)
        self._note("worker-lost", worker, reason=reason)
        if self._seats is not None and worker.number != 0:
            worker.failures += 1  # the run continues without it, and its seat is filled again
            worker.told += code == agent_task.INTERRUPTED
            return
        spares = self._seats is not None or self._task["restarts"] > 0
        told = code == agent_task.INTERRUPTED and spares and worker.told < MOST_SPARED
        counting = self._workers if self._seats is None else self._workers[:1]
        counted = sum(each.failures - each.told for each in counting)
        if not self._ending and (told or counted < self._task["restarts"]):
            worker.failures += 1
            worker.told += told
            self._spared += told if self._seats is not None else 0
            self._start(worker)
        elif worker.number == 0:
            self._end_agents()  # without a leader no other agent decides that the run is over

    def _look_for_seats(self) -> None:
        """Fill seats that are empty, and give back those that another run needs; the leader does the rest.
        A seat whose agents end again and again stays empty.
        """
        assert self._seats is not None
        if self._ending or self._stop_reason is not None or self._verdict is not None:
            return
        self._loop.call_later(LOOK_FOR_SEATS, self._look_for_seats)
        there = {worker.number for worker in self._workers if worker.process is not None}
        try:
            change = self._seats.look(there)
        except EchelonError as error:  # such as a full disk: the run continues as it is
            self._append({"kind": "note", "at": rundir.now(), "reason": f"its size stays: {error}"})
            return
        if change.leave:
            whose = "s" * (len(change.leave) > 1)
            names = ", ".join(map(str, sorted(change.leave)))
            reason = f"worker{whose} {names} must leave: run {change.to!r} has a higher priority"
            self._append({"kind": "note", "at": rundir.now(), "reason": reason})
        for number in change.leave:
            process = self._workers[number].process
            if process is not None:
                send(process.pid, signal.SIGTERM)
        lasting = [each.number for each in self._workers if each.failures - each.told < MOST_SPARED]
        for number, gpus in self._seats.filled.items():
            worker = self._workers[number]
            if worker.process is None and number in lasting:
                self._task["gpus"][number] = gpus
                self._losses.pop(number, None)  # the run has survived it
                self._start(worker)
        if len(lasting) < self._task["least"]:
            self._end_agents()

    def _how(self, worker: _Worker, code: int) -> str:
        if worker.silent:
            return f"its agent did not respond for {self._task['lost_after']:g} s"
        if code < 0:
            return f"its agent was killed by {signal_name(-code)}"
        if code in (agent_task.INTERRUPTED, agent_task.LEFT_FOR_GOOD):
            return agent_task.TOLD_TO_LEAVE
        return f"its agent exited with code {code}"

    def _look_for_silence(self) -> None:
        """Kill an agent that is stopped or starved, so that it counts as lost. The others of its gang notice
        it too; of a single worker, or of a leader that may restart, only we do.
        """
        now = time.monotonic()
        still = self._ticks.stood_still(now)
        for worker in self._workers:
            if worker.process is None or worker.control is None or worker.silent:
                continue
            if still:
                worker.control.received_at = now
            if now - worker.control.received_at <= self._task["lost_after"]:
                continue
            state = state_of(worker.process.pid)
            # Another agent would wait for the disk, too; and on a machine that starts hundreds of runs at
            # once, one may take long to begin.
            if state == "D" or not (worker.beats or state == "T"):
                worker.control.received_at = now
                continue
            worker.silent = True
            self._losses[worker.number] = self._how(worker, 0)
            send(worker.process.pid, signal.SIGKILL)
        self._loop.call_later(self._task["heartbeat"], self._look_for_silence)

    def _end_orphans(self) -> None:
        """End what an agent that was killed has left: whatever is below us and neither an agent nor below
        one. An agent that ended well has left nothing.
        """
        agents = {worker.process.pid for worker in self._workers if worker.process is not None}
        for pid in descendants(os.getpid(), but=agents):
            send(pid, signal.SIGKILL)

    def _end_agents(self) -> None:
        self._ending = True
        for worker in self._workers:
            if worker.process is not None:
                send(worker.process.pid, signal.SIGTERM)
        self._loop.call_later(self._task["grace"] + 5.0, self._kill_agents)

    def _kill_agents(self) -> None:
        for worker in self._workers:
            if worker.process is not None:
                send(worker.process.pid, signal.SIGKILL)

    # Messages

    def _on_message(self, worker: _Worker, message: Event) -> None:
        """Write down an agent's event, and keep the verdict."""
        if message.get("say") == "beat":
            worker.beats = True
            return
        if message.get("kind") == "verdict":
            self._verdict = message
        if message.get("kind") == "worker-running":
            self._generations = max(self._generations, message["restart"] + 1)
        if message.get("kind") == "restarting":
            self._spared = max(self._spared, message.get("spared") or 0)
        if message.get("kind") == "note" and message.get("missing"):
            message = self._with_missing(worker, message)
        self._append(message)

    def _with_missing(self, worker: _Worker, message: Event) -> Event:
        """Keep what a worker could not write down, for the end of the run. Of a full disk one warning is
        enough, however many ranks find it so.
        """
        told = f"worker {worker.number}: {message.get('reason')}" if not self._missing else None
        missing = [f"worker {worker.number}: {each}" for each in message["missing"]]
        self._missing += [each for each in missing if each not in self._missing]
        return {**message, "worker": worker.number, "reason": told, "missing": missing}

    def _note(self, kind: str, worker: _Worker, **more: object) -> None:
        self._append({"kind": kind, "at": rundir.now(), "worker": worker.number, **more})

    def _append(self, event: Event) -> None:
        """Write down an event; a full disk must not end the run."""
        try:
            rundir.append_event(self._folder, event)
        except OSError:
            rundir.use_spare(self._folder, all_of_it=False)
            with contextlib.suppress(OSError):
                rundir.append_event(self._folder, event)

    def _look_for_stop(self) -> None:
        stop = rundir.read_json(self._folder.stop)
        if stop is not None:
            grace = stopping.seconds_in(stop.get("grace"))
            self._end(str(stop.get("reason")), stopping.asked_for(stop), grace)
        self._loop.call_later(LOOK, self._look_for_stop)

    def _end(self, reason: str, signal: str = stopping.TERMINATE, grace: float | None = None) -> None:
        """End the run: by the leader; if there is none, or it does not manage, by the supervisor itself. Of a
        stop that is under way a harder signal, or another grace, changes the time.
        """
        same = signal == self._stop_signal and grace not in (None, self._stop_grace)
        if not (same or stopping.is_harder(signal, self._stop_signal)):
            return
        self._stop_reason, self._stop_signal, self._stop_grace = reason, signal, grace
        leader = self._workers[0]
        if signal == stopping.KILL:
            self._kill_agents()
        elif leader.process is not None and leader.control is not None:
            leader.control.send({"say": "stop", "reason": reason, "signal": signal, "grace": grace})
            within = stopping.time_left(signal, self._task["grace"] if grace is None else grace)
            if self._kill is not None:
                self._kill.cancel()
            self._kill = self._loop.call_later(within + 10.0, self._kill_agents)
        else:
            self._end_agents()

    # The end

    def _final(self) -> Event:
        end = self._end_of_run()
        return {**end, "missing": self._missing} if self._missing else end

    def _end_of_run(self) -> Event:
        verdict = self._verdict
        if self._stop_reason is not None and (verdict is None or verdict.get("outcome") != "succeeded"):
            # The leader's own words have more: which ranks had to be killed.
            told = verdict.get("reason") if verdict is not None and verdict["outcome"] == "stopped" else None
            return ends.stopped(str(told or self._stop_reason))
        if verdict is not None:
            cause = verdict.get("cause")
            if cause and cause.get("kind") == "worker-lost" and cause.get("worker") in self._losses:
                # The leader knows only that a connection broke off; we know how the agent ended.
                cause = dict(cause, summary=ends.summary(cause["worker"], self._losses[cause["worker"]]))
            return {**verdict, "kind": "finished", "at": rundir.now(), "cause": cause}
        worker, reason = next(iter(self._losses.items()), (0, "its agent ended without a verdict"))
        return ends.lost(worker, reason)
