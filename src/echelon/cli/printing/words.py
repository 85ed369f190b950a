"""How single things are written for people: states, times, paths, ranks, causes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.cli.printing.say import style
from echelon.model.display import duration
from echelon.model.resources import format_memory

if TYPE_CHECKING:
    from echelon.model.event import Event, RootCause
    from echelon.model.program import Step
    from echelon.model.status import Status

__all__ = [
    "RANK_COLOURS",
    "cause_lines",
    "checkpoint_event",
    "duration",
    "named_ranks",
    "near",
    "one_line",
    "phases",
    "ranges",
    "state",
    "step_ended",
]

RANK_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")
_STATE_COLOURS = {
    "running": "green", "succeeded": "green", "failed": "red", "lost": "red", "timed-out": "red",
    "damaged": "red", "queued": "yellow", "restarting": "yellow", "stopping": "yellow",
}  # fmt: skip


def state(name: str) -> str:
    """A state in its colour."""
    return style(name, fg=_STATE_COLOURS.get(name))


def phases(status: Status, now: float) -> str:
    """How long a run was in each of its phases so far, which sum to its time: in the queue; in a cluster,
    until every worker was scheduled, had its image and ran an agent; until its ranks ran; from then to the
    last restart, whatever happened there; and from then on.
    """
    in_pods, again = status.namespace is not None, status.restarts > 0
    moments = [
        ("queued", status.created),
        ("pulling" if in_pods and not again else "starting", status.started),
        ("starting", status.agents_since if in_pods and not again else None),
        ("earlier starts", status.trained_first if again else None),
        ("training", status.training_since),
    ]
    begun = [(name, at) for name, at in moments if at is not None]
    ends = [*(at for _, at in begun[1:]), status.ended or now]
    return ", ".join(f"{name} {duration(end - at)}" for (name, at), end in zip(begun, ends, strict=True))


def near(path: str | None) -> str:
    """A path as it is seen from here."""
    if path is None:
        return "-"
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (OSError, ValueError):
        return path


def ranges(numbers: Sequence[int]) -> str:
    """0-3, 6."""
    parts: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ", ".join(parts)


def named_ranks(ranks: Sequence[int]) -> str:
    """Rank 3; ranks 0-3, 6."""
    return f"rank{'s' * (len(ranks) != 1)} {ranges(sorted(ranks))}"


def one_line(text: str) -> str:
    """Text that may hold anything, as one line of a table."""
    return " ".join(text.split())


def step_ended(step: Step, *, took: bool = False) -> str:
    """How a step ended, with the cell that failed, and how long it took if that is wanted."""
    time = ""
    if took and step.started is not None and step.ended is not None:
        time = f" {'in' if step.state == 'succeeded' else 'after'} {duration(step.ended - step.started)}"
    line = f", line {step.line}" if step.line else ""
    where = f" in cell {step.cell}{line}" if step.cell else ""
    reason = f": {step.reason}" if step.reason else ""
    word = "trial" if step.params else "step"
    return f"{word} {step.name} {step.state.replace('-', ' ')}{time}{where}{reason}"


def checkpoint_event(event: Event) -> str:
    """What became of a checkpoint; "" for any other event."""
    if event.path is None:
        return ""
    if event.kind == "checkpoint":
        size = "" if event.size is None else f" ({format_memory(event.size)})"
        return f"checkpoint {event.path}{size} is with the keeper"
    return f"worker {event.worker} got {event.path} back" if event.kind == "restored" else ""


def resized_event(event: Event) -> str:
    """Who takes part since a start, and what has changed; "" for any other event."""
    if event.kind != "resized" or event.workers is None:
        return ""
    count = len(event.workers)
    who = f"{count} worker{'s' * (count != 1)} take{'s' * (count == 1)} part: {ranges(event.workers)}"
    return f"{who} ({event.reason})" if event.reason else who


def cause_lines(cause: RootCause, *, with_tail: bool) -> list[str]:
    """Why a run failed, beyond its reason: which rank, its last lines, and which ranks followed."""
    lines = []
    if cause.rank is not None:
        lines.append(f"  first to fail: rank {cause.rank} (worker {cause.worker})")
    if cause.error and cause.error not in cause.summary:
        lines.append(f"  error: {cause.error}")
    if cause.hint:
        lines.append(f"  hint: {one_line(cause.hint)}")
    if cause.peers:
        lines.append(f"  {one_line(cause.peers)}")
    if with_tail and cause.tail:
        lines.append("  its last lines:")
        lines += [f"    {text}" for text in cause.tail[-12:]]
    followed = [end for end in cause.others if end.consequence]
    failed = [end for end in cause.others if not end.consequence]
    if followed:
        lines.append(f"  failed because of it: {named_ranks([end.rank for end in followed])}")
    if failed:
        lines.append(f"  failed too: {named_ranks([end.rank for end in failed])}")
    return lines
