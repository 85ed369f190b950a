"""The list of runs: what is over is read once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.parents import end, kill, parent, step_run

from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import store
from echelon.model.program import Step


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the record of each run is read."""
    found: Counter[str] = Counter()
    read = store.read_record

    def counted(folder):  # type: ignore[no-untyped-def]
        found[folder.path.name] += 1
        return read(folder)

    monkeypatch.setattr(store, "read_record", counted)
    return found


@pytest.mark.slow
def test_what_is_over_is_read_once_by_a_page(home: Path, reads: Counter[str]) -> None:
    run = parent(Step(name="a", state="succeeded"))
    step_run("a").wait(show=False)
    reads.clear()
    engine = LocalEngine()
    assert [row.name for row in engine.runs(over=False)] == ["t-1"]
    assert reads["t-1-a"] == 1  # whether it can be read: `ps` lists what is damaged
    before = engine.runs()
    end(run)
    after = engine.runs()
    assert {row.name: row.state for row in before} == {"t-1": "running", "t-1-a": "succeeded"}
    assert {row.name: row.state for row in after} == {"t-1": "succeeded", "t-1-a": "succeeded"}
    reads.clear()
    assert engine.runs() == after
    assert reads == Counter()
    assert [row.name for row in LocalEngine().runs(over=False)] == ["t-1"]
    (home / "runs" / "t-1-a" / "record.json").write_text("{")  # it is looked at anew
    assert {row.name for row in LocalEngine().runs(over=False)} == {"t-1", "t-1-a"}
    assert {row.name: row.state for row in engine.runs()} == {"t-1": "succeeded", "t-1-a": "damaged"}


@pytest.mark.slow
def test_a_run_that_is_over_is_listed_with_those_that_go_on_if_its_steps_do(home: Path) -> None:
    run = parent(Step(name="a"))
    step = step_run("a", "sh", "-c", "until test -e go; do sleep 0.02; done")
    kill(run)
    assert {row.name for row in LocalEngine().runs(over=False)} == {"t-1", "t-1-a"}
    Path("go").touch()
    step.wait(show=False)
    assert {row.name for row in LocalEngine().runs(over=False)} == {"t-1"}
