"""What a run is doing, in sentences, what costs most first: why it does not run, who keeps its ranks
waiting, or why it ended. Pure but for `look`, which reads what they are made of.

Nothing is judged here that is judged elsewhere: the status says that a run is stuck, what its workers wait
for and what ended it; samples say how late each rank comes, and what slows a GPU down."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal, get_args

from echelon.engines.base import Engine
from echelon.errors import EchelonError
from echelon.model.display import duration
from echelon.model.engine.sample import GpuSample, Lateness, Samples, gpus_of
from echelon.model.engine.usage import RunUsage, WorkerUse, usage_of
from echelon.model.event import RootCause
from echelon.model.output.progress import words
from echelon.model.resources import format_memory
from echelon.model.run import RunRef
from echelon.model.status import FINAL, Status
from echelon.observation.standing import Start, later_starts
from echelon.values import frozen

Kind = Literal[  # what costs most first
    "damaged",  # what was written down of it cannot be read
    "failed",
    "lost",
    "timed-out",
    "stopped",
    "stuck",  # its ranks wait for each other in vain
    "queued",
    "pending",  # its workers wait for a place or for what they need; `trouble` is the kind
    "pulling",  # an image is on its way
    "starting",
    "restarting",
    "stopping",
    "quiet",  # its ranks stand still, and none is known to wait for another
    "slow",  # the others wait for `ranks`
    "throttled",  # the clock of a GPU is held down
    "memory",  # a worker has nearly all of the memory that it may have
    "restarts",  # it was started again before
    "holding",  # it is over, and still has its place
    "missing",  # results of it are lost
    "running",  # nothing is seen that keeps it
    "recorded",  # it was never started
    "succeeded",
    "unknown",  # what cannot be seen, and why
]
_ORDER: dict[str, int] = {kind: number for number, kind in enumerate(get_args(Kind))}
_WAITED = 0.05  # of the time: what others wait for a rank without a word on it
_ALIKE, _OTHERS = 1 / 2, 1 / 4  # of the longest waiting: what slow ranks have at least, and others at most
_FEW = 4  # at most one rank in so many is slow
_LATE = 0.001  # seconds: what a rank is always late now and then, as the kernel lets it run
_INEXACT = 0.005  # the same where clocks of different machines may be apart
_BEHIND = 0.9  # of the clock that other GPUs have
_FULL = 0.9  # of the memory that a worker may have
_POWER = "SW power cap"  # as every GPU has it that does all it can
_LAST_LINES = 5
_MOST = 8  # sentences of a kind


@frozen
class Reason:
    """One thing that a run does or waits for, in a sentence: `details` are more on it, `hint` is what helps.
    `trouble` is the kind of what is waited for, as in a status; `part` the step, where a run has steps.
    """

    kind: Kind
    text: str
    details: tuple[str, ...] = ()
    hint: str = ""
    trouble: str | None = None
    ranks: tuple[int, ...] = ()
    part: str = ""


def reasons(
    status: Status,
    usage: RunUsage,
    now: float,
    starts: Sequence[Start] = (),
    advice: str | None = None,
) -> tuple[Reason, ...]:
    """What a run does that stands so. `starts` are those after the first, `advice` what helps
    where the failure itself has no hint.
    """
    found = list(_ended(status, advice) if status.state in (*FINAL, "damaged") else _going(status, now))
    if status.state == "running":
        found += beside(usage)
    if starts:
        count = f"{len(starts)} times" if len(starts) > 1 else "once"
        ago = duration((status.ended or now) - starts[-1].at)
        before = "before its end" if status.ended is not None else "ago"
        text = f"it was started again {count}, the last time {ago} {before}"
        found.append(Reason(kind="restarts", text=text, details=tuple(each.why for each in starts[-_MOST:])))
    return arranged(found)


def arranged(found: Sequence[Reason]) -> tuple[Reason, ...]:
    """Reasons in the order of what they cost. That a run is active is said only where there is no other."""
    others = [each for each in found if each.kind != "running"]
    kept = others if any(each.kind != "unknown" for each in others) else found
    return tuple(sorted(kept, key=lambda each: _ORDER[each.kind]))


def _ended(status: Status, advice: str | None) -> Iterator[Reason]:
    """Why a run ended, and what it still has."""
    took = f" after {duration(status.ended - status.created)}" if status.ended is not None else ""
    reason = status.reason or "no reason is known"
    if status.state == "succeeded":
        yield Reason(kind="succeeded", text=f"it succeeded{took}")
    elif status.state == "damaged":
        yield Reason(kind="damaged", text=reason)
    else:
        cause = status.root_cause
        hint = (cause.hint if cause is not None else None) or advice or ""
        if not hint and status.state != "failed":
            hint = f"`echelon resume {status.name}` starts it again in its results"
        ended = {"failed": "failed", "lost": "was lost", "timed-out": "ran out of time"}
        text = f"it {ended.get(status.state, 'was stopped')}{took}: {reason}"
        kind: Kind = status.state
        ranks = () if cause is None or cause.rank is None else (cause.rank,)
        yield Reason(kind=kind, text=text, details=tuple(_details(cause)), hint=hint, ranks=ranks)
    if status.held_until is not None:
        gpus = sum(len(worker.gpus) for worker in status.workers)
        what = f"its {gpus} GPU{'s' * (gpus != 1)}" if gpus else "its place"
        text = f"it keeps {what} until its results are fetched"
        yield Reason(kind="holding", text=text, hint=f"`echelon get {status.name}` fetches them")
    if status.missing:
        yield Reason(kind="missing", text="some of its results are lost", details=status.missing[:_MOST])


def _details(cause: RootCause | None) -> Iterator[str]:
    if cause is None:
        return
    if cause.rank is not None:
        yield f"first to fail: rank {cause.rank} (worker {cause.worker})"
    if cause.error and cause.error not in cause.summary:
        yield cause.error
    if cause.peers:
        yield cause.peers
    if not cause.error and cause.tail:
        yield "its last lines:"
        yield from (f"  {line}" for line in cause.tail[-_LAST_LINES:])


def _going(status: Status, now: float) -> Iterator[Reason]:
    """What a run does that has not ended, or what it waits for."""
    reason, trouble = status.reason, status.trouble
    because = f": {reason}" if reason else ""
    since = duration(now - (status.started or status.created))
    match status.state:
        case "recorded":
            hint = f"submit it again, or `echelon rm {status.name}`"
            yield Reason(kind="recorded", text="it was recorded and never started", hint=hint)
        case "queued":
            waited = duration(now - status.created)
            yield Reason(kind="queued", text=f"it waits in the queue for {waited}{because}", trouble=trouble)
        case "starting":
            kind: Kind = "pulling" if trouble == "pulling" else "pending" if trouble else "starting"
            details = tuple(f"worker {each.worker}: {each.reason}" for each in status.workers if each.reason)
            yield Reason(
                kind=kind,
                text=f"its workers have been starting for {since}{because}",
                details=details[:_MOST],
                trouble=trouble,
            )
        case "restarting":
            counted = f"{status.restarts - status.restarts_spared} of {status.restarts_allowed}"
            yield Reason(
                kind="restarting", text=f"it starts again, restart {counted}{because}", trouble=trouble
            )
        case "stopping":
            yield Reason(kind="stopping", text=f"it is being stopped{because}")
        case _ if trouble in ("stuck", "quiet"):
            act = "`--stall 10m` ends or restarts such a run" if trouble == "stuck" else ""
            text = reason or "its ranks stand still"
            yield Reason(
                kind="stuck" if trouble == "stuck" else "quiet",
                text=text,
                details=status.places[:_MOST],
                hint=act,
            )
        case _ if trouble or reason:
            yield Reason(kind="pending", text=reason or "something keeps a worker", trouble=trouble)
        case _:
            far = f": {', '.join(words(status.progress))}" if status.progress is not None else ""
            yield Reason(
                kind="running", text=f"it has run for {since}, and nothing is seen that keeps it{far}"
            )


def beside(usage: RunUsage) -> list[Reason]:
    """What costs time, or soon will, while all ranks of a run continue."""
    found = [_slow(usage, rank) for rank in slow_ranks(usage)]
    told = {rank for each in found for rank in each.ranks}
    for worker in usage.workers:
        own = {id(gpu) for rank in worker.ranks if rank.rank in told for gpu in gpus_of(worker, rank.rank)}
        for gpu in worker.gpus:
            if set(gpu.slowed) - {_POWER} and id(gpu) not in own:
                text = f"GPU {gpu.gpu} of worker {worker.worker}{_on(worker)} is {_throttled(gpu)}"
                found.append(Reason(kind="throttled", text=text))
        if worker.memory is not None and worker.memory_limit and worker.memory >= _FULL * worker.memory_limit:
            used, limit = format_memory(worker.memory), format_memory(worker.memory_limit)
            text = f"worker {worker.worker} uses {used} of the {limit} of memory that it may have"
            hint = "beyond that it is killed: give the workers more with --memory, or load less at a time"
            found.append(Reason(kind="memory", text=text, hint=hint))
    return found


def slow_ranks(usage: RunUsage) -> tuple[int, ...]:
    """The few ranks that others wait for much longer than for any other one, if that is worth a word; the
    worst first.
    """
    known = [(rank.rank, rank.late) for worker in usage.workers for rank in worker.ranks if rank.late]
    known.sort(key=lambda each: -each[1].waits)
    worst = known[0][1].waits if known else 0.0
    found = [(rank, late) for rank, late in known if late.waits >= _ALIKE * worst]
    others = known[len(found) :]
    few = others and len(found) <= max(1, len(known) // _FEW) and others[0][1].waits <= _OTHERS * worst
    if not few or sum(late.waits for _, late in found) < _WAITED:
        return ()
    if any(late.mean < (_LATE if late.same_clock else _INEXACT) for _, late in found):
        return ()
    return tuple(rank for rank, _ in found)


def lateness_in_words(late: Lateness) -> str:
    """How late a rank comes, in a few words."""
    return f"{_span(late.mean)}, last in {late.last:.0%}"


def _slow(usage: RunUsage, rank: int) -> Reason:
    worker = next(each for each in usage.workers if any(one.rank == rank for one in each.ranks))
    late = next(each.late for each in worker.ranks if each.rank == rank)
    assert late is not None
    text = f"rank {rank} comes last in {late.last:.0%} of collectives, {_span(late.mean)} late"
    text += f"; the others wait for it {late.waits:.0%} of the time"
    gpus = gpus_of(worker, rank)
    slowed = next((gpu for gpu in gpus if set(gpu.slowed) - {_POWER}), None)
    slowed = slowed or next((gpu for gpu in gpus if gpu.slowed and _is_behind(gpu, usage)), None)
    slower = next((gpu for gpu in gpus if _is_behind(gpu, usage)), None)
    if slowed is not None:
        text += f": its GPU is {_throttled(slowed)}"
    elif slower is not None:
        text += f": the clock of its GPU is at {_clock(slower)}, that of the others is higher"
    details = [f"it is a rank of worker {worker.worker}{_on(worker)}"]
    if not late.same_clock:
        details.append("the ranks are on machines with clocks of their own: some milliseconds are inexact")
    return Reason(kind="slow", text=text, details=tuple(details), ranks=(rank,))


def _is_behind(gpu: GpuSample, usage: RunUsage) -> bool:
    clocks = [
        each.clock for worker in usage.workers for each in worker.gpus if each.clock and each is not gpu
    ]
    return bool(clocks) and gpu.clock is not None and gpu.clock < _BEHIND * median(clocks)


def _throttled(gpu: GpuSample) -> str:
    degrees = "" if gpu.temperature is None else f", {gpu.temperature:.0f} °C"
    clock = "" if gpu.clock is None else f", at {_clock(gpu)}"
    return f"throttled ({', '.join(gpu.slowed)}{degrees}){clock}"


def _clock(gpu: GpuSample) -> str:
    of = "" if gpu.clock_most is None else f" of {gpu.clock_most:,.0f}"
    return f"{gpu.clock:,.0f}{of} MHz"


def _on(worker: WorkerUse) -> str:
    return f" on {worker.node}" if worker.node else ""


def _span(seconds: float) -> str:
    """Milliseconds, or seconds where they are many."""
    thousandths = seconds * 1000
    return duration(seconds) if seconds >= 1 else f"{thousandths:.{0 if thousandths >= 10 else 1}f} ms"


def look(engine: Engine, ref: RunRef, status: Status, advice: str | None = None) -> tuple[Reason, ...]:
    """The reasons of a run that stands so, without those of its steps. What keeps its samples from being read
    is one of them.
    """
    samples, trouble = Samples(), None
    if status.state == "running" and engine.sampling is not None and not status.steps:
        try:
            samples = engine.sampling.newest(ref)
        except EchelonError as error:
            trouble = error
    starts = later_starts(engine, ref) if status.state not in ("damaged", "recorded", "queued") else []
    found = reasons(status, usage_of(status, samples), time.time(), starts, advice)
    if trouble is None:
        return found
    text = f"who is slow is not known: {trouble.message}"
    return arranged([*found, Reason(kind="unknown", text=text, hint=trouble.hint)])
