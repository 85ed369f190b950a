"""Which queued runs start now, in which order, and why the others wait. Pure.

Runs are served by priority, then by age. Three rules hold beside that:

- Limits: what the runs of a user, or of a namespace, hold stays within theirs. A run that would exceed one
  waits and keeps no run of others waiting.
- A run that does not fit is overtaken by later ones that fit, until it has waited for `Rules.overtake`. From
  then on what it could use is kept for it: a later run starts only if that does not delay it. Until then,
  one that says only how many GPUs it needs waits for a node that holds all of them, if there is such a node;
  then it takes several.
- Backfill: where the ends of runs are known by their time limits, so is the time at which the waiting run
  could start; a later run that does not move that time starts. Where it is not known, only a later run that
  uses no node of the waiting one's starts.

The age counts from the submission, which the run's record has, so that the decision needs no memory: a
process that takes over from another decides the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic

from echelon.model.queue import HoldingRun, Limits, Place, QueuedRun, Rules, Verdict, Why
from echelon.queueing.delays import FORESEEN, Checks, Future, Kept
from echelon.queueing.rooms import Full, R, Seated
from echelon.values import frozen

_SHOWN = 50  # runs, from the first on, of which `places` tells more than the position
_TIMED = 200  # waiting runs whose start is looked for; behind more of them, what competes waits


@frozen
class Decision(Generic[R]):
    """What was decided for each run in the order of the queue, and how things are once it is done."""

    verdicts: tuple[Verdict, ...]
    room: R
    holding: tuple[HoldingRun, ...]


def in_order(queue: Iterable[QueuedRun]) -> list[QueuedRun]:
    """By priority, then age; of the same moment, by name."""
    return sorted(queue, key=lambda run: (-run.priority, run.since, run.name))


def decide(
    queue: Iterable[QueuedRun], holding: Sequence[HoldingRun], room: R, rules: Rules, now: float
) -> Decision[R]:
    """Decide for every queued run, from the first to the last."""
    held = list(holding)
    used = _used(held)
    future = Future(room, held, now)
    kept: list[Kept] = []
    checks = Checks(room, future)  # until a run starts
    shut: set[tuple[str, str]] = set()  # limits that an older run of theirs waits for
    verdicts: list[Verdict] = []
    for run in in_order(queue):
        if rules.strict and run.gpus and (ahead := _waiting_before(verdicts)):
            more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
            text = f"queued behind {ahead[0]}{more}"
            verdicts.append(Verdict(run=run, why="reserved", reason=text, behind=ahead[0]))
            continue
        aged = now - run.since >= rules.overtake
        whole = not (aged or rules.strict)
        bounds = list(_bounds(run, used, rules.limits)) if run.gpus else []
        reached = next((each for each in bounds if each.key in shut or each.left < run.gpus), None)
        if reached is not None:
            verdicts.append(_limited(run, reached))
            if aged and reached.most >= run.gpus:
                shut.add(reached.key)
            continue
        most = min((each.left for each in bounds), default=None)
        kind, ends = (room.kind(run), most, whole), _end_of(run, now)
        delayed = checks.recall(kept, kind, ends)
        seated = room.take(run, most, whole=whole) if delayed is None else None
        if isinstance(seated, Full):
            waits_for_one = whole and not seated.never and isinstance(room.take(run, most), Seated)
            verdicts.append(_for_one_node(run, rules) if waits_for_one else _full(run, seated))
            if aged and run.gpus and not seated.never:
                kept.append(Kept(run=run, start=future.start_of(run) if len(kept) < _TIMED else None))
            continue
        if seated is not None:
            delayed = checks.find_delayed(kept, run, seated, kind, ends)
        if delayed is not None:
            text = f"what it would take is kept for {delayed.name}, which has waited longer"
            verdicts.append(Verdict(run=run, why="reserved", reason=text, behind=delayed.name))
            if aged:
                kept.append(Kept(run=run, start=now if len(kept) < _TIMED else None))
            continue
        assert seated is not None
        verdicts.append(Verdict(run=run, why="starts", plan=seated.plan))
        room = seated.room
        mine = HoldingRun(name=run.name, gpus=seated.gpus, user=run.user, namespace=run.namespace, ends=ends)
        held.append(mine)
        for key in _keys(mine):
            used[key] = used.get(key, 0) + mine.gpus
        future = Future(room, held, now)
        checks = Checks(room, future)
    return Decision(verdicts=tuple(verdicts), room=room, holding=tuple(held))


def _waiting_before(verdicts: Iterable[Verdict]) -> list[str]:
    return [each.run.name for each in verdicts if each.run.gpus and each.why not in ("starts", "never")]


def places(
    queue: Iterable[QueuedRun], holding: Sequence[HoldingRun], room: R, rules: Rules, now: float
) -> list[Place]:
    """Where each run stands, why, and when it could start: as the same decisions come out at the times when
    runs end by their time limits. A run that starts sooner or ends sooner moves the others forward.
    """
    waiting = in_order(queue)
    first = decide(waiting[:_SHOWN], holding, room, rules, now)
    starts = _forecast(first, rules, now)
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


def _forecast(decision: Decision[R], rules: Rules, now: float) -> dict[str, float]:
    starts: dict[str, float] = {}
    clock = now
    for _ in range(FORESEEN // 3):
        starts |= {each.run.name: clock for each in decision.verdicts if each.why == "starts"}
        waiting = [each.run for each in decision.verdicts if each.why not in ("starts", "never")]
        ends = [each.ends for each in decision.holding if each.ends is not None]
        if not waiting or not ends:
            return starts
        clock = max(clock, min(ends))
        gone = {each.name for each in decision.holding if each.ends is not None and each.ends <= clock}
        stay = tuple(each for each in decision.holding if each.name not in gone)
        decision = decide(waiting, stay, decision.room.without(gone), rules, clock)
    return starts


@frozen
class _Bound:
    """A limit that a run counts to, and what is left of it."""

    key: tuple[str, str]
    most: int
    left: int


def _bounds(run: QueuedRun, used: Mapping[tuple[str, str], int], limits: Limits) -> Iterator[_Bound]:
    most = (limits.users.get(run.user, limits.user), limits.namespaces.get(run.namespace, limits.namespace))
    for key, limit in zip(_keys(run), most, strict=True):
        if limit is not None:
            yield _Bound(key=key, most=limit, left=limit - used.get(key, 0))


def _keys(run: QueuedRun | HoldingRun) -> tuple[tuple[str, str], tuple[str, str]]:
    """Whose limits a run counts to."""
    return ("user", run.user), ("namespace", run.namespace)


def _used(holding: Iterable[HoldingRun]) -> dict[tuple[str, str], int]:
    """The GPUs that the runs of each user and namespace hold."""
    found: dict[tuple[str, str], int] = {}
    for each in holding:
        for key in _keys(each):
            found[key] = found.get(key, 0) + each.gpus
    return found


def _full(run: QueuedRun, full: Full) -> Verdict:
    return Verdict(run=run, why="never" if full.never else "no-room", reason=full.reason)


def _for_one_node(run: QueuedRun, rules: Rules) -> Verdict:
    text = (
        f"waiting for {run.gpus} GPUs on one node; {rules.overtake:g} s after its submission several will do"
    )
    return Verdict(run=run, why="one-node", reason=text)


def _limited(run: QueuedRun, bound: _Bound) -> Verdict:
    kind, whose = bound.key
    limit = f"{kind} {whose} may hold {bound.most} GPUs at a time"
    if bound.most < run.gpus:
        return Verdict(run=run, why="never", reason=f"it needs {run.gpus} GPUs, and {limit}")
    why: Why = "user-limit" if kind == "user" else "namespace-limit"
    return Verdict(run=run, why=why, reason=f"{limit}, and holds {bound.most - bound.left}")


def _end_of(run: QueuedRun, now: float) -> float | None:
    return None if run.job.timeout is None else now + run.job.timeout
