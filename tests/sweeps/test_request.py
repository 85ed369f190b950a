"""What is asked of a sweep: from a job file, and from the command line, which is the stronger."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.errors import InvalidJob
from echelon.jobfile import read_job_file
from echelon.model.meaning import to_job
from echelon.model.program import Objective
from echelon.model.settings import SweepSettings
from echelon.sweeps.request import merge, request_of

FILE = """
script: train.py
args: [--lr, "{lr}"]
sweep:
  space:
    lr: [1e-4, 0.10]
    fast: [true, false]
    layers: 2..3
  minimize: val_loss
  fail-fast: true
"""


def asked(tmp_path: Path, text: str = FILE) -> SweepSettings:
    (tmp_path / "job.yaml").write_text(text)
    settings = read_job_file(tmp_path / "job.yaml")
    with pytest.raises(InvalidJob, match="is of many runs"):
        to_job(settings, name="a")
    assert settings.sweep is not None
    return settings.sweep


def no_file(path: str) -> str:
    raise AssertionError(path)


def test_a_file_has_it_all_and_values_stay_as_they_are_written(tmp_path: Path) -> None:
    request = request_of(asked(tmp_path), [], no_file)
    assert len(request.trials) == 8
    assert request.trials[-1].values == {"lr": "0.10", "fast": "false", "layers": "3"}
    assert request.objective == Objective(metric="val_loss", goal="minimize")
    assert request.fail_fast


def test_the_command_line_is_the_stronger(tmp_path: Path) -> None:
    given = SweepSettings(maximize="accuracy", parallel=3)
    request = request_of(merge(given, asked(tmp_path)), ["lr=7", "layers=9"], no_file)
    assert [dict(trial.values) for trial in request.trials] == [
        {"fast": "true", "lr": "7", "layers": "9"},
        {"fast": "false", "lr": "7", "layers": "9"},
    ]
    assert request.objective == Objective(metric="accuracy", goal="maximize")
    assert (request.parallel, request.fail_fast) == (3, True)
    assert merge(given, None) == given


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("space: {lr: []}", "has no values"),
        ("space: {lr: [1, 1]}", "is there twice"),
        ("space: {output: [1]}", "filled in by echelon"),
        ("trials: 0", "less than 1"),
        ("space: {lr: 1e-5..1e-1}", "has no end of values"),
    ],
)
def test_what_cannot_be(tmp_path: Path, line: str, problem: str) -> None:
    sweep = asked(tmp_path, f"script: train.py\nsweep: {{{line}}}")
    with pytest.raises(InvalidJob, match=problem):
        request_of(sweep, [], no_file)


def test_a_key_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"job.yaml:3: sweep: 'minimise' is not a setting") as wrong:
        asked(tmp_path, "script: train.py\nsweep:\n  minimise: loss")
    assert wrong.value.hint == "did you mean 'minimize'?"
