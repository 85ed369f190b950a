"""One run on this machine: wait until it fits, start its agents, keep them alive, write down how it ended.

A process of its own for every run (`python -m echelon.supervisor RUNDIR LOCK`), started by the local engine;
it plays the part that a Job controller plays in a cluster. It is the ancestor of everything the run starts,
adopts every orphan, and leaves nothing behind. While it holds the lock it was handed the run is alive; if it
is killed, the agents notice and end, and the next command writes down the loss."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from echelon.admission import Queued, admit
from echelon.agent import task as agent_task
from echelon.agent.loop import Loop
from echelon.agent.processes import adopt_orphans, descendants, kill_below, send
from echelon.agent.report import signal_name
from echelon.agent.wire import Connection
from echelon.engines.local import rundir
from echelon.engines.local.devices import visible_devices
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.rundir import RunDir, RunStore
from echelon.engines.local.task import write_task
from echelon.errors import EchelonError
from echelon.model.event import Event, Outcome, RootCause
from echelon.model.plan import Plan
from echelon.model.world import members

LOOK = 0.1  # seconds between two looks for a word to stop
QUEUE_LOOK = 1.0  # seconds between two tries of a run in line
GRACE = 10.0  # seconds that ranks get between SIGTERM and SIGKILL
_AGENT = Path(agent_task.__file__).with_name("__main__.py")


@dataclasses.dataclass(slots=True)
class _Worker:
    """One worker's agent, as the supervisor knows it."""

    number: int
    failures: int = 0
    process: subprocess.Popen[bytes] | None = None
    control: Connection | None = None


class Supervisor:
    """Looks after the agents of one run until it is over."""

    def __init__(self, folder: RunDir, plan: Plan, loop: Loop) -> None:
        self._folder = folder
        self._plan = plan
        self._loop = loop
        self._record = rundir.read_record(folder)
        self._workers = [_Worker(member.worker) for member in members(plan.world)]
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._verdict: dict[str, object] | None = None
        self._stop: dict[str, object] | None = None
        self._losses: dict[int, str] = {}  # worker -> how its agent ended
        self._killed = False
        self._ending = False  # every agent was told to leave

    def run(self) -> Event:
        """Start the agents, and return how the run ended when nothing of it is left."""
        port = int(self._listener.getsockname()[1])
        write_task(self._folder, self._record, self._plan, port, GRACE)
        Path(self._record.results).mkdir(parents=True, exist_ok=True)
        self._loop.on_signal(signal.SIGCHLD, self._reap)
        self._loop.on_signal(signal.SIGTERM, lambda: self._end("the supervisor was told to end (SIGTERM)"))
        for worker in self._workers:
            self._start(worker)
        self._look_for_stop()
        self._loop.run()
        kill_below(os.getpid(), self._collect)
        return self._final()

    # Agents

    def _start(self, worker: _Worker) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", str(_AGENT), str(self._folder.task)]
        command += [
            "--worker",
            str(worker.number),
            "--control-fd",
            str(theirs.fileno()),
            "--failures",
            str(worker.failures),
        ]
        handed = [theirs.fileno()]
        if worker.number == 0:
            handed.append(self._listener.fileno())
            command += ["--listen-fd", str(self._listener.fileno())]
        environment = dict(os.environ)
        gpus = self._plan.placement.seats[worker.number].gpus
        if gpus or any(seat.gpus for seat in self._plan.placement.seats):
            environment.update(visible_devices(gpus))
        with self._folder.worker_log(worker.number, worker.failures).open("ab") as log:
            worker.process = subprocess.Popen(
                command,
                env=environment,
                stdin=None,
                stdout=log,
                stderr=log,
                pass_fds=handed,
                start_new_session=True,
            )
        theirs.close()
        worker.control = Connection(self._loop, ours)
        worker.control.trust()
        worker.control.on_message = self._on_word
        self._tell(
            Event(kind="worker-started", at=rundir.now(), worker=worker.number, pid=worker.process.pid)
        )

    def _reap(self) -> None:
        for pid, status in self._collect():
            for worker in self._workers:
                if worker.process is not None and worker.process.pid == pid:
                    worker.process.returncode = status
                    self._agent_ended(worker, status)
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
        worker.process = None
        if worker.control is not None:
            worker.control.read_rest()
            worker.control.close()
        self._end_orphans()
        if code == 0:
            self._tell(Event(kind="worker-ended", at=rundir.now(), worker=worker.number, exit_code=0))
            return
        if code == agent_task.RUN_OVER or self._verdict is not None or self._stop is not None or self._ending:
            self._tell(Event(kind="worker-ended", at=rundir.now(), worker=worker.number, exit_code=code))
            if worker.number == 0:
                self._end_agents()
            return
        reason = (
            f"its agent was killed by {signal_name(-code)}"
            if code < 0
            else f"its agent exited with code {code}"
        )
        if code == agent_task.NO_LEADER:
            self._tell(Event(kind="worker-ended", at=rundir.now(), worker=worker.number, exit_code=code))
        else:
            self._losses[worker.number] = reason
            self._tell(Event(kind="worker-lost", at=rundir.now(), worker=worker.number, reason=reason))
        replaced = sum(each.failures for each in self._workers)
        if code != agent_task.NO_LEADER and replaced < self._plan.restarts:
            worker.failures += 1
            self._start(worker)
        elif worker.number == 0 or code == agent_task.NO_LEADER:
            self._end_agents()  # without a leader nobody else would say that it is over

    def _end_orphans(self) -> None:
        """End what an agent that was killed has left: whatever is a child of ours and not an agent."""
        agents = {worker.process.pid for worker in self._workers if worker.process is not None}
        tree: list[int] = []
        for agent in agents:
            tree += descendants(agent)
        for pid in set(descendants(os.getpid())) - agents - set(tree):
            send(pid, signal.SIGKILL)

    def _end_agents(self) -> None:
        self._ending = True
        for worker in self._workers:
            if worker.process is not None:
                send(worker.process.pid, signal.SIGTERM)
        self._loop.call_later(GRACE + 5.0, self._kill_agents)

    def _kill_agents(self) -> None:
        for worker in self._workers:
            if worker.process is not None:
                send(worker.process.pid, signal.SIGKILL)

    # Words

    def _on_word(self, _connection: Connection, message: dict[str, object]) -> None:
        """Pass on what an agent says of its worker, and keep the verdict."""
        if message.get("kind") == "verdict":
            self._verdict = message
        with contextlib.suppress(OSError):  # a full disk must not end the run
            rundir.append_raw_event(self._folder, msgspec.json.encode(message))

    def _tell(self, event: Event) -> None:
        with contextlib.suppress(OSError):
            rundir.append_event(self._folder, event)

    def _look_for_stop(self) -> None:
        word = read_stop(self._folder)
        if word is not None:
            if self._stop is None:
                self._end(str(word.get("reason")))
            if word.get("now") and not self._killed:
                self._killed = True
                self._kill_agents()
        self._loop.call_later(LOOK, self._look_for_stop)

    def _end(self, reason: str) -> None:
        """Somebody wants the end: the leader sees to it; if there is none, or it does not manage, we do."""
        if self._stop is not None:
            return
        self._stop = {"reason": reason}
        leader = self._workers[0]
        if leader.process is not None and leader.control is not None:
            leader.control.send({"say": "stop", "reason": reason})
            self._loop.call_later(GRACE + 10.0, self._kill_agents)
        else:
            self._end_agents()

    # The end

    def _final(self) -> Event:
        verdict, at = self._verdict, rundir.now()
        if self._stop is not None and (verdict is None or verdict.get("outcome") != "succeeded"):
            return Event(
                kind="finished", at=at, outcome="stopped", exit_code=143, reason=str(self._stop["reason"])
            )
        if verdict is not None:
            end = msgspec.convert({**verdict, "kind": "finished", "at": at}, Event)
            cause = end.cause
            if cause is not None and cause.rank is None and cause.worker in self._losses:
                # The leader heard only that a connection broke off; we know how the agent ended.
                summary = f"worker {cause.worker} was lost: {self._losses[cause.worker]}"
                return dataclasses.replace(end, cause=dataclasses.replace(cause, summary=summary))
            return end
        worker, reason = next(iter(self._losses.items()), (0, "its agent ended without a verdict"))
        return finished(
            "failed", RootCause(summary=f"worker {worker} was lost: {reason}", worker=worker, exit_code=117)
        )


def finished(outcome: Outcome, cause: RootCause) -> Event:
    """The end of a run that has a cause."""
    return Event(kind="finished", at=rundir.now(), outcome=outcome, exit_code=cause.exit_code, cause=cause)


def read_stop(folder: RunDir) -> dict[str, object] | None:
    """The word to stop, if there is one."""
    try:
        return msgspec.json.decode(folder.stop.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def wait_in_line(folder: RunDir, engine: LocalEngine) -> Plan | Event:
    """Try to get a place until there is one, or somebody says stop."""
    ref = rundir.read_record(folder).ref
    while True:
        plan = rundir.read_record(folder).plan
        if plan is not None:
            return plan
        word = read_stop(folder)
        if word is not None:
            return Event(
                kind="finished",
                at=rundir.now(),
                outcome="stopped",
                exit_code=143,
                reason=str(word.get("reason")),
            )
        try:
            outcome = admit(ref, engine)
        except EchelonError as error:
            return finished("failed", RootCause(summary=str(error), exit_code=error.exit_code))
        if isinstance(outcome, Queued):
            time.sleep(QUEUE_LOOK)


def main() -> None:
    """Look after the run in the folder given, holding the lock given."""
    folder, lock = RunDir(Path(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(lock, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    adopt_orphans()
    rundir.write_atomically(folder.supervisor, msgspec.json.encode({"pid": os.getpid(), "at": rundir.now()}))
    engine = LocalEngine(RunStore(folder.path.parent.parent).home)
    try:
        outcome = wait_in_line(folder, engine)
        end = outcome if isinstance(outcome, Event) else Supervisor(folder, outcome, Loop()).run()
    except OSError as error:
        kill_below(os.getpid(), lambda: None)
        end = finished(
            "failed", RootCause(summary=str(rundir.state_trouble(error, folder.path)), exit_code=115)
        )
    rundir.write_final(folder, end)


if __name__ == "__main__":
    main()
