"""Real mpirun over the agents: three workers with 2, 1 and 3 ranks, each with an address of its own.

The workers are processes of one machine, which Open MPI does not know: its ranks must not share memory across
them, so that a test leaves it TCP alone. In pods nothing of that is needed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agent.conftest import Agents
from tests.agent.remote.launched import describe, lines, mpi, start_all, verdict
from tests.conftest import wait_until
from tests.mpi import WHEELS, python_with

pytestmark = [pytest.mark.slow]

ALL_REDUCE = """
import os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
# One write a line: under a launcher of the user's own ranks share a pipe.
sys.stdout.write(f"rank {world.rank} of {world.size} sum {world.allreduce(world.rank + 1)}\\n")
sys.stdout.flush()
"""
WAITS = """
import os, time
from mpi4py import MPI
world = MPI.COMM_WORLD
world.barrier()
open(f"pid-{world.rank}", "w").write(str(os.getpid()))
ABORT
while True:
    world.allreduce(1)
    time.sleep(0.05)
"""
SAVES = """
import json, os, signal, time
from mpi4py import MPI
world = MPI.COMM_WORLD
signals = []
signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
world.barrier()
open(f"up-{world.rank}", "w").close()
while not signals:
    time.sleep(0.01)
time.sleep(1.5)
reason = json.load(open(os.environ["ECHELON_NOTICE"]))["reason"]
open(f"saved-{world.rank}", "w").write(f"{len(signals)} {reason}")
"""


@pytest.fixture(params=sorted(WHEELS), scope="module")
def python(request: pytest.FixtureRequest) -> str:
    return str(python_with(request.param))


@pytest.fixture
def run(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setenv("OMPI_MCA_btl", "tcp,self")
    monkeypatch.setenv("OMPI_MCA_coll", "^han")

    def start(*argv: str, **more: object) -> None:
        # Open MPI 4 takes all of its grace, and that several times, whether ranks are left or not.
        describe(agents, replace(mpi(argv), env={"OMPI_MCA_odls_base_sigkill_timeout": "1"}), **more)
        start_all(agents, monkeypatch)

    return start


def left_behind() -> list[str]:
    """The daemons of mpirun that run on this machine, by their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if b"prted" in text or b"hydra_pmi_proxy" in text:
            found.append(text.replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.mark.parametrize(
    "python",
    [pytest.param("mpich", marks=pytest.mark.core), "openmpi4", "openmpi5"],
    indirect=True,
    scope="module",
)
def test_uneven_workers_reduce(agents: Agents, run: Callable[..., None], python: str) -> None:
    Path(agents.folder, "train.py").write_text(ALL_REDUCE)
    run(python, "train.py")
    assert verdict(agents)["outcome"] == "succeeded", (agents.verdict(), lines(agents))
    workers = [0, 0, 1, 2, 2, 2]
    found = [line for line in lines(agents) if line[2].startswith("rank")]
    assert found == [(rank, workers[rank], f"rank {rank} of 6 sum 21") for rank in range(6)]


def test_a_launcher_of_the_users_own(agents: Agents, run: Callable[..., None], python: str) -> None:
    """Variables alone tell mpirun all that it needs; its lines are those of worker 0's first rank."""
    Path(agents.folder, "train.py").write_text(ALL_REDUCE)
    folder = Path(python).parent
    run("bash", "-c", f"PATH=$PATH:{folder}; mpirun {python} train.py")
    assert verdict(agents)["outcome"] == "succeeded", (agents.verdict(), lines(agents))
    found = [line for line in lines(agents) if line[2].startswith("rank")]
    assert found == [(0, 0, f"rank {rank} of 6 sum 21") for rank in range(6)]


def test_a_killed_rank_is_named_and_nothing_is_left(
    agents: Agents, run: Callable[..., None], python: str
) -> None:
    Path(agents.folder, "train.py").write_text(WAITS.replace("ABORT", ""))
    run(python, "train.py")
    pids = [agents.folder / f"pid-{rank}" for rank in range(6)]
    wait_until(lambda: all(path.exists() and path.read_text() for path in pids), "all ranks")
    os.kill(int(pids[4].read_text()), signal.SIGKILL)
    cause = verdict(agents)["cause"]
    assert (cause["rank"], cause["worker"], cause["signal"]) == (4, 2, "SIGKILL"), cause
    assert not any(Path("/proc", path.read_text()).exists() for path in pids)
    assert not [text for text in left_behind() if str(agents.folder) in text]


def test_a_rank_that_aborts_is_named(agents: Agents, run: Callable[..., None], python: str) -> None:
    abort = "if world.rank == 2:\n    print('gives up', flush=True); world.Abort(7)"
    Path(agents.folder, "train.py").write_text(WAITS.replace("ABORT", abort))
    run(python, "train.py")
    cause = verdict(agents)["cause"]
    assert (cause["rank"], cause["worker"]) == (2, 1), cause


def test_a_run_that_is_stopped_ends_all(agents: Agents, run: Callable[..., None], python: str) -> None:
    Path(agents.folder, "train.py").write_text(WAITS.replace("ABORT", ""))
    run(python, "train.py", timeout=5.0)
    assert verdict(agents)["outcome"] == "timed-out"
    pids = [path.read_text() for path in agents.folder.glob("pid-*")]
    assert not any(Path("/proc", pid).exists() for pid in pids if pid)


@pytest.mark.parametrize("victim", [0, 2])
def test_all_ranks_have_notice_once_when_a_worker_is_told_to_leave(
    agents: Agents, run: Callable[..., None], python: str, victim: int
) -> None:
    Path(agents.folder, "train.py").write_text(SAVES)
    run(python, "train.py")
    wait_until(lambda: len(list(agents.folder.glob("up-*"))) == 6, "all ranks")
    agents.processes[victim].terminate()
    cause = verdict(agents)["cause"]
    assert (cause["kind"], cause["worker"]) == ("worker-left", victim), cause
    saved = {path.name: path.read_text() for path in agents.folder.glob("saved-*")}
    assert saved == {f"saved-{rank}": "1 leave" for rank in range(6)}


def test_a_restart_has_a_new_mpirun(agents: Agents, run: Callable[..., None], python: str) -> None:
    Path(agents.folder, "train.py").write_text(
        ALL_REDUCE + "import sys\nif os.environ['ECHELON_RESTART'] == '0' and world.rank == 3: sys.exit(9)\n"
    )
    run(python, "train.py", restarts=1)
    assert verdict(agents)["outcome"] == "succeeded", agents.verdict()
    assert sum(text == "rank 3 of 6 sum 21" for _, _, text in lines(agents)) == 2
