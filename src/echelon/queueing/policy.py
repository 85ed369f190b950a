"""Which queued runs start now, in which order, and why the others wait. Pure.

Runs are served by priority, then by age, and no run with GPUs overtakes another: each is admitted by a
process of its own, which knows no other's time limit. A run that can never start as it is keeps no
other waiting."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Generic, Protocol, Self, TypeVar

from echelon.model.queue import HoldingRun, Place, QueuedRun, Verdict
from echelon.values import frozen

R = TypeVar("R", bound="Room")
_SHOWN = 50  # runs, from the first on, of which `places` says more than the position
_FORESEEN = 10  # ends of runs that are looked ahead to


@frozen
class Full:
    """There is no place; `never` if there cannot be one."""

    reason: str
    never: bool = False


class Room(Protocol):
    """What is free. A value: taking a place gives another Room."""

    def take(self, run: QueuedRun) -> Seated[Self] | Full:
        """Give the run a place, under its name."""
        ...

    def without(self, names: Collection[str]) -> Self:
        """What is free once these runs have ended."""
        ...


@frozen
class Seated(Generic[R]):
    """A run has its place: what is free besides, and the GPUs it took."""

    room: R
    gpus: int


@frozen
class Decision(Generic[R]):
    """What was decided for each run in the order of the queue, and how things are once it is done."""

    verdicts: tuple[Verdict, ...]
    room: R
    holding: tuple[HoldingRun, ...]


def in_order(queue: Iterable[QueuedRun]) -> list[QueuedRun]:
    """By priority, then age; of the same moment, by name."""
    return sorted(queue, key=lambda run: (-run.priority, run.since, run.name))


def decide(queue: Iterable[QueuedRun], holding: Sequence[HoldingRun], room: R, now: float) -> Decision[R]:
    """Decide for every queued run, from the first to the last."""
    held = list(holding)
    ahead: list[str] = []
    verdicts: list[Verdict] = []
    for run in in_order(queue):
        if run.gpus and ahead:
            more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
            verdicts.append(Verdict(run=run, why="reserved", reason=f"queued behind {ahead[0]}{more}"))
            ahead.append(run.name)
            continue
        seated = room.take(run)
        if isinstance(seated, Full):
            verdicts.append(
                Verdict(run=run, why="never" if seated.never else "no-room", reason=seated.reason)
            )
            if run.gpus and not seated.never:
                ahead.append(run.name)
            continue
        verdicts.append(Verdict(run=run, why="starts"))
        room = seated.room
        ends = None if run.job.timeout is None else now + run.job.timeout
        held.append(HoldingRun(name=run.name, gpus=seated.gpus, user=run.user, ends=ends))
    return Decision(verdicts=tuple(verdicts), room=room, holding=tuple(held))


def places(queue: Iterable[QueuedRun], holding: Sequence[HoldingRun], room: R, now: float) -> list[Place]:
    """Where each run stands, why, and when it could start: as the same decisions come out at the times when
    runs end by their time limits. A run that starts sooner or ends sooner moves the others forward.
    """
    waiting = in_order(queue)
    first = decide(waiting[:_SHOWN], holding, room, now)
    starts = _forecast(first, now)
    far = [Verdict(run=run, why="reserved", reason=f"{_SHOWN} runs are ahead") for run in waiting[_SHOWN:]]
    return [
        Place(
            name=verdict.run.name,
            position=number,
            why=verdict.why,
            reason=verdict.reason,
            priority=verdict.run.priority,
            gpus=verdict.run.gpus,
            since=verdict.run.since,
            user=verdict.run.user,
            namespace=verdict.run.namespace,
            earliest=starts.get(verdict.run.name),
        )
        for number, verdict in enumerate((*first.verdicts, *far), start=1)
    ]


def _forecast(decision: Decision[R], now: float) -> dict[str, float]:
    starts: dict[str, float] = {}
    clock = now
    for _ in range(_FORESEEN):
        starts |= {each.run.name: clock for each in decision.verdicts if each.why == "starts"}
        waiting = [each.run for each in decision.verdicts if each.why not in ("starts", "never")]
        ends = [each.ends for each in decision.holding if each.ends is not None]
        if not waiting or not ends:
            return starts
        clock = max(clock, min(ends))
        gone = {each.name for each in decision.holding if each.ends is not None and each.ends <= clock}
        stay = tuple(each for each in decision.holding if each.name not in gone)
        decision = decide(waiting, stay, decision.room.without(gone), clock)
    return starts
