"""A worker as a member of its gang: it does what the leader says, and says what happens to its ranks.

`link` is how it reaches the leader: `Call` over the network, or, for worker 0, the leader in the same
process."""

from __future__ import annotations

import socket
import time

from . import launch, ports
from .loop import Loop, Timer
from .output import Sink
from .ranks import Ranks
from .task import Place, Task
from .wire import GREETING_TIME, Connection, fresh_nonce, prove, proven

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable


class Member:
    """Obeys the leader's words: prepare, start, stop, finish, leave."""

    def __init__(self, loop: Loop, task: Task, place: Place, sink: Sink, last_started: int) -> None:
        self._loop = loop
        self._task = task
        self._place = place
        self._generation = -1
        self._reservation: ports.Reservation | None = None
        self.last_started = last_started
        self.busy = False
        self.leaving = False  # told to go: it starts nothing any more
        # Takes a message to the leader.
        self.say: Callable[[dict[str, object]], object] = lambda _message: None
        self.on_finish: Callable[[str], object] = lambda _word: None
        self.ranks = Ranks(loop, task, place, sink)
        self.ranks.on_failed = self._on_failed
        self.ranks.on_done = self._on_done

    def obey(self, message: dict[str, object]) -> None:
        """Do what the leader says."""
        word = message.get("say")
        if word == "prepare" and not self.leaving:
            self._prepare(int(message["generation"]))  # type: ignore[call-overload]
        elif word == "start" and not self.leaving:
            self._start(message)
        elif word == "stop":
            self.stop_ranks(self._say_stopped)
        elif word in ("finish", "leave"):
            self.on_finish(word)

    def stop_ranks(self, then: Callable[[], object]) -> None:
        """Stop the ranks, if any run, and call `then()`."""
        if self.busy:
            self.ranks.stop(self._task.grace, lambda: self._stopped(then))
        else:
            then()

    def _prepare(self, generation: int) -> None:
        """Get ready, once nothing of the generation before is left: its ranks may still be saving when a new
        leader calls.
        """
        self.stop_ranks(lambda: self.ranks.find_modules(lambda: self._reserve(generation)))

    def _reserve(self, generation: int) -> None:
        self._generation = generation
        if self._reservation is not None:
            self._reservation.release()
        self._reservation = ports.reserve(launch.ports_needed(self._task, self._place))
        self._tell("ready", ports=self._reservation.ports)

    def _start(self, message: dict[str, object]) -> None:
        if message["generation"] != self._generation or self._reservation is None:
            return
        self.last_started = self._generation
        self.busy = True
        self._reservation.open_up()
        roll = launch.Roll(self._task, message["addresses"], message["ports"])  # type: ignore[arg-type]
        self.ranks.start(self._generation, roll)

    def _on_failed(self, end: dict[str, object]) -> None:
        self._tell("failed", end=end)

    def _on_done(self) -> None:
        self.busy = False
        self._tell("done")

    def _stopped(self, then: Callable[[], object]) -> None:
        self.busy = False
        then()

    def _say_stopped(self) -> None:
        self._tell("stopped")

    def _tell(self, word: str, **more: object) -> None:
        message: dict[str, object] = {"say": word, "generation": self._generation}
        message.update(more)
        self.say(message)


class Call:
    """The way to a leader elsewhere: it calls until somebody answers who knows the secret, and again when the
    talk breaks off.
    """

    def __init__(self, loop: Loop, task: Task, place: Place, member: Member) -> None:
        self._loop = loop
        self._task = task
        self._place = place
        self._member = member
        self._secret = task.secret()
        self._connection: Connection | None = None
        self._welcome = False
        self._nonce = ""
        self._their_nonce = ""
        self._give_up = time.monotonic() + task.join_timeout
        self._retry: Timer | None = None
        self._last_beat = time.monotonic()
        self.closing = False
        self.on_given_up: Callable[[], object] = lambda: None
        self.on_lost: Callable[[], object] = lambda: None
        member.say = self._send
        self._dial()
        loop.call_later(task.heartbeat, self._on_heartbeat)

    def close(self) -> None:
        """Say what is left to say, and hang up."""
        self.closing = True
        if self._connection is not None:
            self._connection.drain(1.0)
            self._connection.close()

    def _send(self, message: dict[str, object]) -> None:
        if self._connection is not None and self._welcome:
            self._connection.send(message)

    def _dial(self) -> None:
        self._retry = None
        if self.closing:
            return
        self._welcome = False
        try:
            sock = socket.create_connection(self._task.leader, timeout=3.0)
        except OSError:
            self._dial_again()
            return
        self._connection = Connection(self._loop, sock)
        self._connection.trust()  # a false leader is found out by its proof; until then it is told nothing
        self._connection.on_message = self._on_message
        self._connection.on_closed = self._on_closed

    def _dial_again(self) -> None:
        if time.monotonic() >= self._give_up:
            self.on_given_up()
        elif self._retry is None and not self.closing:
            self._retry = self._loop.call_later(0.1, self._dial)

    def _on_message(self, connection: Connection, message: dict[str, object]) -> None:
        word = message.get("say")
        if self._welcome:
            self._member.obey(message)
        elif word == "who" and isinstance(message.get("nonce"), str):
            self._nonce, self._their_nonce = fresh_nonce(), str(message["nonce"])
            connection.send(
                {
                    "say": "me",
                    "worker": self._place.worker,
                    "nonce": self._nonce,
                    "proof": prove(
                        self._secret, "member", self._place.worker, self._their_nonce, self._nonce
                    ),
                    "last_started": self._member.last_started,
                }
            )
        elif word == "welcome":
            expected = prove(self._secret, "leader", self._place.worker, self._nonce, self._their_nonce)
            if proven(expected, message.get("proof")):
                self._welcome = True
            else:
                connection.close()
                self._dial_again()

    def _on_closed(self, _connection: Connection, _reason: str) -> None:
        if self.closing:
            return
        if self._welcome:
            self._welcome = False
            self._give_up = time.monotonic() + self._task.join_timeout
            self.on_lost()
        self._dial_again()

    def _on_heartbeat(self) -> None:
        now = time.monotonic()
        if now - self._last_beat > 3 * self._task.heartbeat and self._connection is not None:
            self._connection.heard_at = now  # it was we who were away: frozen, or swapped out
        self._last_beat = now
        if not self._welcome and now >= self._give_up:
            self.on_given_up()
        elif self._connection is not None and self._connection.open:
            silent = now - self._connection.heard_at
            if silent > (self._task.lost_after if self._welcome else GREETING_TIME):
                self._connection.close()
                self._on_closed(self._connection, "nothing was heard of the leader for %g s" % silent)
            else:
                self._send({"say": "beat"})
        self._loop.call_later(self._task.heartbeat, self._on_heartbeat)
