"""Whatever of a sweep is killed: `resume` runs exactly what is missing, and no trial is in its table
twice."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until

import echelon
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import rundir
from echelon.engines.local.processes import marked_processes
from echelon.errors import EchelonError
from echelon.handle import Run
from echelon.model.program import DONE
from echelon.model.status import FINAL
from echelon.model.trials import steps_as_csv

TRIALS = 12
FEW, MANY = 3, 40  # moments
SCRIPT = """
import os, pathlib, sys, time

out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
time.sleep(0.05)
with (out / "ends").open("a") as file:
    print(sys.argv[1], file=file)
print("loss=" + sys.argv[1])
"""


@pytest.fixture
def sweep(home: Path) -> Run:
    Path("train.py").write_text(SCRIPT)
    words = ["--array", f"0..{TRIALS - 1}", "--parallel", "3", "--minimize", "loss", "--name", "many", "-d"]
    command = [sys.executable, "-m", "echelon.cli.main", "sweep", *words, "--", "train.py", "{index}"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (told.returncode, told.stdout) == (0, "many\n"), told.stderr
    return echelon.attach("many")


def executor_of(run: Run) -> int | None:
    return next((pid for worker in run.status().workers for pid in worker.rank_pids.values()), None)


def supervisor_of(run: Run) -> int | None:
    told = rundir.read_json(LocalEngine().store.dir(run.name).supervisor)
    return int(str(told["pid"])) if told is not None else None


def agent_of(run: Run) -> int | None:
    return run.status().workers[0].pid


def supervisor_of_a_trial(run: Run) -> int | None:
    for step in run.steps().values():
        try:
            if step.status().state not in FINAL:
                return supervisor_of(step)
        except EchelonError:
            continue
    return None


def processes_of(run: Run) -> set[int]:
    runs = LocalEngine().store
    names = [name for name in runs.names() if name == run.name or name.startswith(f"{run.name}-")]
    return {pid for name in names for pid in marked_processes(runs.dir(name).path)}


def ends(trial: int) -> int:
    file = Path(f"runs/many/{trial}/ends")
    return len(file.read_text().split()) if file.exists() else 0


def done(run: Run) -> set[str]:
    return {step.name for step in run.status().steps if step.state in DONE}


def check_complete(run: Run, kept: set[str]) -> None:
    """All have succeeded, those that had done so before once, and the table has each once."""
    status = run.status()
    assert (status.state, status.exit_code) == ("succeeded", 0), status.reason
    assert {step.name: step.value for step in status.steps} == {
        str(number): number - 1.0 for number in range(1, TRIALS + 1)
    }
    written = Path("runs/many/trials.csv").read_text()
    assert written == steps_as_csv(status.steps, status.objective)
    table = list(csv.DictReader(io.StringIO(written)))
    assert [row["trial"] for row in table] == [str(number) for number in range(1, TRIALS + 1)]
    assert {trial: ends(int(trial)) for trial in kept} == dict.fromkeys(kept, 1)
    assert {row.name for row in LocalEngine().runs()} == {
        "many",
        *(f"many-{number}" for number in range(1, TRIALS + 1)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0, 2, 5])
@pytest.mark.parametrize("victim", [executor_of, supervisor_of, agent_of, supervisor_of_a_trial])
def test_whatever_is_killed_resume_runs_what_is_missing(
    sweep: Run, victim: Callable[[Run], int | None], moment: int
) -> None:
    wait_until(lambda: len(done(sweep)) >= moment and victim(sweep) is not None, "the moment")
    if (pid := victim(sweep)) is not None:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself meanwhile
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: sweep.status().state in FINAL, "the end")
    kept = done(sweep)
    if sweep.status().state != "succeeded":
        sweep.resume()
        sweep.wait(show=False)
    check_complete(sweep, kept)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(FEW), *(pytest.param(n, marks=pytest.mark.soak) for n in range(FEW, MANY))]
)
def test_any_process_at_any_moment(sweep: Run, seed: int) -> None:
    """Of the sweep's own run and of its trials: executors, supervisors and what they are forked from, agents,
    scripts.
    """
    chance = random.Random(seed)
    wait_until(lambda: executor_of(sweep) is not None, "the executor")
    killed = []
    for _ in range(chance.randint(1, 3)):
        time.sleep(chance.uniform(0.0, 1.0))
        if pids := processes_of(sweep):
            killed.append(chance.choice(sorted(pids)))
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself meanwhile
                os.kill(killed[-1], signal.SIGKILL)
    wait_until(lambda: sweep.status().state in FINAL, f"the end after {killed} were killed")
    kept = done(sweep)
    if sweep.status().state != "succeeded":
        sweep.resume()
        sweep.wait(show=False)
    check_complete(sweep, kept)


@pytest.mark.slow
def test_killed_again_and_again_it_is_complete_in_the_end(sweep: Run) -> None:
    kept: set[str] = set()
    for moment in (1, 4, 7):
        wait_until(lambda moment=moment: len(done(sweep)) >= moment, "some trials")  # type: ignore[misc]
        if (pid := executor_of(sweep)) is not None:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: sweep.status().state in FINAL, "the end")
        assert sweep.status().state == "lost"
        kept |= done(sweep)
        sweep.resume()
    sweep.wait(show=False)
    check_complete(sweep, kept)
