"""The leader's part in checkpoints: it finds out which are safe (`gang/rounds.py`), has the keeper know, and
lets a generation begin only when what the workers of the one before had to give has been given. The first one
of a run that was resumed waits until the keeper has what a client sends it of the earlier start."""

from __future__ import annotations

import time

from echelon.agent.gang.decisions import Gang
from echelon.agent.gang.keeper_link import KeeperLink
from echelon.agent.gang.rounds import Rounds
from echelon.agent.loop import Loop
from echelon.agent.output.sink import Sink
from echelon.agent.stopping import GIVING_AT_END

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

LOOK = 0.05  # seconds between two looks at whether a generation may be prepared
KEEPER_TIME = 60.0  # seconds that a restart waits for a keeper which is not there
SENT_WITHIN = 180.0  # seconds without a sign of a client that sends; one whose connection broke tries again
NO_KEEPER = 600.0  # seconds that the first start of a run which was resumed waits for its keeper
NOT_THERE = 116  # exit code of a run whose checkpoints were not sent, as of one whose code was not
FIRST_TIME = 10.0  # the same of a first start, whose workers may have been suspended before
SILENT = 30.0  # seconds without a sign of a worker that has yet to give something
ANSWERS = 1.0  # seconds in which workers answer what they have


class Checkpointing:
    """One leader's. `send` reaches every worker, `connected` tells whether one is there, `below` is the
    folder as users know it.
    """

    def __init__(
        self,
        loop: Loop,
        workers: int,
        below: str,
        gang: Gang,
        keeper: KeeperLink,
        sink: Sink,
        send: Callable[[dict[str, object]], object],
        connected: Callable[[int], bool],
        resumed: bool = False,
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._rounds = Rounds(workers, below)
        self._gang = gang
        self._keeper = keeper
        self._sink = sink
        self._send = send
        self._connected = connected
        self._owing: dict[int, float] = {}  # workers that may have something to give, and their last sign
        self._told_at = 0.0  # when one said something of an entry
        self._looks = False
        self._ends_since: float | None = None  # when the end of the run began to wait
        self._has_shelf = False  # there is a keeper, and it has said what is safe
        self._alone_since = time.monotonic()  # when there was a keeper last
        self._lacks = resumed  # the checkpoints of the start before it was resumed are not there yet
        self._sent_at = time.monotonic()  # when there was a sign last that a client sends them
        self.on_ready: Callable[[], object] = lambda: None
        gang.waits = True
        keeper.on_shelf = self.receive_from_keeper

    def with_checkpoint(self, worker: int | None, order: dict[str, object]) -> dict[str, object]:
        """An order of the gang to a worker, or to all, as they get it."""
        if order.get("say") == "prepare":
            back = self._rounds.freeze()
            return dict(order, back=back) if back is not None or order.get("generation") else order
        if order.get("say") == "start":
            self._rounds.thaw()
            for each in range(self._workers) if worker is None else (worker,):
                self.ran(each)
        return order

    def note_keeper(self) -> None:
        """A keeper has come, or has gone."""
        self._has_shelf = False
        self._alone_since = self._sent_at = time.monotonic()

    def ran(self, worker: int) -> None:
        """The ranks of a worker run, or have run under an earlier leader."""
        self._owing[worker] = time.monotonic()

    def receive(self, worker: int, message: dict[str, object]) -> None:
        """What a worker says of checkpoints."""
        now = time.monotonic()
        if worker in self._owing:
            self._owing[worker] = now
        say = message.get("say")
        if say == "given":
            self._owing.pop(worker, None)
        elif say == "carrying":
            self._gang.carries(now)
        else:
            self._told_at = now
            self._rounds.told(worker, message)
        self.act()

    def receive_from_keeper(self, message: dict[str, object]) -> None:
        """What the keeper says of them."""
        say = message.get("say")
        if say == "shelf":
            self._has_shelf = True
            self._lacks = self._lacks and message.get("stocked") is not True
            self._rounds.meet_keeper(message.get("checkpoints"))
            self._send(self._keeper.message())  # what workers have told before counts no more
        elif say == "receiving":
            self._sent_at = time.monotonic()
        elif say == "dropped":
            self._rounds.dropped(message.get("entry"))
        else:
            self._rounds.confirmed(message)
        self.act()

    def act(self) -> None:
        """Send and log what was decided, and look from time to time whether a start may go on."""
        rounds = self._rounds
        outbox, rounds.outbox = rounds.outbox, []
        for message in outbox:
            self._send(message)
        if self._has_shelf:
            orders, rounds.to_keeper = rounds.to_keeper, []
            for order in orders:
                self._keeper.order(order)
        events, rounds.events = rounds.events, []
        for event in events:
            self._sink.event(**event)  # type: ignore[arg-type]
        if self._gang.held and not self._looks:
            self._looks = True
            self._loop.call_later(LOOK, self._look)

    def is_settled(self) -> bool:
        """Whether all has been given that can be, and it is known what of it is safe."""
        now = time.monotonic()
        if not self._has_shelf and self._gang.ends:
            return True
        if self._lacks and not self._gang.has_run:
            return False
        if not self._has_shelf:
            first = self._gang.last_started < 0 and not self._gang.has_run
            return now - self._alone_since >= (FIRST_TIME if first else KEEPER_TIME)
        if self._rounds.unconfirmed or (self._rounds.asks and now - self._told_at < ANSWERS):
            return False
        owing = [worker for worker, sign in self._owing.items() if now - sign < SILENT]
        return not any(map(self._connected, owing))

    def _look(self) -> None:
        self._looks = False
        now = time.monotonic()
        if self._gang.ends and self._ends_since is None:
            self._ends_since = now
        self._check_sent(now)
        late = self._ends_since is not None and now - self._ends_since > GIVING_AT_END
        if self._gang.held and (late or self.is_settled()):
            self._gang.proceed(now)
            self.on_ready()
        self.act()

    def _check_sent(self, now: float) -> None:
        """Fail a run that was resumed, and is not sent what it is to go on from: it would begin anew."""
        patience = SENT_WITHIN if self._has_shelf else NO_KEEPER
        if not self._lacks or self._gang.has_run or not self._gang.held or now - self._sent_at <= patience:
            return
        self._lacks = False
        why = "the command that resumed the run has sent nothing for %g s" % SENT_WITHIN
        if not self._has_shelf:
            why = "the run's keeper is not there after %g s" % NO_KEEPER
        summary = "its checkpoints did not arrive: %s" % why
        self._gang.unfit({"summary": summary, "exit_code": NOT_THERE}, now)
        self.on_ready()
