"""One worker from its start to its end.

On this machine a supervisor starts the agents and receives their events over the control descriptor; an agent
ends when the supervisor does. In a pod there is no supervisor: members forward their events to the leader,
whose log is the run's event log; orders arrive over a socket (`orders.py`); and when the run is over,
results in the pod are held until the client has fetched them (`ending/finish.py`)."""

from __future__ import annotations

import json
import os
import signal
import socket
import time

from echelon.agent import later
from echelon.agent.address import own_address
from echelon.agent.gang import giving_way
from echelon.agent.gang.member import Member
from echelon.agent.gang.wire import Connection
from echelon.agent.loop import Loop
from echelon.agent.output.sink import Sink
from echelon.agent.output.state_line import REPEAT, History
from echelon.agent.ranks.launching import environment
from echelon.agent.ranks.processes import adopt_orphans, allow_descriptors
from echelon.agent.setup.prepare import Setup
from echelon.agent.task import GAVE_WAY, INTERRUPTED, NO_LEADER, RANK_FAILED, Task, write_atomically

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from echelon.agent.ending.finish import Shutdown
    from echelon.agent.gang.join import LeaderConnection
    from echelon.agent.gang.leader import Leader
    from echelon.agent.orders import Orders
    from echelon.agent.remote.worker import RemoteWorker


class Agent:
    """Connects the parts of one worker. `failures` counts the lost agents that this one replaces, `spared`
    those of them that the cluster took away: they count against no restart. Where a gang may give way, they
    may have left before anything ran: then only the other workers know of generations before.
    """

    def __init__(
        self,
        task: Task,
        worker: int,
        *,
        listen_fd: int | None = None,
        control_fd: int | None = None,
        terminal_fd: int | None = None,
        failures: int = 0,
        spared: int = 0,
        beats: int | None = None,
    ) -> None:
        self._task = task
        self._beats = beats  # the descriptor for heartbeats to the process that watches over this one
        self._worker = worker
        self._in_pod = control_fd is None
        self._patience = giving_way.time_to_wait(task.give_way, spared, _draw()) if self._in_pod else None
        replaced = failures
        if task.give_way:
            failures, spared = failures - spared, 0
        self._failures, self._told = failures, spared
        self._cause: dict[str, object] | None = None  # why this worker will never be ready
        self._loop = Loop()
        self._sink = Sink(self._loop)
        self._history = History()
        place = task.places[worker]
        # An agent that replaces the Nth agent of a worker knows that N generations were tried. In a pod that
        # agent may have been lost before the first: there only the leader, which has no other source, assumes
        # it.
        guess = failures - 1 if worker == 0 or not self._in_pod else -1
        self._member = Member(self._loop, task, place, self._sink, last_started=guess)
        self._member.spared = spared if worker == 0 or task.elastic else 0
        self._setup = Setup(
            self._loop, task, place, self._sink, self._member.ranks, first=worker == 0 and replaced == 0
        )
        if task.checkpoints and self._in_pod:
            from echelon.agent.gang.carrier_link import CarrierLink  # most runs have none

            self._member.checkpoints = CarrierLink(
                self._loop,
                task,
                worker,
                self._member.ranks,
                self._sink,
                self._tell_leader,
            )
        self._ending: Shutdown | None = None  # see `_shutdown()`
        self._member.on_finish = self._on_finish
        self._member.when_set_up = self._setup.when_done
        self._setup.on_failed = self._on_unfit
        self._to_leader: LeaderConnection | None = None
        self._leader: Leader | None = None
        self._control: Connection | None = None
        self._orders: Orders | None = None
        adopt_orphans()
        self._loop.on_signal(signal.SIGCHLD, self._member.ranks.reap)
        self._loop.on_signal(signal.SIGTERM, self._on_sigterm)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which the ranks would inherit
        if control_fd is not None:
            self._control = Connection(self._loop, socket.socket(fileno=control_fd))
            self._control.trust()
            self._control.on_message = lambda _connection, message: self._stop_run(message)
            self._control.on_closed = self._on_abandoned
            self._sink.on_event = self._control.send
        else:
            os.makedirs(task.reports, mode=0o700, exist_ok=True)
            environment.complete(os.environ, task.reports)
        if terminal_fd is not None:
            self._connect_terminal(terminal_fd)
        if task.control is not None:
            self._take_orders(task.control)
        if worker == 0:
            self._lead(listen_fd)
        else:
            self._follow()
        self._remote: RemoteWorker | None = None
        if task.groups[place.group]["launch"].get("per") == "leader":
            self._serve_launcher()

    def run(self) -> int:
        """Run the worker to its end, and return the exit code."""
        self._loop.call_later(0, self._setup.begin)
        self._loop.call_later(later.SOON, later.import_rest)
        if self._control is not None or self._beats is not None:
            self._loop.call_later(0, self._beat)  # not before: unpacking code may take long
        self._loop.run()
        if self._beats is not None:
            os.close(self._beats)  # what is left to do may take longer than a heartbeat
        self._member.ranks.kill_now()
        if self._member.ranks.terminal is not None:
            self._member.ranks.terminal.drain(1.0)
        self._sink.flush()
        return self._shutdown().code

    # Start

    def _lead(self, listen_fd: int | None) -> None:
        # Imported here: in a zip file every module is compiled when it is imported.
        from echelon.agent.gang.leader import Leader

        address = own_address()
        if listen_fd is not None:
            listener = socket.socket(fileno=listen_fd)
        else:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = socket.create_server(("", self._task.leader[1]), family=family, backlog=4096)
        allow_descriptors(len(self._task.places))
        leader = Leader(
            self._loop,
            self._task,
            listener,
            self._sink,
            self._in_pod,
            address,
            self._failures,
            self._patience,
        )
        self._leader = leader
        if self._in_pod:
            self._sink.on_event = self._note
            leader.on_keeper = self._tell_keeper_soon
            if self._task.repeat_state:
                self._sink.remind(lambda: self._history.repeat(self._sink), REPEAT)
        self._member.send = lambda message: self._loop.call_later(0, lambda: leader.receive(0, message))
        leader.on_over = self._on_verdict
        leader.on_code_wanted = self._setup.hand_on_code
        self._setup.send_to = leader.send
        self._loop.call_later(0, lambda: leader.attach_own(self._member, self._member.last_started))

    def _follow(self) -> None:
        from echelon.agent.gang.join import LeaderConnection

        place = self._task.places[self._worker]
        self._to_leader = LeaderConnection(
            self._loop, self._task, place, self._member, self._failures, self._told
        )
        if self._orders is not None:
            self._orders.to_leader = self._to_leader
        self._to_leader.on_welcome = self._on_welcome
        self._setup.send = self._to_leader.send
        self._to_leader.on_given_up = self._on_no_leader
        self._to_leader.on_lost = self._on_leader_lost
        if self._in_pod:
            self._sink.on_event = self._to_leader.forward
        if self._patience is not None:
            self._to_leader.gives_way_after(self._patience, self._leave_together)

    def _serve_launcher(self) -> None:
        from echelon.agent.remote.worker import RemoteWorker

        place = self._task.places[self._worker]
        try:
            self._remote = RemoteWorker(self._loop, self._task, place, self._member, self._leader)
        except OSError as error:
            reason = "worker %d cannot serve a launcher: %s" % (self._worker, error.strerror or error)
            self._sink.event("note", worker=self._worker, reason=reason)

    def _tell_leader(self, message: dict[str, object]) -> None:
        self._member.send(message)

    def _connect_terminal(self, descriptor: int) -> None:
        from echelon.agent.ranks.terminal import RankTerminal

        ranks = self._member.ranks
        ranks.terminal = RankTerminal(self._loop, descriptor)
        ranks.on_interrupted = lambda: self._stop_run({"say": "stop", "reason": "Ctrl-C at its terminal"})

    def _shutdown(self) -> Shutdown:
        """How this worker ends. It is made when an end or an order comes: the ranks do not wait for it."""
        if self._ending is None:
            from echelon.agent.ending.finish import Shutdown

            ending = self._ending = Shutdown(
                self._loop, self._task, self._worker, self._member, self._sink, self._history, self._in_pod
            )
            ending.on_gone = self._close_connections
            ending.leader = self._leader
            if self._leader is not None:
                self._leader.on_alone = ending.look
            if self._to_leader is not None:
                ending.is_led = lambda: self._to_leader is not None and self._to_leader.connected
        return self._ending

    def _note(self, event: dict[str, object]) -> None:
        """Keep an event that still matters, and have the keeper know of it once the run is over."""
        if event.get("kind") == "note" and event.get("missing") and self._leader is not None:
            event.update(self._leader.gang.lacking(event))
        self._history.note(event)
        self._tell_keeper_soon()

    def _tell_keeper_soon(self) -> None:
        if self._leader is not None and self._ending is not None and self._ending.final is not None:
            self._leader.keeper.tell_soon(self._history.events)

    def _take_orders(self, path: str) -> None:
        from echelon.agent.orders import Orders

        self._orders = Orders(self._loop, self._worker, self._shutdown)
        try:
            self._orders.listen(path)
        except OSError as error:
            reason = "worker %d takes no orders: %s: %s" % (self._worker, path, error.strerror or error)
            self._sink.event("note", worker=self._worker, reason=reason)

    def _on_unfit(self, cause: dict[str, object]) -> None:
        self._cause = cause
        self._report_unfit()

    def _on_welcome(self) -> None:
        if self._ending is not None and self._ending.final == NO_LEADER:
            self._ending.final = 0  # there is a leader again, which leaves last
        self._setup.meet_leader()
        self._report_unfit()

    def _report_unfit(self) -> None:
        """Report the cause to the current leader; a new leader gets it again."""
        if self._cause is not None:
            self._member.send({"say": "unfit", "cause": self._cause})

    # The end of the run

    def _on_sigterm(self) -> None:
        self._shutdown().on_sigterm()

    def _on_verdict(self, verdict: dict[str, object]) -> None:
        """The gang has a verdict: write it first, release the members, then leave last."""
        try:
            write_atomically(os.path.join(self._task.reports, "verdict.json"), json.dumps(verdict).encode())
        except OSError as error:
            self._sink.event("note", reason="the verdict cannot be written: %s" % error.strerror)
        self._write_termination(dict(verdict, at=round(time.time(), 3)))
        self._sink.event("verdict", **verdict)
        self._setup.cancel()
        code = self._shutdown().final = self._shutdown().code_of(verdict)
        self._shutdown().succeeded = verdict["outcome"] == "succeeded"
        leader = self._leader
        assert leader is not None
        if self._in_pod:
            leader.wait_for_ends(lambda: self._member.stop_ranks(self._shutdown().end_part))
        else:
            leader.leave(lambda: self._shutdown().leave_after_ranks(code))

    def _on_finish(self, message: dict[str, object]) -> None:
        """An order of the leader that concerns this agent, not only its ranks."""
        order = message["say"]
        if order == "leave":  # we did not stop in time: a new agent replaces us
            self._shutdown().leave_after_ranks(INTERRUPTED, "it did not stop in time")
        elif order == "give-way":
            self._leave_together(str(message.get("reason")))
        elif order == "release":
            self._shutdown().release(str(message.get("client") or ""))
        elif order == "code":
            self._setup.take_code(message)
        elif order == "keeper":
            self._shutdown().meet_keeper(message.get("address"), message.get("port"))
            if self._member.checkpoints is not None:
                self._member.checkpoints.meet_keeper(message)
        elif self._to_leader is not None and self._shutdown().final is None:
            self._shutdown().final = 0
            self._setup.cancel()
            if self._in_pod:
                verdict = message.get("verdict")
                self._to_leader.verdict = verdict if isinstance(verdict, dict) else None
                outcome = (self._to_leader.verdict or {}).get("outcome")
                self._shutdown().succeeded = outcome == "succeeded"
                self._show_own_failure(self._to_leader.verdict or {})
                self._member.stop_ranks(self._shutdown().end_part)
            else:
                self._shutdown().leave_after_ranks(0)

    def _leave_together(self, reason: str) -> None:
        """The gang gives way: the leader leaves last, so that no member waits for another one."""
        if self._leader is not None:
            self._leader.leave(lambda: self._shutdown().leave_after_ranks(GAVE_WAY, reason))
        else:
            self._shutdown().leave_after_ranks(GAVE_WAY, reason)

    def _show_own_failure(self, verdict: dict[str, object]) -> None:
        """If a rank of this worker is the cause, let its pod show so: by its code and termination message."""
        cause = verdict.get("cause")
        if not isinstance(cause, dict) or cause.get("rank") is None or cause.get("worker") != self._worker:
            return
        self._write_termination({"cause": cause})
        if self._task.may_fail_alone(self._worker):
            self._shutdown().final = RANK_FAILED

    def _write_termination(self, content: dict[str, object]) -> None:
        from echelon.agent.output import termination

        termination.write(self._task.termination, content)

    def _on_leader_lost(self) -> None:
        """Without a leader the generation is over: its ranks would wait for ever for the lost ones."""
        if self._shutdown().final is not None:
            assert self._to_leader is not None
            self._shutdown().hold_alone(self._to_leader.verdict)
        elif not self._member.leaving and (
            self._member.last_started - (self._member.spared if self._task.spares else 0)
            >= self._task.restarts
        ):
            self._end_alone(
                "worker 0 was lost, and no restart is left", "the others lost their connection to it"
            )
        else:
            self._member.stop_ranks(lambda: None)

    def _on_no_leader(self) -> None:
        if self._shutdown().final is None:
            silence = "did not answer in %g s" % self._task.join_timeout
            self._end_alone("worker 0 %s" % silence, "it %s" % silence)

    def _end_alone(self, reason: str, how: str) -> None:
        """The run is over, and there is no leader to decide so. Results in this pod are held all the same,
        for the client to fetch; without any, leave with a code by which the Job controller ends the run.
        """
        if not (self._in_pod and self._task.hold > 0 and self._member.ran) or self._member.leaving:
            self._shutdown().leave_after_ranks(NO_LEADER, reason)
            return
        from echelon.agent.gang.verdict import LOST, cause_of_loss, make_verdict

        assert self._to_leader is not None
        verdict = make_verdict("failed", None, cause_of_loss([(0, how, LOST)], how))
        self._to_leader.verdict = verdict
        self._shutdown().final = NO_LEADER
        self._setup.cancel()
        self._shutdown().hold_alone(verdict)
        self._member.stop_ranks(self._shutdown().end_part)

    def _stop_run(self, message: dict[str, object]) -> None:
        if self._member.ranks.terminal is not None:
            self._member.ranks.terminal.wake_rank()
        if self._leader is not None and message.get("say") == "stop":
            reason = str(message.get("reason", "stopped"))
            self._leader.stop("stopped", reason, message)

    def _beat(self) -> None:
        """Show the supervisor, or the container's first process, that this agent is alive; of a single worker
        no other process would notice.
        """
        if self._control is not None:
            self._control.send({"say": "beat"})
        if self._beats is not None:
            try:
                os.write(self._beats, b".")
            except BlockingIOError:
                pass  # the pipe was not read for hours, as when only the first process was stopped
        self._loop.call_later(self._task.heartbeat, self._beat)

    def _on_abandoned(self, _connection: Connection, _reason: str) -> None:
        """The supervisor is gone: end the ranks, since no other process would."""
        self._member.ranks.kill_now()
        self._shutdown().leave(INTERRUPTED)

    def _close_connections(self) -> None:
        if self._to_leader is not None:
            self._to_leader.close()
        if self._control is not None:
            self._control.drain(1.0)
        if self._orders is not None:
            self._orders.close()
        if self._remote is not None:
            self._remote.close()
        self._loop.stop()


def _draw() -> float:
    """A number from 0 to 1, without the import of `random`."""
    return int.from_bytes(os.urandom(4), "big") / 2**32
