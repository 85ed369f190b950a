"""`echelon top RUN` and `--stall` in real pods: the leader's agent has what all workers use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE, wait_until

import echelon
from echelon.cli import main
from echelon.model.engine.usage import RunUsage

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

COMPUTES = """
import os, time
held = bytearray(64 << 20)
print("up", flush=True)
while not os.path.exists("/tmp/go"):
    sum(number * number for number in range(20_000))
"""
HANGS = """
import time
def wait_for_ever():
    time.sleep(1000)
print("up", flush=True)
wait_for_ever()
"""


@pytest.fixture
def place(
    namespace: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: Callable[[str], str]
) -> dict[str, str]:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.chdir(tmp_path)
    return {"image": image("python"), "namespace": str(namespace.namespace)}


def start(place: dict[str, str], text: str, **more: str) -> echelon.Run:
    Path("train.py").write_text(text)
    return echelon.run("train.py", on="k8s", workers=2, name="fm", **place, **more)


def test_what_the_workers_of_a_run_use(place: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    run = start(place, COMPUTES, memory="512Mi:512Mi")

    def computing(usage: RunUsage) -> bool:
        return len(usage.workers) == 2 and all((worker.cpus or 0.0) > 0.01 for worker in usage.workers)

    wait_until(lambda: computing(run.usage()), "a sample of each worker", 120.0)
    for worker in run.usage().workers:
        assert worker.memory is not None
        assert worker.memory > 32 << 20
        assert worker.memory_limit == 512 << 20, "of its pod"
        assert worker.node
    with run.live_usage() as live:
        wait_until(lambda: computing(live.now()), "the same, live")
        capfd.readouterr()
        assert main.call(["top", str(run), "-o", "json"]) == 0
        assert [each["state"] for each in json.loads(capfd.readouterr().out)["workers"]] == ["running"] * 2
        run.stop()
        wait_until(live.ended.is_set, "the end", 120.0)
    assert [each.cpus for each in run.usage().workers] == [None, None]


def test_a_gang_that_hangs_in_pods_is_stuck_and_shows_where(place: dict[str, str]) -> None:
    run = start(place, HANGS, stall="5s")
    status = run.wait(4 * PATIENCE)
    assert (status.state, status.exit_code) == ("failed", 124)
    assert status.root_cause is not None
    assert status.root_cause.kind == "stuck"
    assert "rank 1 was in wait_for_ever (train.py:4)" in (status.root_cause.peers or "")
    for rank in (0, 1):
        assert any("wait_for_ever" in line.text for line in run.logs(rank=rank))
