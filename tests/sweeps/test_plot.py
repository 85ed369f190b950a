"""`metrics NAME --plot` of a sweep: the best so far, and the curves of all trials."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.model.program import Objective, Step
from echelon.model.trials import best_so_far, short

Call = Callable[..., subprocess.CompletedProcess[str]]


def step(value: float | None, ended: float, state: str = "succeeded") -> Step:
    return Step(name=str(ended), state=state, value=value, ended=ended)  # type: ignore[arg-type]


def test_the_best_so_far_in_the_order_of_their_ends() -> None:
    steps = [step(3, 3), step(5, 1), step(1, 4, "failed"), step(None, 5), step(4, 2), step(2, 6, "kept")]
    assert best_so_far(steps, Objective(metric="loss")) == [5, 4, 3, 2]
    assert best_so_far(steps, Objective(metric="loss", goal="maximize")) == [5, 5, 5, 5]


def test_long_numbers_are_short_for_people() -> None:
    assert [short(each) for each in ("0.012345678901", "1e-05", "resnet-fifty", "32", "")] == [
        "0.0123457", "1e-05", "resnet-fifty", "32", "",
    ]  # fmt: skip


@pytest.mark.slow
def test_both_are_drawn(call: Call, home: Path) -> None:
    Path("train.py").write_text(
        "import sys\nfor s in range(3):\n    print(f'step={s} loss={float(sys.argv[1]) / (s + 1)}')"
    )
    assert (
        call("sweep", "x=1..9", "--minimize", "loss", "--name", "tune", "--", "train.py", "{x}").returncode
        == 0
    )
    drawn = call("metrics", "tune", "--plot")
    assert drawn.stdout.startswith("best loss so far (tune)\n")
    assert "* tune 1, the best" in drawn.stdout
    assert drawn.stdout.count(". 8 other trials") == 1
    assert "best loss so far" not in call("metrics", "tune", "--plot", "--metric", "other").stdout
    two = call("metrics", "tune/1", "tune/2", "--plot").stdout
    assert "other trials" not in two
