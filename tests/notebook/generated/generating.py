"""Random notebooks of three to five steps: a few idioms each, whose parts are spread over the steps."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from tests.notebook.generated.idioms import IDIOMS

Cells = list[tuple[str, str]]


def notebook(seed: int, idioms: Mapping[str, str] = IDIOMS) -> Cells:
    """The notebook of a number: always the same."""
    chance = random.Random(seed)
    count = chance.randint(3, 5)
    steps: list[list[str]] = [[] for _ in range(count)]
    prelude: list[str] = []
    names = sorted(idioms)
    for number in range(chance.randint(2, 5)):
        spread(chance, numbered(idioms[chance.choice(names)], number), steps, prelude)
    return laid_out(steps, prelude)


def alone(text: str, *, in_prelude: bool = False) -> Cells:
    """A notebook of one idiom, each part in a step of its own."""
    parts = numbered(text, 0).split("\n---\n")
    prelude = [parts.pop(0).removeprefix("|")] if in_prelude else []
    return laid_out([[part.removeprefix("|")] for part in parts], prelude)


def numbered(text: str, number: int) -> str:
    """An idiom with names of its own."""
    return re.sub(r"N(?![A-Za-z])", str(number), text)


def spread(chance: random.Random, text: str, steps: list[list[str]], prelude: list[str]) -> None:
    """Put the parts of an idiom into steps, each after the one before it."""
    parts = text.split("\n---\n")
    if parts[0].startswith("|"):
        parts[0] = parts[0][1:]
        if chance.random() < 0.5:
            prelude.append(parts.pop(0))
    places = sorted(chance.choices(range(len(steps)), k=len(parts)))
    places[-1] = len(steps) - 1
    for place, part in zip(places, parts, strict=True):
        steps[place].append(part)


def laid_out(steps: list[list[str]], prelude: list[str]) -> Cells:
    """The cells: those of one step follow each other, and the steps are a chain."""
    cells: Cells = [("functions", part) for part in prelude]
    before = ""
    for number, parts in enumerate(steps):
        tags = f"step:s{number} {before}".strip()
        # A cell magic has a cell of its own; other parts may share one.
        for part in _together(parts) or ["pass"]:
            cells.append((tags, part))
            tags = ""
        before = f"prev:s{number}"
    return cells


def _together(parts: list[str]) -> list[str]:
    found: list[str] = []
    for part in parts:
        if found and not re.match(r"%%", part) and not re.match(r"%%", found[-1]):
            found[-1] += "\n" + part
        else:
            found.append(part)
    return found
