"""The leader's ear and mouth: it listens for the workers, lets in those who know the secret, and carries out
what `gang.py` decides.

Worker 0 runs it beside its own member, to which it talks by plain calls. Strangers are held in a small
waiting room with a time limit."""

from __future__ import annotations

import socket
import time
from collections import OrderedDict
from functools import partial

from echelon.agent.gang.decisions import Gang
from echelon.agent.gang.wire import GREETING_TIME, Connection, encode, fresh_nonce, is_address, prove, proven
from echelon.agent.loop import READ, Loop, Timer
from echelon.agent.output.sink import Sink
from echelon.agent.task import VERSION, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.gang.member import Member

WAITING_ROOM = 512  # strangers at a time, at least; when one more comes, the one who has waited longest goes
GOODBYE = 5.0  # seconds that the others get to leave before the leader does


class Leader:
    """Hears every worker, decides by `Gang`, tells them.

    With `chronicle` its own log tells the whole run's story: nobody else writes one. `address` is how the
    others' ranks reach ours, where that is known; `failures` counts the leaders that were lost before it.
    """

    def __init__(
        self,
        loop: Loop,
        task: Task,
        listener: socket.socket,
        sink: Sink,
        chronicle: bool = False,
        address: str = "",
        failures: int = 0,
    ) -> None:
        self._loop = loop
        self._task = task
        self._secret = task.secret()
        self._listener = listener
        self._sink = sink
        self._chronicle = chronicle
        self._failures = failures
        self._strangers: OrderedDict[Connection, str] = OrderedDict()  # each with the number it must sign
        self._peers: dict[int, Connection] = {}
        self._ended: set[int] = set()  # peers that have nothing more to tell
        # A whole gang may call at once; if there were less room, its own members would push each other out.
        self._room = max(WAITING_ROOM, 2 * len(task.places))
        self._own: Member | None = None
        self._address = address
        self._timer: Timer | None = None
        self._deadline: float | None = None
        self._last_beat = time.monotonic()
        self.on_over: Callable[[dict[str, object]], object] | None = None
        self.gang = Gang(task, time.monotonic())
        listener.setblocking(False)
        loop.watch(listener, READ, self._on_caller)
        loop.call_later(task.heartbeat, self._on_heartbeat)

    def attach_own(self, member: Member, last_started: int) -> None:
        """Take worker 0 in, which needs no connection."""
        self._own = member
        if self._chronicle:
            self._sink.event("worker-started", worker=0, version=VERSION)
        self.gang.joined(0, self._address or "127.0.0.1", last_started, time.monotonic())
        self.act()

    def hear(self, worker: int, message: dict[str, object]) -> None:
        """Take a message of a worker to the gang."""
        now = time.monotonic()
        say, generation = message.get("say"), message.get("generation")
        if say == "ready":
            self.gang.ready(worker, generation, message["ports"], now)  # type: ignore[arg-type]
        elif say == "failed":
            self.gang.failed(worker, generation, message["end"], now)  # type: ignore[arg-type]
        elif say == "done":
            self.gang.done(worker, generation, now)  # type: ignore[arg-type]
        elif say == "stopped":
            self.gang.stopped(worker, generation, now)  # type: ignore[arg-type]
        elif say == "unfit":
            self.gang.unfit(message["cause"], now)  # type: ignore[arg-type]
        elif say == "bye":
            self.gang.lost(worker, str(message.get("reason")), now)  # its connection may stay for a while
        elif say == "event":
            self._hear_event(worker, message.get("event"))
        elif say == "verdict":
            self.gang.adopt(message.get("verdict"))
        elif say == "please-stop":
            self.stop("stopped", str(message.get("reason")), bool(message.get("now")))
        else:
            return  # a heartbeat: that it was heard is noted where it is read
        self.act()

    def stop(self, outcome: str, reason: str, at_once: bool = False) -> None:
        """End the run because somebody asked for it."""
        self.gang.stop_requested(outcome, reason, time.monotonic(), at_once)
        self.act()

    def lose_own(self, reason: str) -> None:
        """Worker 0 itself is told to go, and with it this leader, as soon as the gang has settled."""
        self.gang.lost(0, reason, time.monotonic())
        self.act()

    def tell_all(self, word: str) -> None:
        """Say one word to every peer."""
        for peer in list(self._peers.values()):
            peer.send({"say": word})

    def act(self) -> None:
        """Carry out what the gang has decided, and set the clock for what it waits for."""
        while self.gang.outbox or self.gang.events:
            events, self.gang.events = self.gang.events, []
            for event in events:
                self._sink.event(**event)  # type: ignore[arg-type]
            outbox, self.gang.outbox = self.gang.outbox, []
            for worker, message in outbox:
                self._tell(worker, message)
        self._set_clock()
        if self.gang.verdict is not None and self.on_over is not None:
            announce, self.on_over = self.on_over, None
            announce(self.gang.verdict)

    def leave(self, done: Callable[[], object]) -> None:
        """Call `done()` when every peer has left, or has had its time to."""
        self._when(lambda: not self._peers, done)

    def hear_out(self, done: Callable[[], object]) -> None:
        """Call `done()` when every peer has told all it has to tell, or has had its time to."""
        self._when(lambda: self._ended >= set(self._peers), done)

    def _when(self, settled: Callable[[], bool], done: Callable[[], object]) -> None:
        deadline = time.monotonic() + GOODBYE

        def look() -> None:
            if settled() or time.monotonic() > deadline:
                done()
            else:
                self._loop.call_later(0.005, look)

        look()

    def _hear_event(self, worker: int, event: object) -> None:
        """Take another worker's event into our own log, under its own number, whatever it says."""
        if not (self._chronicle and isinstance(event, dict) and isinstance(event.get("kind"), str)):
            return
        event["worker"] = worker
        if event["kind"] == "worker-ended":
            self._ended.add(worker)
        self._sink.pass_on(event)

    def _tell(self, worker: int | None, message: dict[str, object]) -> None:
        if worker is None:
            raw = encode(message)
            for peer in list(self._peers.values()):
                peer.send_raw(raw)
        elif worker in self._peers:
            self._peers[worker].send(message)
        if worker in (None, 0) and self._own is not None:
            # Later, as for everybody else: an answer in the middle of a decision would be heard too early.
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
        if now - self._last_beat > 3 * self._task.heartbeat:
            for peer in self._peers.values():
                peer.heard_at = now  # it was we who were away: frozen, or swapped out; they may have spoken
        self._last_beat = now
        raw = encode({"say": "beat"})
        for worker, peer in list(self._peers.items()):
            if now - peer.heard_at > self._task.lost_after:
                peer.close()
                self._on_gone(worker, peer, "nothing was heard of it for %g s" % self._task.lost_after)
            else:
                peer.send_raw(raw)
        self._loop.call_later(self._task.heartbeat, self._on_heartbeat)

    # Strangers

    def _on_caller(self, _events: int) -> None:
        for _ in range(64):  # a few at a time, so that a crowd at the door does not keep the run waiting
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return  # nobody there, or no descriptor left: the next round will see
            if len(self._strangers) >= self._room:
                self._strangers.popitem(last=False)[0].close()
            stranger = Connection(self._loop, sock)
            nonce = fresh_nonce()
            self._strangers[stranger] = nonce
            stranger.on_message = self._on_greeting
            stranger.on_closed = lambda connection, _reason: self._strangers.pop(connection, None)
            stranger.send({"say": "who", "nonce": nonce})
            self._loop.call_later(GREETING_TIME, partial(self._send_away, stranger))

    def _send_away(self, connection: Connection) -> None:
        if self._strangers.pop(connection, None) is not None:
            connection.close()

    def _on_greeting(self, connection: Connection, message: dict[str, object]) -> None:
        nonce = self._strangers.pop(connection, None)
        worker, theirs = message.get("worker"), message.get("nonce")
        known = (
            nonce is not None
            and type(worker) is int
            and 0 < worker < len(self._task.places)
            and isinstance(theirs, str)
            and proven(prove(self._secret, "member", worker, nonce, theirs), message.get("proof"))
        )
        if not known:
            connection.close()
            return
        assert isinstance(worker, int)
        assert isinstance(theirs, str)
        assert nonce is not None
        connection.trust()
        connection.on_message = lambda _connection, heard: self.hear(worker, heard)
        connection.on_closed = lambda closed, reason: self._on_gone(worker, closed, reason)
        connection.send({"say": "welcome", "proof": prove(self._secret, "leader", worker, theirs, nonce)})
        self._welcome(worker, connection, message)

    def _welcome(self, worker: int, connection: Connection, message: dict[str, object]) -> None:
        old = self._peers.pop(worker, None)
        if old is not None:
            old.close()
        self._peers[worker] = connection
        self._ended.discard(worker)
        if message.get("finished") is True:
            self._ended.add(worker)  # it says next with which verdict
            return
        if self.gang.phase == "over":
            connection.send({"say": "finish", "verdict": self.gang.verdict})
            return
        if not connection.open:
            return
        if self._chronicle:
            version = message.get("version")
            self._sink.event(
                "worker-started", worker=worker, version=version if isinstance(version, str) else None
            )
        # Unless we know better: how this worker sees us is how its ranks will reach ours.
        self.gang.set_address(0, self._address or connection.local_address())
        address = message.get("address")
        known = [_number(message.get("last_started"), -1)]
        if self._failures:  # nobody here has seen it all; whoever was replaced most often knows most
            known.append(_number(message.get("failures"), 0) - 1)
        elapsed = message.get("elapsed")
        self.gang.joined(
            worker,
            address if is_address(address) else connection.peer_address(),  # type: ignore[arg-type]
            max(known),
            time.monotonic(),
            elapsed if isinstance(elapsed, (int, float)) and 0 <= elapsed < 1e9 else None,
        )
        self.act()

    def _on_gone(self, worker: int, connection: Connection, reason: str) -> None:
        if self._peers.get(worker) is connection:
            del self._peers[worker]
            self.gang.lost(worker, reason, time.monotonic())
            self.act()


def _number(value: object, otherwise: int) -> int:
    return value if type(value) is int else otherwise
