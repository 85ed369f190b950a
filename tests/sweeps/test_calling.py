"""Sweeps from Python, with the real executor."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import PATIENCE

import echelon
from echelon.errors import CannotShip, InvalidJob, StateTrouble

SCRIPT = "import sys\nprint('loss=' + sys.argv[1])\n"


def train(lr: float, layers: int, opt: str | None = None, scale: float = 1.0) -> dict[str, object]:
    print(f"loss={lr * layers * scale}")
    return {"lr": lr, "layers": layers, "opt": opt}


@pytest.mark.slow
@pytest.mark.core
def test_the_best_of_a_function(home: Path) -> None:
    sweep = echelon.sweep(
        train,
        {"lr": [0.5, 0.25], "layers": "2..3", "opt": ["adam", None]},
        kwargs={"scale": 2.0},
        minimize="loss",
        parallel=2,
    )
    best = sweep.best(PATIENCE * 4)
    assert (best.state, best.value) == ("succeeded", 1.0)
    assert (best.values["lr"], best.values["layers"]) == (0.25, 2)
    assert best.run is not None
    assert best.run.result() == dict(best.values)
    found = sweep.trials()
    assert len(found) == 8
    assert [trial.value for trial in found] == sorted(trial.value or 0 for trial in found)
    assert {trial.values["opt"] for trial in found} == {"adam", None}


@pytest.mark.slow
def test_a_script_and_one_that_reaches_nothing(home: Path) -> None:
    Path("train.py").write_text(SCRIPT)
    sweep = echelon.sweep("train.py", {"lr": [1, 2]}, args=["{lr}"], maximize="loss", name="tune")
    best = sweep.best(PATIENCE * 2)
    assert (best.name, best.value, best.values) == ("2", 2.0, {"lr": "2"})
    other = echelon.sweep("train.py", {"lr": [1]}, args=["{lr}"], maximize="accuracy")
    with pytest.raises(StateTrouble, match="has reached a value of accuracy"):
        other.best(PATIENCE * 2)
    assert echelon.attach("tune").status().step_word == "trial"


@pytest.mark.parametrize(
    ("space", "more", "error"),
    [
        ([1, 2], {}, InvalidJob),
        ({"lr": 3}, {}, InvalidJob),
        ({"lr": []}, {}, InvalidJob),
        ({"lr": [object()], "layers": [1]}, {}, InvalidJob),
        ({"lr": [float("nan")], "layers": [1]}, {}, InvalidJob),
        ({"lr": [1, 1], "layers": [1]}, {}, InvalidJob),
        ({"lr": [1], "layers": [1]}, {"kwargs": {"lr": 2}}, InvalidJob),
        ({"lr": [1]}, {}, CannotShip),  # train has no value for layers
        ({"lr": [1], "layers": [1], "depth": [1]}, {}, CannotShip),
        ({"lr": [1], "layers": [1]}, {"no_such": 1}, InvalidJob),
        ({"lr": [1], "layers": [1]}, {"dry_run": True}, InvalidJob),
    ],
)
def test_what_cannot_work_is_refused_before_anything_exists(
    home: Path, space: object, more: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        echelon.sweep(train, space, **more)  # type: ignore[arg-type]
    assert not Path("runs").exists()
    assert list(echelon.runs()) == []
