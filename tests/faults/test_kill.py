"""SIGKILL, at seeded moments, to everything that can be killed. Each time: the run ends or starts again, says
what happened to whom, and leaves no process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, processes_of, wait_until

import echelon
from echelon.engines.local.folder.store import RunStore
from echelon.model.status import Status

RING = Path(__file__).with_name("ring.py")
WORKERS, PROCS = 4, 2
RANKS = WORKERS * PROCS
FEW, MANY = 3, 100


def seeds() -> list[object]:
    return [
        *range(FEW),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(FEW, MANY)),
    ]


def start(*args: str, restarts: int = 0) -> echelon.Run:
    return echelon.run(RING, args=args, workers=WORKERS, procs=PROCS, framework="torch", restarts=restarts)


class Pids:
    """Who is who in a run, once all its ranks run."""

    def __init__(self, run: echelon.Run, home: Path, restart: int = 0) -> None:
        self.agents: dict[int, int] = {}
        self.ranks: dict[int, int] = {}
        for event in run.events():
            if event.kind == "worker-started":
                assert event.worker is not None
                assert event.pid is not None
                self.agents[event.worker] = event.pid
            if event.kind == "worker-running" and event.restart == restart:
                assert event.pids is not None
                self.ranks.update({int(rank): pid for rank, pid in event.pids.items()})
            if len(self.ranks) == RANKS:
                break
        else:
            pytest.fail(f"the run ended before all its ranks ran: {run.status()}")
        self.supervisor = int(json.loads(RunStore(home).dir(run.name).supervisor.read_bytes())["pid"])


def kill_later(chance: random.Random, pid: int) -> None:
    """Kill at a random moment: while the ranks start, while they meet, or in the middle of their work."""
    time.sleep(chance.choice([0.0, chance.uniform(0, 0.1), chance.uniform(0, 0.6)]))
    os.kill(pid, signal.SIGKILL)


def ended(run: echelon.Run, home: Path) -> Status:
    status = run.wait(PATIENCE)
    wait_until(lambda: not processes_of(home), "the run's processes to end")
    return status


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_a_rank(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    run = start()
    victim = chance.randrange(RANKS)
    kill_later(chance, Pids(run, home).ranks[victim])
    status = ended(run, home)
    assert status.state == "failed"
    assert status.exit_code == 128 + signal.SIGKILL
    cause = status.root_cause
    assert cause is not None
    assert (cause.rank, cause.worker, cause.signal) == (victim, victim // PROCS, "SIGKILL")
    assert cause.summary == f"rank {victim} was killed by SIGKILL: out of memory?"
    assert all(other.consequence for other in cause.others)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_a_rank_of_a_run_that_may_restart(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    run = start("--finish", restarts=1)
    kill_later(chance, Pids(run, home).ranks[chance.randrange(RANKS)])
    status = ended(run, home)
    assert (status.state, status.restarts) == ("succeeded", 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_an_agent(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    run = start()
    victim = chance.randrange(1, WORKERS)
    kill_later(chance, Pids(run, home).agents[victim])
    status = ended(run, home)
    assert status.state == "failed"
    assert status.root_cause is not None
    assert status.root_cause.worker == victim
    assert status.root_cause.summary == f"worker {victim} was lost: its agent was killed by SIGKILL"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_the_leader(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    run = start()
    kill_later(chance, Pids(run, home).agents[0])
    status = ended(run, home)
    assert status.state == "failed"
    assert status.root_cause is not None
    assert status.root_cause.summary == "worker 0 was lost: its agent was killed by SIGKILL"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("victim", ["leader", "another"])
def test_an_agent_of_a_run_that_may_restart(home: Path, victim: str, seed: int) -> None:
    chance = random.Random(seed)
    run = start("--finish", restarts=1)
    kill_later(chance, Pids(run, home).agents[0 if victim == "leader" else chance.randrange(1, WORKERS)])
    status = ended(run, home)
    assert (status.state, status.restarts) == ("succeeded", 1), status.root_cause


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_the_supervisor(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    run = start()
    kill_later(chance, Pids(run, home).supervisor)
    status = ended(run, home)
    assert status.state == "lost"
    assert status.exit_code == 117


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_supervisor_and_agents_together(home: Path, seed: int) -> None:
    """What nobody is left to end, the next command ends."""
    chance = random.Random(seed)
    run = start()
    pids = Pids(run, home)
    for pid in chance.sample([pids.supervisor, *pids.agents.values()], WORKERS + 1):
        os.kill(pid, signal.SIGKILL)
    assert ended(run, home).state == "lost"


@pytest.mark.slow
def test_two_ranks_one_after_the_other(home: Path) -> None:
    run = start(restarts=2)
    for restart in (0, 1):
        os.kill(Pids(run, home, restart).ranks[3], signal.SIGKILL)
    pids = Pids(run, home, restart=2)
    os.kill(pids.ranks[5], signal.SIGKILL)
    status = ended(run, home)
    assert (status.state, status.restarts) == ("failed", 2)
    assert status.root_cause is not None
    assert status.root_cause.rank == 5


@pytest.mark.slow
def test_the_command_line(home: Path, cli: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """The run goes on without it, and any other process can follow and stop it."""
    script = Path("talk.py")
    script.write_text(
        "import time\nfor i in range(10**6):\n    print('line', i, flush=True)\n    time.sleep(0.02)\n"
    )
    command = [sys.executable, "-m", "echelon.cli.main", "run", "--name", "talk", "-n", "2", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        asker.stdout.readline()
        asker.kill()
    run = echelon.attach("local://talk")
    wait_until(lambda: run.status().state == "running", "the run to go on")
    with subprocess.Popen(
        [sys.executable, "-m", "echelon.cli.main", "logs", "-f", "talk"], stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        lines = [follower.stdout.readline() for _ in range(200)]
        assert {line.split()[0] for line in lines} == {"[0]", "[1]"}
        assert cli("stop", "talk").returncode == 0
        follower.communicate(timeout=PATIENCE)
        assert follower.returncode == 0
    assert run.status().state == "stopped"
