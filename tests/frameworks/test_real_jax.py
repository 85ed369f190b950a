"""Real JAX under the local engine: processes find each other without an argument, a failure is told from its
consequences, and one that fails does not wait for those that wait for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import PATIENCE

import echelon

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]

MEETS = """
import jax
jax.distributed.initialize()
from jax.experimental.multihost_utils import process_allgather
total = process_allgather(jax.numpy.ones(1) * (jax.process_index() + 1)).sum()
print(f"process {jax.process_index()} of {jax.process_count()} devices {jax.device_count()} sum {total:g}")
"""
# JAX registers a function that waits up to five minutes for all processes; the other one waits for this one.
FAILS = """
import atexit, os, signal, sys, time
import jax
jax.distributed.initialize()
from jax.experimental.multihost_utils import process_allgather
process_allgather(jax.numpy.ones(1))
atexit.register(print, "the script's own end", flush=True)
if jax.process_index() == int(sys.argv[2]) and os.environ["ECHELON_RESTART"] == "0":
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("a sample is broken")
if os.environ["ECHELON_RESTART"] == "0":
    time.sleep(600)
"""


def lines(run: echelon.Run, word: str) -> list[str]:
    return sorted(line.text for line in run.logs() if line.text.startswith(word))


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.core), 4])
def test_processes_find_each_other(workers: int) -> None:
    Path("train.py").write_text(MEETS)
    run = echelon.run("train.py", workers=workers)
    status = run.wait(3 * PATIENCE)
    assert (status.state, status.framework) == ("succeeded", "jax"), list(run.logs())
    total = workers * (workers + 1) // 2
    assert lines(run, "process") == [
        f"process {number} of {workers} devices {workers} sum {total}" for number in range(workers)
    ]


def test_several_processes_of_a_worker() -> None:
    Path("train.py").write_text(MEETS)
    run = echelon.run("train.py", workers=1, procs=3)
    assert run.wait(3 * PATIENCE).state == "succeeded", list(run.logs())
    assert [line[:14] for line in lines(run, "process")] == [f"process {number} of 3" for number in range(3)]


@pytest.mark.parametrize("first", ["0", "1"])  # the coordinator, or another
def test_the_process_that_failed_first_is_named_and_ends_at_once(first: str) -> None:
    Path("train.py").write_text(FAILS)
    run = echelon.run("train.py", args=["raise", first], workers=2, grace=1)
    status = run.wait(3 * PATIENCE)
    cause = status.root_cause
    assert status.state == "failed"
    assert cause is not None
    assert (cause.rank, cause.error) == (int(first), "ValueError: a sample is broken")
    said = [line.text for line in run.logs(rank=int(first))]
    assert "the script's own end" in said
    assert not any("shutdown barrier" in text.lower() for text in said), said


def test_a_killed_coordinator_is_named_and_a_restart_has_another() -> None:
    Path("train.py").write_text(FAILS)
    run = echelon.run("train.py", args=["kill", "0"], workers=2, restarts=1, grace=1)
    status = run.wait(4 * PATIENCE)
    assert (status.state, status.restarts) == ("succeeded", 1), list(run.logs())
    (restarting,) = [event for event in run.events() if event.kind == "restarting"]
    assert "rank 0 was killed by SIGKILL" in str(restarting)
