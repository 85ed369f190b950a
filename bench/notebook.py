"""What a pipeline costs: each step against the same cells in one process, a hundred steps, and a large array
between two steps against a plain copy of its file.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

from measure.figures import Figure, Line, Target, show
from measure.rounds import Workspace, program, seconds_of, take_turns, workspace

ROUNDS = 3
STEPS = 10
MEGABYTES = 1000
_LARGE = f"import numpy as np\nlarge = np.arange({MEGABYTES} * 125_000, dtype='float64')"


def main() -> None:
    with workspace() as place:
        _chain(place)
        _hundred(place)
        _array(place)


def _chain(place: Workspace) -> None:
    cells = [("step:s0", "x = 0")]
    cells += [(f"step:s{at} prev:s{at - 1}", "x = x + 1") for at in range(1, STEPS)]
    _write(place.path / "chain.ipynb", cells)
    _write(place.path / "one.ipynb", [("step:s0", "\n".join(text for _, text in cells))])
    (place.path / "cells.py").write_text("\n".join(text for _, text in cells))
    contenders = {
        name: lambda words=words: seconds_of(place, words)
        for name, words in {
            "steps": _command("chain.ipynb"),
            "step": _command("one.ipynb"),
            "python": [sys.executable, "cells.py"],
        }.items()
    }
    samples = take_turns(ROUNDS, contenders)
    each = [
        (many - one) / (STEPS - 1) * 1000 for many, one in zip(samples["steps"], samples["step"], strict=True)
    ]
    whole = [seconds * 1000 for seconds in samples["steps"]]
    plain = Figure(
        name="the cells in one process", samples=[seconds * 1000 for seconds in samples["python"]], unit="ms"
    )
    limit = Target(limit=500, sense="at most", of="figure")
    show(
        f"A chain of {STEPS} steps that do nothing ({ROUNDS} rounds)",
        [
            Line(figure=Figure(name="each further step", samples=each, unit="ms"), target=limit),
            Line(figure=Figure(name="the whole pipeline", samples=whole, unit="ms"), peer=plain),
        ],
    )


def _hundred(place: Workspace) -> None:
    cells = [("step:first", "x = 1"), *((f"step:s{at} prev:first", f"y{at} = x + {at}") for at in range(98))]
    after = " ".join(f"prev:s{at}" for at in range(98))
    cells += [(f"step:last {after}", f"print(sum([{', '.join(f'y{at}' for at in range(98))}]))")]
    _write(place.path / "hundred.ipynb", cells)
    took = seconds_of(place, _command("hundred.ipynb"))
    figure = Figure(name="each of a hundred", samples=[took / 100 * 1000], unit="ms")
    limit = Target(limit=500, sense="at most", of="figure")
    show("100 steps, 98 of them side by side (once)", [Line(figure=figure, target=limit)])


def _array(place: Workspace) -> None:
    _write(place.path / "large.ipynb", [("step:make", _LARGE), ("step:use prev:make", "print(large[-1])")])
    _write(place.path / "small.ipynb", [("step:make", _LARGE), ("step:use prev:make", "print(1)")])
    command = program("echelon")
    seconds = []
    for _ in range(2):
        times = [seconds_of(place, [command, *_words(name)]) for name in ("large.ipynb", "small.ipynb")]
        seconds.append(max(times[0] - times[1], 1e-3))
    file = next((place.path / "runs").glob("large-*/values/make/large/1.npy"))
    copies = []
    for number in range(2):
        began = time.perf_counter()
        shutil.copyfile(file, place.path / f"copy-{number}")
        copies.append(MEGABYTES / (time.perf_counter() - began))
        (place.path / f"copy-{number}").unlink()
    through = [MEGABYTES / each for each in seconds]
    show(
        f"An array of {MEGABYTES} MB from one step to the next (2 rounds)",
        [
            Line(
                figure=Figure(
                    name="written, verified, read", samples=through, unit="MB/s", more_is_better=True
                ),
                peer=Figure(name="a plain copy", samples=copies, unit="MB/s", more_is_better=True),
            )
        ],
    )


def _words(name: str) -> list[str]:
    return ["notebook", "run", name, "--python", sys.executable]


def _command(name: str) -> list[str]:
    return [program("echelon"), *_words(name)]


def _write(path: Path, cells: list[tuple[str, str]]) -> None:
    made = [
        {"cell_type": "code", "metadata": {"tags": tags.split()}, "source": text, "outputs": []}
        for tags, text in cells
    ]
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


if __name__ == "__main__":
    main()
