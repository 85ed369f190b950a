"""What is said of a run that has ended, and where its results are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from echelon.cli.printing.render import ending, headline, notice, outcome
from echelon.handle import Run
from echelon.model.event import RootCause
from echelon.model.meaning import to_job
from echelon.model.settings import Settings
from echelon.model.status import Status


@pytest.mark.parametrize("results", ["", None])
def test_a_run_whose_results_are_nowhere_here_is_not_said_to_have_them_in_this_folder(
    results: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a job of Kubeflow's own controller, or a run that another machine has submitted."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "model.pt").touch()
    monkeypatch.chdir(tmp_path)
    done = Status(name="fm", uri="k8s://team/fm", state="succeeded", created=1.0, ended=2.0, results=results)
    outcome(done, "text")
    ending(done)
    failed = Status(
        name="fm",
        uri="k8s://team/fm",
        state="failed",
        created=1.0,
        results=results,
        root_cause=RootCause(summary="it broke", kind="rank"),
    )
    ending(failed)
    said = capsys.readouterr().err
    assert said.count("its results are not here; `echelon get fm` brings them") == 2
    assert "results in" not in said
    assert "output is in" not in said


class Waiting:
    """A run that is queued: nothing is planned."""

    name = "fm"

    def plan(self) -> None:
        return None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"workers": 3, "gpus": 2}, "run fm: 3 workers, torch"),
        ({"gpus": 2}, "run fm: 1 worker, torch"),
        ({"total_gpus": "6"}, "run fm: 6 GPUs in all, torch"),
        ({"total_gpus": "1"}, "run fm: 1 GPU in all, torch"),
        ({"total_gpus": "4..8"}, "run fm: 4 to 8 GPUs in all, torch"),
    ],
)
def test_the_headline_of_a_run_that_is_queued_says_what_it_asks_for(
    said: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """How many workers share the GPUs of an open shape is decided when it starts."""
    job = to_job(Settings(script="t.py", framework="torch", **said), name="fm")
    notice(headline(job, cast("Run", Waiting())))
    assert expected in capsys.readouterr().err
