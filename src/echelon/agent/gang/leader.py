"""The leader's connections: it listens for the workers, accepts those that prove the secret, and carries out
the decisions of `decisions.py`.

Worker 0 runs it beside its own member, which it calls directly."""

from __future__ import annotations

import os
import socket
import time
from functools import partial

from echelon.agent import stopping
from echelon.agent.address import is_address
from echelon.agent.gang import keeper_link
from echelon.agent.gang.decisions import Gang
from echelon.agent.gang.door import Door
from echelon.agent.gang.keeper_link import KeeperLink
from echelon.agent.gang.silence import OwnTicks
from echelon.agent.gang.verdict import only_left
from echelon.agent.gang.wire import Connection, encode, load_proofs, prove, proven
from echelon.agent.loop import Loop, Timer
from echelon.agent.output.sink import Sink
from echelon.agent.task import VERSION, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable, Mapping

    from echelon.agent.gang.checkpointing import Checkpointing
    from echelon.agent.gang.member import Member
    from echelon.agent.output.samples import Board

LEAVE_TIME = 5.0  # seconds that the members get to leave before the leader does
TOGETHER = 2.0  # seconds in which those are told to leave who are told so by the same hand


class Leader:
    """Receives every worker's messages, decides by `Gang`, sends the orders.

    With `logs_run` its log has the events of the whole run, since there is no supervisor to write them.
    `address` is how other ranks reach ours, where that is known; `failures` counts the leaders that were lost
    before it; with `patience` the gang gives way if it is not whole after so many seconds.
    """

    def __init__(
        self,
        loop: Loop,
        task: Task,
        listener: socket.socket,
        sink: Sink,
        logs_run: bool = False,
        address: str = "",
        failures: int = 0,
        patience: float | None = None,
    ) -> None:
        self._loop = loop
        self._task = task
        self._secret = task.secret()
        self._sink = sink
        self._logs_run = logs_run
        self._failures = failures
        self._peers: dict[int, Connection] = {}
        self._ended: set[int] = set()  # peers that have sent their last event
        self._own: Member | None = None
        self._board: Board | None = None  # the newest samples, from the first one on
        self._address = address
        self._timer: Timer | None = None
        self._deadline: float | None = None
        self._ticks = OwnTicks(task.heartbeat, time.monotonic())
        self.on_over: Callable[[dict[str, object]], object] | None = None
        self.gang = Gang(task, time.monotonic(), patience)
        self.keeper = KeeperLink(loop)
        self.keeper.on_change = self._pass_on_keeper
        self.checkpointing: Checkpointing | None = None
        if task.checkpoints:
            self._checkpoint(task)
        self.on_keeper: Callable[[], object] = lambda: None  # the keeper has come, or has gone
        # A worker requests a piece of the code, from an offset on.
        self.on_code_wanted: Callable[[int, object], object] = lambda _worker, _offset: None
        # What a worker says of a command that it runs for the launcher; and that a worker is gone.
        self.on_command: Callable[[int, dict[str, object]], object] = lambda *_: None
        self.on_gone: Callable[[int], object] = lambda _worker: None
        self.on_alone: Callable[[], object] = lambda: None  # no member is connected any more
        # A whole gang may connect at once; with less room its own members would drop each other.
        self._door = Door(loop, listener, 2 * len(task.places), self._on_handshake)
        loop.call_later(task.heartbeat, self._on_heartbeat)
        if len(task.places) > 1:
            loop.call_later(0, load_proofs)  # the others are on their way

    def _checkpoint(self, task: Task) -> None:
        from echelon.agent.gang.checkpointing import Checkpointing  # most runs have none

        below = os.path.relpath(task.checkpoints, task.output)
        self.checkpointing = Checkpointing(
            self._loop,
            len(task.places),
            below,
            self.gang,
            self.keeper,
            self._sink,
            lambda message: self.send(None, message),
            lambda worker: worker == 0 or worker in self._peers,
            resumed=task.earlier > 0,
        )
        self.checkpointing.on_ready = self.act

    @property
    def has_members(self) -> bool:
        """Whether any other worker is connected."""
        return bool(self._peers)

    def attach_own(self, member: Member, last_started: int) -> None:
        """Add worker 0, which needs no connection."""
        self._own = member
        if self._logs_run:
            self._sink.event("worker-started", worker=0, version=VERSION)
        self.gang.joined(
            0, self._address or "127.0.0.1", last_started, time.monotonic(), spared=member.spared
        )
        self.act()

    def receive(self, worker: int, message: dict[str, object]) -> None:
        """Pass a worker's message on to the gang."""
        now = time.monotonic()
        say, generation = message.get("say"), message.get("generation")
        if say == "ready":
            self.gang.ready(worker, generation, message["ports"], now)  # type: ignore[arg-type]
        elif say == "failed":
            self.gang.failed(worker, generation, message["end"], now)  # type: ignore[arg-type]
        elif say == "done":
            self._drop_sample(worker)
            self.gang.done(worker, generation, now)  # type: ignore[arg-type]
        elif say == "stopped":
            self._drop_sample(worker)
            told = (message.get(each) for each in ("places", "killed", "looks"))
            self.gang.stopped(worker, generation, now, *told)  # type: ignore[arg-type]
        elif say in ("checkpoint", "given", "carrying"):
            if self.checkpointing is not None:
                self.checkpointing.receive(worker, message)
        elif say in ("sample", "looked", "timed"):
            self._receive_seen(worker, generation, message, now)
        elif say == "well":
            self.gang.ended_well(generation, message.get("rank"), message.get("seconds"), now)
        elif say == "unfit":
            self.gang.unfit(message["cause"], now)  # type: ignore[arg-type]
        elif say == "bye":
            # Its agent was told to leave; its connection may stay for a while.
            self.gang.leaves(worker, str(message.get("reason")), now)
        elif say == "event":
            self._receive_event(worker, message.get("event"))
        elif say == "verdict":
            self.gang.adopt(message.get("verdict"))
        elif say == "please-stop":
            self.stop("stopped", str(message.get("reason")), message)
        else:
            self._receive_other(worker, message)
            return
        self.act()

    def _receive_seen(self, worker: int, generation: object, message: dict[str, object], now: float) -> None:
        """Keep a worker's newest sample for those who look. By that, or by where its ranks are, the gang may
        be stuck.
        """
        if message["say"] in ("looked", "timed"):
            take = self.gang.looked if message["say"] == "looked" else self.gang.timed
            take(worker, generation, message.get("number"), message.get("ranks"), now)
            return
        sample = message.get("sample")
        if generation != self.gang.generation or self.gang.phase != "running" or not isinstance(sample, dict):
            return
        if self._board is None:
            from echelon.agent.output.samples import Board  # what only running ranks need

            self._board = Board(self._loop, self._task.reports, len(self._task.places))
        self._board.put(worker, self.gang.with_lateness(sample))
        self.gang.sampled(worker, sample, now)

    def _drop_sample(self, worker: int) -> None:
        if self._board is not None:
            self._board.drop(worker)

    def _receive_other(self, worker: int, message: dict[str, object]) -> None:
        """A message on which the gang has nothing to decide; of a heartbeat the connection notes the time."""
        say = message.get("say")
        if say == "code":
            self.on_code_wanted(worker, message.get("offset"))
        elif say == "command":
            self.on_command(worker, message)

    def stop(self, outcome: str, reason: str, request: Mapping[str, object]) -> None:
        """End the run on request: its ranks with the signal and the grace that it asks for."""
        grace = stopping.seconds_in(request.get("grace"))
        self.gang.stop_requested(outcome, reason, time.monotonic(), stopping.asked_for(request), grace)
        self.act()

    def lose_own(self, reason: str) -> None:
        """Worker 0 itself is told to go, and with it this leader, as soon as the gang has settled."""
        self.gang.leaves(0, reason, time.monotonic())
        self.act()

    def send_all(self, order: str, details: dict[str, object] | None = None) -> None:
        """Send one order to every peer."""
        for peer in list(self._peers.values()):
            peer.send(dict(details or {}, say=order))

    def act(self) -> None:
        """Carry out what the gang has decided, and set the timer for its next deadline."""
        while self.gang.outbox or self.gang.events:
            events, self.gang.events = self.gang.events, []
            for event in events:
                self._sink.event(**event)  # type: ignore[arg-type]
            outbox, self.gang.outbox = self.gang.outbox, []
            for worker, message in outbox:
                order = message
                if self.checkpointing is not None:
                    order = self.checkpointing.with_checkpoint(worker, message)
                self.send(worker, order)
        if self.checkpointing is not None:
            self.checkpointing.act()
        self._set_clock()
        if self.gang.verdict is not None and self.on_over is not None:
            announce, self.on_over = self.on_over, None
            if self._board is not None:
                self._board.close()
            announce(self.gang.verdict)

    def leave(self, done: Callable[[], object]) -> None:
        """Call `done()` when every peer has left, or has had its time to."""
        self._when(lambda: not self._peers, done)

    def wait_for_ends(self, done: Callable[[], object]) -> None:
        """Call `done()` when every peer has sent its last event, or has had its time to. If workers were told
        to leave, who told them, as by suspending their Job, has a moment to tell this one too.
        """
        verdict = self.gang.verdict
        leaves = self._own is not None and self._own.leaving
        waits = verdict is not None and only_left(verdict) and not leaves
        until = time.monotonic() + (TOGETHER if waits else 0.0)
        self._when(lambda: self._ended >= set(self._peers) and time.monotonic() >= until, done)

    def _when(self, settled: Callable[[], bool], done: Callable[[], object]) -> None:
        deadline = time.monotonic() + LEAVE_TIME

        def look() -> None:
            if settled() or time.monotonic() > deadline:
                done()
            else:
                self._loop.call_later(0.005, look)

        look()

    def _receive_event(self, worker: int, event: object) -> None:
        """Write another worker's event to our log, with that worker's number, whatever the event claims."""
        if not (self._logs_run and isinstance(event, dict) and isinstance(event.get("kind"), str)):
            return
        event["worker"] = worker
        if event["kind"] == "worker-ended":
            self._ended.add(worker)
        self._sink.pass_on(event)

    def send(self, worker: int | None, message: dict[str, object]) -> None:
        """Send an order to a worker, or to all of them."""
        if worker is None:
            raw = encode(message)
            for peer in list(self._peers.values()):
                peer.send_raw(raw)
        elif worker in self._peers:
            self._peers[worker].send(message)
        if worker in (None, 0) and self._own is not None:
            # Later, as for every other worker: its answer must not arrive in the middle of a decision.
            self._loop.call_later(0, partial(self._own.obey, message))

    def _set_clock(self) -> None:
        deadline = self.gang.next_deadline()
        if deadline == self._deadline:
            return
        self._deadline = deadline
        if self._timer is not None:
            self._timer.cancel()
        if deadline is not None:
            self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadline = None
        self.gang.tick(time.monotonic())
        self.act()

    def _on_heartbeat(self) -> None:
        now = time.monotonic()
        still = self._ticks.stood_still(now)
        if still:
            for peer in self._peers.values():
                peer.received_at = now
            self.keeper.stood_still(now)
            self.gang.postpone(still)
            self._set_clock()
        raw = encode({"say": "beat"})
        for worker, peer in list(self._peers.items()):
            if now - peer.received_at > self._task.lost_after:
                peer.close()
                self._on_gone(worker, peer, "it sent nothing for %g s" % self._task.lost_after)
            else:
                peer.send_raw(raw)
        self.keeper.beat(raw, now, self._task.lost_after)
        self._loop.call_later(self._task.heartbeat, self._on_heartbeat)

    # New connections

    def _on_handshake(self, connection: Connection, nonce: str, message: dict[str, object]) -> None:
        """Accept a worker, or the keeper: each proves itself as what it is."""
        worker, theirs = message.get("worker"), message.get("nonce")
        side = keeper_link.SIDE if message.get("side") == keeper_link.SIDE else "member"
        among = worker == keeper_link.NUMBER if side == keeper_link.SIDE else self._is_peer(worker)
        known = (
            among
            and type(worker) is int
            and isinstance(theirs, str)
            and proven(prove(self._secret, side, worker, nonce, theirs), message.get("proof"))
        )
        if not known:
            connection.close()
            return
        assert isinstance(worker, int)
        assert isinstance(theirs, str)
        connection.trust()
        connection.send({"say": "welcome", "proof": prove(self._secret, "leader", worker, theirs, nonce)})
        if side == keeper_link.SIDE:
            self.keeper.welcome(connection, message)
            return
        connection.on_message = lambda _connection, received: self.receive(worker, received)
        connection.on_closed = lambda closed, reason: self._on_gone(worker, closed, reason)
        self._welcome(worker, connection, message)

    def _is_peer(self, worker: object) -> bool:
        return type(worker) is int and 0 < worker < len(self._task.places)

    def _pass_on_keeper(self) -> None:
        if self.checkpointing is not None:
            self.checkpointing.note_keeper()
        self.send(None, self.keeper.message())
        self.on_keeper()

    def _welcome(self, worker: int, connection: Connection, message: dict[str, object]) -> None:
        old = self._peers.pop(worker, None)
        if old is not None:
            old.close()
        self._peers[worker] = connection
        self._ended.discard(worker)
        if self.keeper.connected:
            connection.send(self.keeper.message())
        if message.get("finished") is True:
            self._ended.add(worker)  # its next message has the verdict
            return
        if self.gang.phase == "over":
            connection.send({"say": "finish", "verdict": self.gang.verdict})
            return
        if self.gang.phase == "leaving":
            connection.send({"say": "give-way", "reason": "its gang was not whole"})
            return
        if not connection.open or message.get("leaving") is True:
            return
        if self._logs_run:
            version = message.get("version")
            self._sink.event(
                "worker-started", worker=worker, version=version if isinstance(version, str) else None
            )
        if message.get("missing"):  # its earlier leader was told
            self._receive_event(worker, {"kind": "note", "at": time.time(), "missing": message["missing"]})
        # Unless our address is known: the address at which this worker reaches us serves its ranks, too.
        self.gang.set_address(0, self._address or connection.local_address())
        address = message.get("address")
        known = [_number(message.get("last_started"), -1)]
        spared = [_number(message.get("spared"), 0)]
        if self._failures:  # a replaced leader: the member that was replaced most often knows most
            known.append(_number(message.get("failures"), 0) - 1)
            spared.append(_number(message.get("told"), 0))
        elapsed = message.get("elapsed")
        if self.checkpointing is not None and elapsed is not None:
            self.checkpointing.ran(worker)
        self.gang.joined(
            worker,
            address if is_address(address) else connection.peer_address(),  # type: ignore[arg-type]
            max(known),
            time.monotonic(),
            elapsed if isinstance(elapsed, (int, float)) and 0 <= elapsed < 1e9 else None,
            max(0, *spared),
        )
        self.act()

    def _on_gone(self, worker: int, connection: Connection, reason: str) -> None:
        if self._peers.get(worker) is connection:
            del self._peers[worker]
            self._drop_sample(worker)
            self.on_gone(worker)
            self.gang.lost(worker, reason, time.monotonic())
            self.act()
            if not self._peers:
                self.on_alone()


def _number(value: object, otherwise: int) -> int:
    return value if type(value) is int else otherwise
