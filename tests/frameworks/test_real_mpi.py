"""Real MPI under the local engine: mpirun's ranks are ranks like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until
from tests.mpi import WHEELS, python_with

import echelon

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]

ALL_REDUCE = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(f"rank {world.rank} of {world.size} worker {os.environ['ECHELON_WORKER']} sum {total}", flush=True)
"""


@pytest.fixture(params=sorted(WHEELS), scope="module")
def python(request: pytest.FixtureRequest) -> str:
    return str(python_with(request.param))


def test_ranks_on_several_workers_find_each_other(python: str) -> None:
    Path("train.py").write_text(ALL_REDUCE)
    run = echelon.run("train.py", workers=2, procs=2, python=python)
    status = run.wait(3 * PATIENCE)
    assert status.state == "succeeded", (status, list(run.logs()))
    assert status.framework == "mpi"  # by its imports
    lines = sorted((line.rank, line.worker, line.text) for line in run.logs() if line.rank is not None)
    assert lines == [(rank, rank // 2, f"rank {rank} of 4 worker {rank // 2} sum 10") for rank in range(4)]


def test_a_script_of_the_users_own_that_calls_mpirun(python: str) -> None:
    Path("train.py").write_text(ALL_REDUCE)
    Path("launch.sh").write_text(f"set -e\nPATH=$PATH:{Path(python).parent}\nexec mpirun {python} train.py\n")
    run = echelon.run("launch.sh", workers=2, procs=2)
    status = run.wait(3 * PATIENCE)
    assert status.state == "succeeded", (status, list(run.logs()))
    assert status.framework == "mpi"
    text = "\n".join(line.text for line in run.logs())
    assert all(f"rank {rank} of 4 " in text for rank in range(4)), text


def test_a_rank_that_fails_is_named_and_a_run_can_be_stopped(python: str) -> None:
    Path("train.py").write_text(
        "from mpi4py import MPI\n"
        "import sys, time\n"
        "world = MPI.COMM_WORLD\n"
        "world.barrier()\n"
        "print('ready', flush=True)\n"
        "if sys.argv[1:] and world.rank == 3: raise ValueError('a sample is broken')\n"
        "time.sleep(600)\n"
    )
    run = echelon.run("train.py", args=["fail"], workers=2, procs=2, python=python)
    status = run.wait(3 * PATIENCE)
    cause = status.root_cause
    assert cause is not None, status
    assert (cause.rank, cause.worker) == (3, 1), cause
    assert cause.summary == "rank 3 exited with code 1: ValueError: a sample is broken"

    stopped = echelon.run("train.py", workers=2, procs=2, python=python)
    wait_until(lambda: sum(line.text == "ready" for line in stopped.logs()) == 4, "all ranks")
    stopped.stop()
    assert stopped.wait(3 * PATIENCE).state == "stopped"
