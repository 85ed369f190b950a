"""What is said of a run that has ended, and where its results are."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.cli.printing.render import ending, outcome
from echelon.model.event import RootCause
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
