"""The agent's command: `python -m echelon.agent TASK --worker N`. One per worker; worker 0 leads.

It is started by the supervisor on this machine, by the container's command in a pod. Descriptors may be
handed to it: `--listen-fd` is the socket on which the gang meets, `--control-fd` brings words of whoever
started it and tells by its closing that they are gone."""

from __future__ import annotations

import os
import signal
import sys

if not __package__:  # started as a file, outside any environment: find ourselves
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    __package__ = "echelon.agent"

import json
import socket

from echelon.agent.leader import Leader
from echelon.agent.loop import Loop
from echelon.agent.member import Call, Member
from echelon.agent.output import Sink
from echelon.agent.processes import adopt_orphans, allow_descriptors
from echelon.agent.task import INTERRUPTED, NO_LEADER, RUN_OVER, Task, read_task, write_atomically
from echelon.agent.wire import Connection


class Agent:
    """One worker from its start to its end."""

    def __init__(
        self, task: Task, worker: int, listen_fd: int | None, control_fd: int | None, failures: int
    ) -> None:
        self.code = 0
        self._task = task
        self._loop = Loop()
        self._sink = Sink(self._loop)
        place = task.places[worker]
        # Whoever replaces the Nth agent of a worker knows that N generations were tried, whatever was
        # forgotten with it.
        self._member = Member(self._loop, task, place, self._sink, last_started=failures - 1)
        self._member.on_finish = self._on_finish
        self._call: Call | None = None
        self._leader: Leader | None = None
        adopt_orphans()
        self._loop.on_signal(signal.SIGCHLD, self._member.ranks.reap)
        self._loop.on_signal(signal.SIGTERM, lambda: self._leave_after_ranks(INTERRUPTED))
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which the ranks would inherit
        self._control: Connection | None = None
        if control_fd is not None:
            self._control = Connection(self._loop, socket.socket(fileno=control_fd))
            self._control.trust()
            self._control.on_message = self._on_control
            self._control.on_closed = self._on_abandoned
            self._sink.on_event = self._control.send
        if worker == 0:
            self._lead(listen_fd)
        else:
            self._call = Call(self._loop, task, place, self._member)
            self._call.on_given_up = self._on_no_leader
            self._call.on_lost = self._on_leader_lost

    def run(self) -> int:
        """Live, and return the exit code."""
        self._loop.run()
        self._member.ranks.kill_now()
        self._sink.flush()
        return self.code

    def _lead(self, listen_fd: int | None) -> None:
        if listen_fd is not None:
            listener = socket.socket(fileno=listen_fd)
        else:
            listener = socket.create_server(("", self._task.leader[1]), backlog=4096)
        allow_descriptors(len(self._task.places))
        leader = Leader(self._loop, self._task, listener, self._sink)
        self._leader = leader
        self._member.say = lambda message: self._loop.call_later(0, lambda: leader.hear(0, message))
        leader.on_over = self._on_verdict
        leader.attach_own(self._member, self._member.last_started)

    def _on_verdict(self, verdict: dict[str, object]) -> None:
        """The leader has decided: write it down first, let the others go, then leave as the last one."""
        path = os.path.join(self._task.reports, "verdict.json")
        try:
            write_atomically(path, json.dumps(verdict).encode())
        except OSError as error:
            self._sink.event("note", reason="the verdict cannot be written: %s" % error.strerror)
        self._sink.event("verdict", **verdict)
        assert self._leader is not None
        code = 0 if verdict["outcome"] == "succeeded" else RUN_OVER
        self._leader.leave(lambda: self._leave_after_ranks(code))

    def _on_finish(self, word: str) -> None:
        if word == "leave":  # we did not stop in time: somebody else may take our place
            self._leave_after_ranks(INTERRUPTED)
        elif self._leader is None:
            self._leave_after_ranks(0)

    def _on_leader_lost(self) -> None:
        """Without a leader the generation is over: its ranks would wait for ever for those that died."""
        if self._member.last_started >= self._task.restarts:
            self._on_no_leader()
        else:
            self._member.stop_ranks(lambda: None)

    def _on_no_leader(self) -> None:
        self._leave_after_ranks(NO_LEADER)

    def _on_control(self, _connection: Connection, message: dict[str, object]) -> None:
        if self._leader is not None and message.get("say") == "stop":
            self._leader.stop("stopped", str(message.get("reason", "stopped")))

    def _on_abandoned(self, _connection: Connection, _reason: str) -> None:
        """Whoever started us is gone, and nobody else would end what runs here."""
        self._member.ranks.kill_now()
        self._leave(INTERRUPTED)

    def _leave_after_ranks(self, code: int) -> None:
        if not self._member.leaving:
            self._member.leaving = True
            self._member.stop_ranks(lambda: self._leave(code))

    def _leave(self, code: int) -> None:
        self.code = code
        if self._call is not None:
            self._call.close()
        if self._control is not None:
            self._control.drain(1.0)
        self._loop.stop()


def _unpack(bundle: dict[str, str]) -> None:
    """Put the code that was shipped into its place; a bundle that is not what it should be ends the agent."""
    from echelon.agent.unpack import BadBundle, unpack

    try:
        with open(bundle["path"], "rb") as file:
            unpack(file.read(), bundle["digest"], bundle["target"])
    except (BadBundle, OSError) as error:
        sys.exit("the code cannot be unpacked: %s" % error)


def main() -> int:
    """Read the command line and live."""
    path, options = sys.argv[1], dict(zip(sys.argv[2::2], sys.argv[3::2]))
    worker = int(options.get("--worker") or os.environ.get("JOB_COMPLETION_INDEX", "0"))
    listen_fd, control_fd = (
        int(options[name]) if name in options else None for name in ("--listen-fd", "--control-fd")
    )
    task = read_task(path)
    if task.bundle is not None:
        _unpack(task.bundle)
    return Agent(task, worker, listen_fd, control_fd, failures=int(options.get("--failures", "0"))).run()


if __name__ == "__main__":
    # Without the interpreter's farewell, during which a SIGTERM would make of our exit code a death by
    # signal.
    os._exit(main())
