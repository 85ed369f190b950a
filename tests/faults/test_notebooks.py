"""Whatever of a notebook's run is killed: it is lost or goes on, is never called succeeded, and `resume` ends
it as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.notebook.books import write_book

import echelon
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import rundir
from echelon.handle import Run
from echelon.model.status import FINAL

Call = Callable[..., subprocess.CompletedProcess[str]]
CELLS = [
    ("imports", "import pathlib, time"),
    ("step:load", "data = [1, 2, 3]\nprint('loading')"),
    (
        "step:left prev:load",
        "pathlib.Path('begun').touch()\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.02)",
    ),
    ("", "left = sum(data)"),
    ("step:right prev:load", "right = max(data)"),
    ("step:join prev:left prev:right", "total = left + right"),
    ("pipeline-metrics", "print(total)"),
]


@pytest.fixture
def begun(home: Path) -> Run:
    """A detached run of a notebook whose second step waits for a file."""
    write_book(Path("book.ipynb"), CELLS)
    command = [sys.executable, "-m", "echelon.cli.main", "notebook", "run", "-d", "book.ipynb"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 60, check=False)
    assert (told.returncode, told.stdout) == (0, "book-1\n"), told.stderr
    wait_until(Path("runs/book-1/work/begun").exists, "the step to begin")
    wait_until(lambda: state_of("right") == "succeeded", "the other one")
    return echelon.attach("book-1")


def state_of(step: str) -> str:
    return {each.name: each.state for each in echelon.attach("book-1").status().steps}.get(step, "")


def executor_of(run: Run) -> int:
    return next(pid for worker in run.status().workers for pid in worker.rank_pids.values())


def supervisor_of(run: Run) -> int:
    told = rundir.read_json(LocalEngine().store.dir(run.name).supervisor)
    assert told is not None
    return int(str(told["pid"]))


def agent_of(run: Run) -> int:
    pid = run.status().workers[0].pid
    assert pid is not None
    return pid


def let_go() -> None:
    Path("runs/book-1/work/go").touch()


def check_as_undisturbed(run: Run) -> None:
    status = run.wait(show=False)
    assert (status.state, status.exit_code) == ("succeeded", 0), status.reason
    record = json.loads(Path("runs/book-1/pipeline.json").read_text())
    assert record["steps"]["join"]["metrics"] == {"total": 9}
    assert {step["state"] for step in record["steps"].values()} <= {"succeeded", "kept"}


@pytest.mark.slow
@pytest.mark.parametrize("victim", [executor_of, supervisor_of, agent_of])
def test_one_that_lost_its_executor_is_lost_and_taken_up_again(
    begun: Run, victim: Callable[[Run], int]
) -> None:
    os.kill(victim(begun), signal.SIGKILL)
    wait_until(lambda: begun.status().state in FINAL, "the end")
    status = begun.status()
    assert status.state == "lost", status.reason
    assert {each.name: each.state for each in status.steps} == {
        "load": "succeeded",
        "left": "lost",
        "right": "succeeded",
        "join": "not-reached",
    }
    rows = {row.name: row.state for row in LocalEngine().runs()}
    assert rows["book-1"] == "lost"
    wait_until(
        lambda: {row.state for row in LocalEngine().runs()} <= FINAL, "the steps to end with their executor"
    )
    let_go()
    begun.resume()
    check_as_undisturbed(begun)
    assert {each.name for each in begun.status().steps if each.state == "kept"} == {"load", "right"}


@pytest.mark.core
def test_a_stop_ends_the_steps_that_run_and_starts_no_other(begun: Run) -> None:
    begun.stop()
    status = begun.status()
    assert (status.state, status.exit_code) == ("stopped", 143)
    states = {each.name: each.state for each in status.steps}
    assert states == {"load": "succeeded", "left": "stopped", "right": "succeeded", "join": "not-reached"}
    assert {row.name: row.state for row in LocalEngine().runs()} == {
        "book-1": "stopped",
        "book-1-left": "stopped",
        "book-1-right": "succeeded",
        "book-1-load": "succeeded",
    }
    let_go()
    begun.resume()
    check_as_undisturbed(begun)


@pytest.mark.slow
def test_a_stop_that_leaves_no_time_kills_the_steps_and_not_the_record_of_how(begun: Run) -> None:
    begun.stop(now=True)
    assert begun.status().state == "stopped"
    assert {row.state for row in LocalEngine().runs()} == {"stopped", "succeeded"}
    assert Path("runs/book-1/notebook.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_terminal_that_is_gone_ends_nothing(home: Path, number: signal.Signals) -> None:
    write_book(Path("book.ipynb"), CELLS)
    command = [sys.executable, "-m", "echelon.cli.main", "notebook", "run", "book.ipynb"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(Path("runs/book-1/work/begun").exists, "the step to begin")
    process.send_signal(number)
    process.wait()
    assert echelon.attach("book-1").status().state == "running"
    let_go()
    check_as_undisturbed(echelon.attach("book-1"))


@pytest.mark.slow
def test_a_time_out_of_the_whole_ends_its_steps(home: Path, cli: Call) -> None:
    write_book(Path("book.ipynb"), CELLS)
    late = cli("notebook", "run", "book.ipynb", "--timeout", "5s")
    status = echelon.attach("book-1").status()
    assert (status.state, late.returncode) == ("timed-out", status.exit_code), late.stderr
    assert {row.state for row in LocalEngine().runs()} <= {"timed-out", "stopped", "succeeded"}


def test_a_notebook_that_has_other_steps_by_now_is_taken_up(home: Path, cli: Call) -> None:
    """As one does: a step that failed is split, and its run resumed."""
    write_book(Path("book.ipynb"), [("step:load", "x = 1"), ("step:train prev:load", "x / 0")])
    assert cli("notebook", "run", "book.ipynb").returncode == 1
    cells = [
        ("step:load", "x = 1"),
        ("step:clean prev:load", "y = x"),
        ("step:fit prev:clean", "print('y', y)"),
    ]
    write_book(Path("book.ipynb"), cells)
    resumed = cli("resume", "book-1")
    assert resumed.returncode == 0, resumed.stderr
    assert "[fit] y 1" in resumed.stdout
    states = {each.name: each.state for each in echelon.attach("book-1").status().steps}
    assert states == {"load": "kept", "clean": "succeeded", "fit": "succeeded"}
