"""SIGSTOP to agents: one that stands still while its peers do not is lost, however many workers there are.
When everything stands still, as on a laptop that is suspended, nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import processes_of, wait_until
from tests.faults.test_kill import PROCS, RING, WORKERS, Pids, ended, seeds, start

import echelon
from echelon.engines import task

# Shorter than it is, since every test waits for it; not so short that an agent of a busy machine seems lost.
LOST_AFTER = 5.0
LOST = f"its agent did not respond for {LOST_AFTER:g} s"


@pytest.fixture(autouse=True)
def short_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "HEARTBEAT", 0.2)
    monkeypatch.setattr(task, "LOST_AFTER", LOST_AFTER)


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Processes that stand still meanwhile; those that were killed stay so."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_an_agent(home: Path, seed: int) -> None:
    victim = random.Random(seed).randrange(WORKERS)
    run = start()
    with stopped(Pids(run, home).agents[victim]):
        status = ended(run, home)
    assert status.state == "failed"
    assert status.root_cause is not None
    assert status.root_cause.worker == victim
    assert status.root_cause.summary == f"worker {victim} was lost: {LOST}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("victim", ["leader", "another"])
def test_an_agent_of_a_run_that_may_restart(home: Path, victim: str, seed: int) -> None:
    chance = random.Random(seed)
    run = start("--finish", restarts=1)
    pids = Pids(run, home)
    with stopped(pids.agents[0 if victim == "leader" else chance.randrange(1, WORKERS)]):
        status = ended(run, home)
    assert (status.state, status.restarts) == ("succeeded", 1), status.root_cause


@pytest.mark.slow
def test_the_agent_of_a_single_worker(home: Path) -> None:
    run = echelon.run(command=["sleep", "600"], workers=1)
    wait_until(lambda: run.status().state == "running", "the rank to run")
    (worker,) = run.status().workers
    assert worker.pid is not None
    with stopped(worker.pid):
        status = ended(run, home)
    assert status.state == "failed"
    assert status.root_cause is not None
    assert status.root_cause.summary == f"worker 0 was lost: {LOST}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_an_agent_that_hardly_begins(home: Path, seed: int) -> None:
    """Stopped as soon as it is there: before its first heartbeat, or soon after."""
    run = echelon.run(command=["sleep", "600"], workers=1)
    pid = next(event.pid for event in run.events() if event.kind == "worker-started")
    assert pid is not None
    time.sleep(random.Random(seed).choice([0.0, 0.05, 0.2]))
    with stopped(pid):
        status = ended(run, home)
    assert (status.state, status.reason) == ("failed", f"worker 0 was lost: {LOST}")


@pytest.mark.slow
def test_the_agent_of_a_single_worker_that_may_restart(home: Path) -> None:
    script = "test $ECHELON_RESTART = 1 || sleep 600"
    run = echelon.run(command=["sh", "-c", script], workers=1, restarts=1)
    wait_until(lambda: run.status().state == "running", "the rank to run")
    (worker,) = run.status().workers
    assert worker.pid is not None
    with stopped(worker.pid):
        status = ended(run, home)
    assert (status.state, status.restarts) == ("succeeded", 1), status.root_cause


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("workers", [1, WORKERS])
def test_everything_at_once_is_no_loss(home: Path, seed: int, workers: int) -> None:
    """Stopped and continued in any order, for longer than one of them alone may be silent."""
    chance = random.Random(seed)
    run = echelon.run(RING, workers=workers, procs=PROCS, framework="torch")
    wait_until(lambda: run.status().state == "running", "all ranks to run")
    everything = processes_of(home)
    with stopped(*chance.sample(everything, len(everything))):
        time.sleep(LOST_AFTER + 2.0)
    time.sleep(LOST_AFTER + 1.0)  # a loss would be noticed by now
    status = run.status()
    assert (status.state, status.restarts, status.reason) == ("running", 0, None)
    assert [event.kind for event in run._engine.events(run._ref)].count("worker-lost") == 0
    run.stop()


TICKS = """
import time
for _ in range(200):
    time.sleep(0.1)
    print("tick", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_everything_at_once_is_no_stall(home: Path, seed: int) -> None:
    """A laptop that is suspended for longer than ranks may do nothing."""
    chance, stall = random.Random(seed), 4.0
    Path("ticks.py").write_text(TICKS)
    run = echelon.run("ticks.py", workers=2, stall=stall)
    wait_until(lambda: all(worker.cpus is not None for worker in run.usage().workers), "a sample of each")
    everything = processes_of(home)
    with stopped(*chance.sample(everything, len(everything))):
        time.sleep(2 * stall)
    status = ended(run, home)
    assert (status.state, status.restarts) == ("succeeded", 0), status.reason
