"""Values that Optuna chooses: the same ones as in a script with its `ask` and `tell`."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from echelon.errors import InvalidJob, Unavailable
from echelon.model.program import Objective, Step
from echelon.model.settings import SweepSettings
from echelon.sweeps import search as searching
from echelon.sweeps.request import Request, request_of
from echelon.sweeps.search import Sampler, Search, example, given_to_function

Call = Callable[..., subprocess.CompletedProcess[str]]
SPACE = ["lr=1e-5..1e-1", "layers=2..8", "act=relu,tanh"]
LOSS = Objective(metric="loss")


def request(words: list[str] = SPACE, **more: Any) -> Request:
    asked = {"search": "tpe", "trials": 25, "minimize": "loss", "seed": 7, **more}
    return request_of(SweepSettings(**asked), words, str)


def search() -> Search:
    found = request().search
    assert found is not None
    return found


def loss(lr: float, layers: int, act: str) -> float:
    return (lr - 0.01) ** 2 * 100 + abs(layers - 5) + (act == "tanh")


def by_script(count: int, seed: int = 7) -> list[tuple[dict[str, Any], float]]:
    """What somebody writes who has no echelon."""
    import optuna

    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=seed))
    found = []
    for _ in range(count):
        trial = study.ask()
        values: dict[str, Any] = {
            "lr": trial.suggest_float("lr", 1e-5, 1e-1, log=True),
            "layers": trial.suggest_int("layers", 2, 8),
            "act": trial.suggest_categorical("act", ["relu", "tanh"]),
        }
        value = loss(**values)
        study.tell(trial, value)
        found.append((values, value))
    return found


def test_the_same_values_as_with_ask_and_tell() -> None:
    mine = Sampler(search(), LOSS, [])
    found = []
    for number in range(25):
        values = given_to_function(search(), mine.ask(str(number), {}))
        mine.tell(str(number), loss(**values))
        found.append((values, loss(**values)))
    assert found == by_script(25)


def test_a_trial_that_failed_counts_as_such_and_one_that_is_run_again_keeps_its_values() -> None:
    first = Sampler(search(), LOSS, [])
    one, two = first.ask("1", {}), first.ask("2", {})
    first.tell("2", 0.5)
    first.tell("1", None)
    first.tell("none", 1.0)
    ended = [
        Step(name="1", state="failed", params=one),
        Step(name="2", state="succeeded", params=two, value=0.5),
        Step(name="3"),
    ]
    again = Sampler(search(), LOSS, ended)
    assert again.ask("1", one) == one
    again.tell("1", 0.25)
    assert again.ask("3", {}) not in (one, two)


def test_what_is_asked_for() -> None:
    asked = request()
    assert [(each.name, each.kind, each.log) for each in search().space] == [
        ("lr", "float", True), ("layers", "int", False), ("act", "choice", False),
    ]  # fmt: skip
    assert [trial.values for trial in asked.trials] == [{}] * 25
    assert example(search()) == {"lr": "1e-05", "layers": "2", "act": "relu"}


@pytest.mark.parametrize(
    ("words", "more", "problem"),
    [
        (SPACE, {"minimize": None}, "nothing to search for"),
        (SPACE, {"trials": None}, "not a number of trials"),
        (SPACE, {"seeds": 2}, "not for --search tpe"),
        ([], {}, "has no parameter"),
        (["a=1,2", "A=3,4"], {}, "is there twice"),
        (["@a,b\n1,2\n3,4"], {}, "rows of a file"),
    ],
)
def test_what_cannot_be_searched(words: list[str], more: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidJob, match=problem):
        request(words, **more)


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "find_spec", lambda _name: None)
    with pytest.raises(Unavailable, match="is not installed") as missing:
        Sampler(search(), LOSS, [])
    assert missing.value.hint == "pip install 'echelon[sweep]'"


@pytest.mark.slow
def test_a_sweep_has_the_results_of_a_script(call: Call, home: Path) -> None:
    Path("train.py").write_text(
        "import sys\n"
        "lr, layers, act = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]\n"
        "print(f\"loss={(lr - 0.01) ** 2 * 100 + abs(layers - 5) + (act == 'tanh')!r}\")\n"
    )
    options = ["--trials", "12", "--search", "tpe", "--seed", "7", "--minimize", "loss", "--parallel", "1"]
    done = call("sweep", *SPACE, *options, "--name", "tune", "--", "train.py", "{lr}", "{layers}", "{act}")
    assert done.returncode == 0, done.stderr
    with Path("runs/tune/trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = [
        ({"lr": float(row["lr"]), "layers": int(row["layers"]), "act": row["act"]}, float(row["loss"]))
        for row in rows
    ]
    assert found == by_script(12)
