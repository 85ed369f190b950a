"""How single things are written for people: states, times, paths, ranks, causes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from echelon.model.event import RootCause

_STATE_COLOURS = {
    "running": "green", "succeeded": "green", "failed": "red", "lost": "red", "timed-out": "red",
    "damaged": "red", "queued": "yellow", "restarting": "yellow", "stopping": "yellow",
}  # fmt: skip


def style(text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
    """Give text a colour, unless the user wants none; click takes it away where there is no terminal."""
    return click.style(text, fg=fg, bold=bold) if coloured() and (fg or bold) else text


def coloured() -> bool:
    """Whether the user wants colours: see no-color.org, and what a dumb terminal can do."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def state(name: str) -> str:
    """A state in its colour."""
    return style(name, fg=_STATE_COLOURS.get(name))


def duration(seconds: float) -> str:
    """A time as people write it: 4.2 s, 3 m 10 s, 2 h 5 m."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} m"
    return f"{hours // 24} d {hours % 24} h"


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


def cause_lines(cause: RootCause, *, with_tail: bool) -> list[str]:
    """Why a run failed, beyond its reason: which rank, its last lines, and which ranks followed."""
    lines = []
    if cause.rank is not None:
        lines.append(f"  first to fail: rank {cause.rank} (worker {cause.worker})")
    if cause.error and cause.error not in cause.summary:
        lines.append(f"  error: {cause.error}")
    if with_tail and cause.tail:
        lines.append("  its last lines:")
        lines += [f"    {text}" for text in cause.tail[-12:]]
    followed = [end for end in cause.others if end.consequence]
    failed = [end for end in cause.others if not end.consequence]
    if followed:
        lines.append(f"  died of the consequence: {named_ranks([end.rank for end in followed])}")
    if failed:
        lines.append(f"  failed too: {named_ranks([end.rank for end in failed])}")
    return lines
