"""How a pipeline stands that was stopped, refused or left alone: the same answer everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.notebook.books import write_book

from echelon.agent.gang.verdict import LOST_EXIT_CODE, STOPPED_EXIT_CODE
from echelon.engines.local.engine import LocalEngine
from echelon.errors import RunExists
from echelon.lab import state as panel
from echelon.notebook.kept.noted import noted
from echelon.ui.pipelines import Pipelines

Call = Callable[..., subprocess.CompletedProcess[str]]
WAITS = "while not pathlib.Path('go.txt').exists():\n    time.sleep(0.05)"
FIRST = f"pathlib.Path('began.txt').write_text('')\n{WAITS}"
SECOND = "pathlib.Path('second.txt').write_text('')"


@contextmanager
def started(*more: str, second: str = "step:second") -> Iterator[subprocess.Popen[str]]:
    """A pipeline whose first step runs, and whose second waits for its turn."""
    cells = [("imports", "import pathlib, time"), ("step:first", f"x = 1\n{FIRST}"), (second, SECOND)]
    write_book(Path("two.ipynb"), cells)
    command = [sys.executable, "-m", "echelon.cli.main", "notebook", "run", "two.ipynb", *more]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(Path("runs", "two-1", "work", "began.txt").exists, "the first step")
        yield process
    finally:
        Path("runs", "two-1", "work", "go.txt").touch()
        process.said = process.communicate(timeout=2 * PATIENCE)[0]  # type: ignore[attr-defined]


def states() -> dict[str, str]:
    found = json.loads(Path("runs/two-1/pipeline.json").read_text())
    return {name: step["state"] for name, step in found["steps"].items()}


def everywhere(cli: Call) -> set[str]:
    """How it stands, by all that tell it."""
    listed = next(line.split() for line in cli("ps", "-a").stdout.splitlines() if line.startswith("two-1 "))
    told = json.loads(cli("status", "two-1", "-o", "json").stdout)["state"]
    waited = json.loads(cli("wait", "two-1", "-o", "json").stdout)["state"]
    engine = LocalEngine()
    shown = Pipelines(engine).one(engine.runs(), "two-1").state
    known = noted("two-1")
    assert known is not None
    return {listed[1], told, waited, shown, panel.state_of(known).state}


@pytest.mark.slow
@pytest.mark.core
def test_a_stop_lets_no_waiting_step_start(cli: Call) -> None:
    with started("--parallel", "1") as process:
        assert "goes on" in cli("rm", "two-1").stderr
        assert "two-1 stopped" in cli("stop", "two-1").stdout
        assert process.wait(PATIENCE) == STOPPED_EXIT_CODE
    assert "two-1 was stopped (--from first goes on there)" in process.said  # type: ignore[attr-defined]
    assert states() == {"first": "stopped", "second": "not-reached"}
    assert not Path("runs", "two-1", "work", "second.txt").exists()
    assert everywhere(cli) == {"stopped"}
    assert cli("wait", "two-1").returncode == STOPPED_EXIT_CODE
    again = cli("notebook", "run", "two.ipynb", "--from", "first")  # go.txt is there by now
    assert again.returncode == 0, again.stderr
    assert everywhere(cli) == {"succeeded"}


@pytest.mark.slow
def test_the_stop_of_the_panel_lets_no_waiting_step_start(cli: Call) -> None:
    with started("--parallel", "1") as process:
        known = noted("two-1")
        assert known is not None
        assert panel.stop(known) == []
        assert process.wait(PATIENCE) == STOPPED_EXIT_CODE
    assert states() == {"first": "stopped", "second": "not-reached"}


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_waiting(cli: Call) -> None:
    with started("--parallel", "1") as process:
        process.terminate()
        process.wait(PATIENCE)
    assert states() == {"first": "stopped", "second": "not-reached"}
    assert everywhere(cli) == {"stopped"}


@pytest.mark.slow
def test_a_step_that_is_refused_at_submission(cli: Call) -> None:
    with started(second="step:second prev:first") as process:
        taken = cli("run", "-d", "--name", "two-1-second", "--", "sleep", "600")
        assert taken.returncode == 0, taken.stderr
        Path("runs", "two-1", "work", "go.txt").touch()
        assert process.wait(PATIENCE) == RunExists.exit_code
    try:
        assert states() == {"first": "succeeded", "second": "failed"}
        assert everywhere(cli) == {"failed"}
        waited = cli("wait", "two-1")
        assert waited.returncode == RunExists.exit_code
        assert "two-1 failed: step second: " in waited.stdout
    finally:
        cli("stop", "--now", "two-1-second")


@pytest.mark.slow
def test_a_command_that_is_killed_while_a_step_runs(cli: Call) -> None:
    with started(second="step:second prev:first") as process:
        process.kill()
        process.wait()
        assert "two-1 " in cli("ps").stdout  # its step goes on
        Path("runs", "two-1", "work", "go.txt").touch()
        waited = cli("wait", "two-1")
        assert waited.returncode == LOST_EXIT_CODE, waited.stdout
    assert "two-1-first succeeded" in waited.stdout
    assert everywhere(cli) == {"lost"}
    known = noted("two-1")
    assert known is not None
    assert [step.state for step in panel.state_of(known).steps] == ["succeeded", "lost"]
    assert [line.split()[:2] for line in cli("status", "two-1").stdout.splitlines()[2:]] == [
        ["first", "succeeded"],
        ["second", "lost"],
    ]
    assert "two-1" in cli("rm", "--finished").stdout
    assert "two-1" not in cli("ps", "-a").stdout
