"""Real Horovod under the local engine: ranks find each other without `horovodrun`, a failure is told from its
consequences, a restart has a rendezvous of its own, and the chief's end is the run's.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.nvidia_smi import StandIn
from tests.conftest import PATIENCE

import echelon
from echelon.agent.ranks.launching.roll import crossings
from echelon.agent.task import SCHEMA, Task

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home", "horovod")]

MEETS = """
import sys, time
import horovod.torch as hvd, torch
for _ in range(2):  # a script may begin again
    hvd.init()
    total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum)
    hvd.shutdown()
hvd.init()
print(f"rank {hvd.rank()} of {hvd.size()} local {hvd.local_rank()} of {hvd.local_size()} "
      f"cross {hvd.cross_rank()} of {hvd.cross_size()} sum {total.item():g}", flush=True)
hvd.allreduce(torch.ones(1))
while "stay" in sys.argv and hvd.rank() > 0:
    time.sleep(0.1)
"""

# Horovod tells the others of an exception before the rank has ended, and a busy machine may delay that.
FAILS = """
import atexit, os, signal, sys, time
import horovod.torch as hvd, torch
hvd.init()
if hvd.rank() == 0 and sys.argv[1] == "raise":
    atexit.register(time.sleep, 30)
first = os.environ["ECHELON_RESTART"] == "0"
print("rendezvous", os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], flush=True)
for step in range(10**6 if first else 100):
    if first and hvd.rank() == 1 and step == 50:
        if sys.argv[1] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("a sample is broken")
    hvd.allreduce(torch.ones(1), name="x")
"""


def lines(run: echelon.Run, word: str) -> list[str]:
    return sorted(line.text for line in run.logs() if line.text.startswith(word))


def test_ranks_find_each_other_and_the_run_ends_when_the_chief_does() -> None:
    Path("train.py").write_text(MEETS)
    run = echelon.run("train.py", args=["stay"], workers=2)
    status = run.wait(3 * PATIENCE)
    assert status.state == "succeeded", status
    assert status.framework == "horovod"  # by its imports
    assert lines(run, "rank") == [
        "rank 0 of 2 local 0 of 2 cross 0 of 1 sum 3",
        "rank 1 of 2 local 1 of 2 cross 0 of 1 sum 3",
    ]


def test_uneven_workers_with_gpus_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker is a host to Horovod, which connects the ranks of a host, and those of one number."""
    smi = StandIn(tmp_path / "smi")
    smi.show(3)
    monkeypatch.setenv("PATH", f"{smi.folder}:{os.environ['PATH']}")
    Path("train.py").write_text(MEETS)
    run = echelon.run("train.py", workers=1, gpus=2, roles={"chief": {"workers": 1, "gpus": 1}})
    status = run.wait(3 * PATIENCE)
    assert status.state == "succeeded", status
    assert lines(run, "rank") == [
        "rank 0 of 3 local 0 of 1 cross 0 of 2 sum 6",
        "rank 1 of 3 local 0 of 2 cross 1 of 2 sum 6",
        "rank 2 of 3 local 1 of 2 cross 0 of 1 sum 6",
    ]


def test_the_rank_that_failed_first_is_named_with_its_exception() -> None:
    Path("train.py").write_text(FAILS)
    status = echelon.run("train.py", args=["raise"], workers=2).wait(3 * PATIENCE)
    assert status.state == "failed"
    cause = status.root_cause
    assert cause is not None
    assert (cause.rank, cause.error) == (1, "ValueError: a sample is broken")
    assert all(other.consequence for other in cause.others), cause.others


def test_a_killed_rank_is_named_and_a_restart_has_a_rendezvous_of_its_own() -> None:
    Path("train.py").write_text(FAILS)
    run = echelon.run("train.py", args=["kill"], workers=2, restarts=1)
    status = run.wait(3 * PATIENCE)
    assert (status.state, status.restarts) == ("succeeded", 1), status
    (restarting,) = [event for event in run.events() if event.kind == "restarting"]
    assert "rank 1 was killed by SIGKILL" in str(restarting)
    told = set(lines(run, "rendezvous"))
    assert len(told) == 2
    assert all(re.fullmatch(r"rendezvous 127\.0\.0\.1:\d+/[0-9a-f]{32}", each) for each in told)


@pytest.fixture
def their_hosts(horovod: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module with which `horovodrun` assigns ranks to hosts."""
    monkeypatch.syspath_prepend(str(horovod))
    yield importlib.import_module("horovod.runner.common.util.hosts")
    for name in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
        del sys.modules[name]


def test_cross_ranks_are_those_of_horovodrun(their_hosts: Any) -> None:
    @given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    def agree(sizes: list[int]) -> None:
        hosts = [their_hosts.HostInfo(f"host-{number}", size) for number, size in enumerate(sizes)]
        theirs = [
            [slot.cross_rank, slot.cross_size] for slot in their_hosts.get_host_assignments(hosts, sum(sizes))
        ]
        groups = [{"role": "worker", "workers": 1, "procs": size, "launch": {}} for size in sizes]
        paths = dict.fromkeys(("cwd", "logs", "secret", "output", "reports"), "/nowhere")
        task = Task(
            {"schema": SCHEMA, "run": "r", "groups": groups, "leader": {"host": "", "port": 0}, **paths}
        )
        ours = crossings(task, [f"10.0.0.{number}" for number in range(len(sizes))], sum(sizes))
        assert [crossing for worker in ours for crossing in worker] == theirs

    agree()
