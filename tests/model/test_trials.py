"""The trials of a sweep beside each other."""

from __future__ import annotations

from echelon.model.program import Objective, Step
from echelon.model.trials import best_of, by_objective, steps_as_csv, words_of_best

TRIALS = [
    Step(name="1", state="succeeded", params={"lr": "1e-3"}, value=0.5, started=1.0, ended=3.5, exit_code=0),
    Step(name="2", state="failed", params={"lr": "3e-4"}, value=0.1, reason="ValueError: a, b", exit_code=1),
    Step(name="3", state="kept", params={"lr": "1e-4"}, value=0.25),
    Step(name="4", params={"lr": "1e-5"}),
]


def test_the_best_first_and_those_without_a_value_last() -> None:
    low, high = Objective(metric="loss"), Objective(metric="acc", goal="maximize")
    assert [trial.name for trial in by_objective(TRIALS, low)] == ["2", "3", "1", "4"]
    assert [trial.name for trial in by_objective(TRIALS, high)] == ["1", "3", "2", "4"]
    assert [trial.name for trial in by_objective(TRIALS, None)] == ["1", "2", "3", "4"]
    assert words_of_best(TRIALS, low) == "best loss 0.25 (lr=1e-4)"  # and not of one that has failed
    assert best_of(TRIALS, high) == TRIALS[0]
    assert words_of_best(TRIALS[3:], low) == ""


def test_the_table() -> None:
    assert steps_as_csv(TRIALS, Objective(metric="loss")) == (
        "trial,lr,loss,state,seconds,exit_code,reason\n"
        "1,1e-3,0.5,succeeded,2.500,0,\n"
        '2,3e-4,0.1,failed,,1,"ValueError: a, b"\n'
        "3,1e-4,0.25,succeeded,,,\n"
        "4,1e-5,,waiting,,,\n"
    )
    assert (
        steps_as_csv([Step(name="load", state="kept")], None)
        == "step,state,seconds,exit_code,reason\nload,kept,,,\n"
    )
