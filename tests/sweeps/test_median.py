"""Trials that are behind the median of the others at the same step."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.errors import InvalidJob
from echelon.model.output.metric import Metric
from echelon.model.program import Objective
from echelon.sweeps.objective import Behind, Courses

Call = Callable[..., subprocess.CompletedProcess[str]]


def value(at: float, step: int | None, *, rank: int = 0, name: str = "loss") -> Metric:
    return Metric(name, at, at=0.0, rank=rank, step=step)


def courses(*finals: float, goal: str = "minimize", steps: bool = True) -> Courses:
    """Trials that have each gone in five steps from 10 to their value."""
    made = Courses(Objective(metric="loss", goal=goal))  # type: ignore[arg-type]
    for trial, final in enumerate(finals):
        for step in range(5):
            made.add(f"t{trial}", value(10 + (final - 10) * step / 4, step if steps else None))
    return made


def test_one_that_is_behind_is_told_with_the_numbers() -> None:
    made = courses(1, 2, 3, 4)
    assert made.add("new", value(10, 0)) is None
    assert made.add("new", value(10, 1)) is None
    behind = made.add("new", value(9.5, 2))
    assert behind == Behind(metric="loss", best=9.5, step=2, counted=False, median=6.25, others=4)
    assert str(behind) == "loss 9.5 at step 2 is behind the median of 4 other trials, 6.25"


@pytest.mark.parametrize(
    ("finals", "values"),
    [
        ((1, 2, 3), [10, 10, 10]),  # too few others
        ((1, 2, 3, 4), [10, 10]),  # too early
        ((1, 2, 3, 4), [6, 10, 10]),  # its best counts
        ((1, 2, 3, 4), [10, 8, 6.25]),  # as good as the median
    ],
)
def test_one_that_is_not(finals: tuple[float, ...], values: list[float]) -> None:
    made = courses(*finals)
    assert [made.add("new", value(each, step)) for step, each in enumerate(values)] == [None] * len(values)


def test_other_directions_ranks_metrics_and_steps() -> None:
    made = courses(11, 12, 13, 14, goal="maximize")
    assert [made.add("new", value(9, step)) is None for step in range(3)] == [True, True, False]
    made = courses(1, 2, 3, 4, steps=False)
    found = [made.add("new", value(10, None)) for _ in range(3)]
    assert str(found[-1]).startswith("loss 10 at value 3 is behind")
    made = courses(1, 2, 3, 4)
    assert all(made.add("new", value(10, step, name="other")) is None for step in range(4))
    assert all(made.add("new", value(10, 10 * step)) is None for step in range(1, 4))  # where nobody else was
    made = courses(1, 2, 3, 4)
    assert made.add("new", value(1, 0, rank=0)) is None
    assert all(made.add("new", value(10, step, rank=1)) is None for step in range(4))
    assert made.add("new", value(float("nan"), 2)) is None


@pytest.mark.slow
def test_a_trial_that_is_behind_ends_early(call: Call, home: Path) -> None:
    Path("train.py").write_text(
        "import sys, time\n"
        "x = int(sys.argv[1])\n"
        "for step in range(3):\n"
        "    print(f'step={step} loss={x}', flush=True)\n"
        "time.sleep(60 if x == 9 else 0)\n"
    )
    words = ["x=1,2,3,4,9", "--parallel", "1", "--early-stop", "--name", "tune"]
    alone = call("sweep", *words, "--", "train.py", "{x}")
    assert (alone.returncode, "has no metric to judge by" in alone.stderr) == (InvalidJob.exit_code, True)
    done = call("sweep", *words, "--minimize", "loss", "--", "train.py", "{x}")
    assert done.returncode == 0, done.stderr
    numbers = "loss 9 at step 2 is behind the median of 4 other trials, 2.5"
    assert "trial 5 ended early after" in done.stderr
    assert numbers in done.stderr
    row = next(line.split() for line in call("status", "tune").stdout.splitlines() if numbers in line)
    assert row[:4] == ["5", "9", "9", "ended-early"]
    assert "5 of 5 done" in call("status", "tune").stdout
