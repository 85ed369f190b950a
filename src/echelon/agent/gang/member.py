"""A worker as a member of its gang: it carries out the leader's orders, and reports what its ranks do.

`send` reaches the leader: `join.py` over the network, or, for worker 0, the leader in the same
process. A worker whose launch starts on the leader alone runs commands for that (`remote/commands.py`), and
leaves when the run ends."""

from __future__ import annotations

import time
from functools import partial

from echelon.agent import stopping
from echelon.agent.address import LOOPBACK, own_address
from echelon.agent.loop import Loop
from echelon.agent.output.sink import Sink
from echelon.agent.ranks.launching import launch, ports
from echelon.agent.ranks.launching.roll import Roll
from echelon.agent.ranks.ranks import Ranks
from echelon.agent.task import Place, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

    from echelon.agent.gang.carrier_link import CarrierLink
    from echelon.agent.ranks.launching.rendezvous import Rendezvous
    from echelon.agent.ranks.usage.sampler import Sampler

SAMPLED_AFTER = (
    1.0  # seconds after the start of the ranks, which have the processors for themselves till then
)


class Member:
    """Carries out prepare, start and stop; finish, release, leave, give-way, keeper and code are for the
    agent.
    """

    def __init__(self, loop: Loop, task: Task, place: Place, sink: Sink, last_started: int) -> None:
        self._loop = loop
        self._task = task
        self._place = place
        self._part = task, place  # the generation's, and where this worker stands in it
        self._generation = -1
        self._reservation: ports.Reservation | None = None
        self._sampler: Sampler | None = None  # while ranks run
        self._rendezvous: Rendezvous | None = None  # of the generation's ranks, if this worker serves one
        self.last_started = last_started
        self.spared = 0  # restarts that do not count, as the leader has said
        self.busy = False
        self.needed = False  # it was told to prepare, and is not done: its loss would end the generation
        self.missing = sink.missing  # output of its ranks that could not be written down
        self.ran = False  # its ranks were started at least once, so there may be results
        self.leaving = False  # it was told to leave, and starts nothing any more
        # Calls back when the leader has ordered the ranks to be stopped.
        self.when_ordered_to_stop: Callable[[], object] = lambda: None
        self._began: float | None = None
        self.checkpoints: CarrierLink | None = None  # where they are given to the run's keeper
        # Calls back when the worker has what its ranks need.
        self.when_set_up: Callable[[Callable[[], object]], object] = lambda then: then()
        # Takes a message to the leader.
        self.send: Callable[[dict[str, object]], object] = lambda _message: None
        self.on_finish: Callable[[dict[str, object]], object] = lambda _message: None
        self.on_command: Callable[[dict[str, object]], object] = lambda _message: None
        leads = task.groups[place.group]["launch"].get("per") == "leader"
        self.ranks = (_launched_ranks() if leads else Ranks)(loop, task, place, sink)
        self.ranks.on_failed = self._on_failed
        self.ranks.on_well = lambda rank, seconds: self._report("well", rank=rank, seconds=seconds)
        self.ranks.on_done = self._on_done

    def obey(self, message: dict[str, object]) -> None:
        """Carry out an order of the leader."""
        order = message.get("say")
        if order == "prepare" and not self.leaving:
            self.needed = True
            self._prepare(message)
        elif order == "start" and not self.leaving:
            self._start(message)
        elif order == "spared":
            self._note_spared(message.get("count"))
        elif order == "stop":
            asks = str(message.get("stacks") or "")
            within = stopping.seconds_in(message.get("within"))
            then = partial(self._report_stopped, asks == "look")
            notice = message.get("notice")
            why = notice if isinstance(notice, dict) else None
            self.stop_ranks(then, stopping.asked_for(message), asks, within, why)
            self.when_ordered_to_stop()
        elif order in ("look", "time"):
            self._look(message)
        elif order == "command":
            self.on_command(message)
        elif order == "checkpoint" and self.checkpoints is not None:
            self.checkpoints.ask(message)
        elif order in ("finish", "release", "leave", "give-way", "keeper", "code"):
            if order == "finish":
                self._close_rendezvous()
            self.on_finish(message)

    def stop_ranks(
        self,
        then: Callable[[], object],
        signal: str = stopping.TERMINATE,
        ask_first: str = "",
        within: float | None = None,
        notice: dict[str, object] | None = None,
    ) -> None:
        """Stop the ranks, if any run, and call `then()`; those that have not ended `within` so many seconds,
        or else by the task's grace, are killed. With `ask_first` they tell where they are before; `notice`
        says why they are stopped, if it is not for the loss of the leader.
        """
        if self.busy:
            why = stopping.notice(stopping.FAILURE, "worker 0") if notice is None else notice
            self.ranks.stop(signal, lambda: self._stopped(then), ask_first, within, why)
        else:
            then()

    def _look(self, message: dict[str, object]) -> None:
        """Tell where the ranks are, or when they called their last collectives, while they go on."""
        generation, number = self._generation, message.get("number")
        if not self.busy or message.get("generation") != generation:
            return
        times = message["say"] == "time"

        def answer(ranks: dict[str, dict[str, Any]]) -> None:
            if self.busy and self._generation == generation:
                self._report("timed" if times else "looked", number=number, ranks=ranks)

        what = "times" if times else "stacks" if message.get("stacks") else "recorders"
        self.ranks.look(what, answer)

    def elapsed(self) -> float | None:
        """How long ago the run's first generation started, as far as this worker knows."""
        return None if self._began is None else time.monotonic() - self._began

    def _prepare(self, message: dict[str, object]) -> None:
        """Get ready, once nothing of the generation before is left: its ranks may still be saving when a new
        leader calls.
        """

        generation = int(message["generation"])  # type: ignore[call-overload]
        members = message.get("members")
        task = self._task.of(members) if isinstance(members, list) else self._task

        def find_modules() -> None:
            self.ranks.find_modules(lambda: self._reserve(generation, task))

        def set_up() -> None:
            if self.checkpoints is None or "back" not in message:
                find_modules()
            else:
                self.checkpoints.bring_back(
                    generation, message["back"], lambda problem: self._came_back(problem, find_modules)
                )

        self.stop_ranks(lambda: self.when_set_up(set_up))

    def _came_back(self, problem: str, then: Callable[[], object]) -> None:
        if not problem:
            then()
            return
        number = self._place.worker
        summary = "worker %d: the newest safe checkpoint does not come back: %s" % (number, problem)
        self.send({"say": "unfit", "cause": {"summary": summary, "worker": number, "exit_code": 1}})

    def _reserve(self, generation: int, task: Task) -> None:
        place = next((each for each in task.places if each.worker == self._place.worker), None)
        if place is None:
            return  # it has joined since, and is no part of it
        self._generation, self._part = generation, (task, place)
        if self._reservation is not None:
            self._reservation.release()
        self._close_rendezvous()
        if launch.serves_rendezvous(task, place):
            self._reservation = ports.reserve(0)
            self._serve(generation)
            return
        self._reservation = ports.reserve(launch.ports_needed(task, place))
        self._report("ready", ports=self._reservation.ports)

    def _serve(self, generation: int) -> None:
        """Serve the rendezvous of a generation, from before any rank starts until all have ended."""
        from echelon.agent.ranks.launching.rendezvous import Rendezvous, word

        address = own_address() or LOOPBACK
        try:
            self._rendezvous = Rendezvous(self._loop, address, word(self._task.secret(), generation))
        except OSError as error:
            summary = "worker 0 cannot serve the rendezvous of its ranks at %s: %s" % (address, error)
            if ":" in address:
                summary += " (Horovod speaks IPv4 only)"
            cause = {"summary": summary, "worker": self._place.worker, "exit_code": 1}
            self.send({"say": "unfit", "cause": cause})
            return
        self._report("ready", ports=[self._rendezvous.port])

    def _close_rendezvous(self) -> None:
        if self._rendezvous is not None:
            self._rendezvous.close()
            self._rendezvous = None

    def _start(self, message: dict[str, object]) -> None:
        if message["generation"] != self._generation or self._reservation is None:
            return
        self.last_started = self._generation
        self._note_spared(message.get("spared"))
        self.busy = self.ran = True
        self._began = time.monotonic() - float(message.get("elapsed", 0.0))  # type: ignore[arg-type]
        self._reservation.open_up()
        task, place = self._part
        roll = Roll(task, message["addresses"], message["ports"], message.get("own"))  # type: ignore[arg-type]
        self.ranks.start(self._generation, roll, place)
        if self.checkpoints is not None:
            self.checkpoints.started(self._generation)
        generation = self._generation
        self._loop.call_later(SAMPLED_AFTER, lambda: self._begin_samples(generation))

    def _begin_samples(self, generation: int) -> None:
        if self.busy and self._generation == generation and self._sampler is None:
            from echelon.agent.ranks.usage.sampler import Sampler  # what only running ranks need

            self._sampler = Sampler(
                self._loop, self._task, self.ranks, lambda sample: self._report("sample", sample=sample)
            )

    def _end_samples(self) -> None:
        if self._sampler is not None:
            self._sampler.end()
            self._sampler = None

    def _note_spared(self, count: object) -> None:
        if type(count) is int and count > self.spared:
            self.spared = count

    def _on_failed(self, end: dict[str, object]) -> None:
        self._report("failed", end=end)

    def _on_done(self) -> None:
        self.busy = self.needed = False
        self._end_samples()
        self._end_checkpoints()
        self._report("done")

    def _end_checkpoints(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.ended(self.ranks.ended_by_themselves())

    def _stopped(self, then: Callable[[], object]) -> None:
        self.busy = False
        self._end_samples()
        self._end_checkpoints()
        self._close_rendezvous()
        then()

    def _report_stopped(self, looked: bool = False) -> None:
        more = {"looks": self.ranks.left} if looked else {}
        self._report("stopped", places=self.ranks.places, killed=self.ranks.killed, **more)

    def _report(self, what: str, **more: object) -> None:
        message: dict[str, object] = {"say": what, "generation": self._generation}
        message.update(more)
        self.send(message)


def _launched_ranks() -> type[Ranks]:
    from echelon.agent.ranks.launched import LaunchedRanks  # most runs have no launcher

    return LaunchedRanks
