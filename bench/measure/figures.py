"""What a benchmark found, as values, and the table it is shown in. Pure, but for `show`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Unit = Literal["ms", "MB", "MB/s", "%"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """Something measured several times, in `unit`."""

    name: str
    samples: Sequence[float]
    unit: Unit
    more_is_better: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What must hold: of the figure itself, or of its ratio to the peer."""

    limit: float
    sense: Literal["at most", "at least"]
    of: Literal["figure", "ratio"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A figure beside a peer that was measured in the same run."""

    figure: Figure
    peer: Figure | None = None
    target: Target | None = None


def best(figure: Figure) -> float:
    """The sample that the rest of the machine disturbed least."""
    return max(figure.samples) if figure.more_is_better else min(figure.samples)


def ratio(line: Line) -> float | None:
    """How many times the peer's best the figure's best is."""
    return best(line.figure) / best(line.peer) if line.peer is not None and best(line.peer) else None


def judge(line: Line) -> str:
    """The target, and whether it holds; nothing where there is none."""
    target = line.target
    if target is None:
        return ""
    found = best(line.figure) if target.of == "figure" else ratio(line)
    assert found is not None, f"{line.figure.name} has a target for its ratio, but no peer"
    holds = found <= target.limit if target.sense == "at most" else found >= target.limit
    unit = f" {line.figure.unit}" if target.of == "figure" else "x"
    return f"{target.sense} {target.limit:g}{unit}: {'holds' if holds else 'MISSED'}"


def to_table(title: str, lines: Sequence[Line]) -> str:
    """The lines as text: best sample first, the median behind it. An empty column is left out."""
    rows = [("", "best", "median", "peer", "best", "median", "ratio", "target")]
    for line in lines:
        share = ratio(line)
        rows.append(
            (
                line.figure.name,
                *_values(line.figure),
                line.peer.name if line.peer else "",
                *(_values(line.peer) if line.peer else ("", "")),
                "" if share is None else f"{share:.3g}x",
                judge(line),
            )
        )
    used = [number for number in range(len(rows[0])) if any(row[number] for row in rows[1:])]
    return "\n".join([title, *align([[row[number] for number in used] for row in rows])])


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length as columns; words to the left, numbers to the right."""
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    numeric = [
        all(row[number][:1].isdigit() or not row[number] for row in rows[1:])
        for number in range(len(rows[0]))
    ]
    return [
        "  "
        + "  ".join(
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]


def number(value: float) -> str:
    """Three digits that matter, and never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def show(title: str, lines: Sequence[Line]) -> None:
    """Print the table."""
    print(to_table(title, lines), end="\n\n", flush=True)


def _values(figure: Figure) -> tuple[str, str]:
    return (
        f"{number(best(figure))} {figure.unit}",
        f"{number(statistics.median(figure.samples))} {figure.unit}",
    )
