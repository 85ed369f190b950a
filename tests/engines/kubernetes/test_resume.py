"""A run on a real cluster starts again in its results, where those are on a volume; else it says why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.faults.kubernetes.gate import Gate
from tests.faults.kubernetes.terminal import Terminal, kubeconfig_in

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LEARNS = """
import os, pathlib, sys
checkpoint = pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "checkpoint"
steps = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("restart", os.environ["ECHELON_RESTART"], "from step", steps)
checkpoint.write_text(str(steps + 1))
sys.exit(0 if steps else 5)
"""


@pytest.mark.core
def test_a_run_goes_on_in_the_volume_that_was_made_for_it(terminal: Terminal) -> None:
    terminal.write("train.py", LEARNS)
    first = terminal.train("again", "--output", "new:64Mi", "train.py")
    assert first.wait() == 5, first
    terminal.write("train.py", "print('edited meanwhile')")
    done = terminal.call("resume", "again", "--on", "k8s")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["restart 1 from step 1"]
    assert (terminal.folder / "runs/again/checkpoint").read_text() == "2"
    logs = terminal.call("logs", "again", "--on", "k8s")
    assert logs.stdout.splitlines() == ["restart 0 from step 0", "restart 1 from step 1"]  # of both starts
    assert "resumed; before that it had ended: failed: rank 0 exited with code 5" in logs.stderr
    refused = terminal.call("resume", "again", "--on", "k8s")
    assert refused.returncode == 115
    assert "has succeeded" in refused.stderr
    assert terminal.call("rm", "again", "--on", "k8s").returncode == 0
    terminal.wait_for_nothing("again")


def test_results_that_are_not_on_a_volume_cannot_be_resumed(terminal: Terminal) -> None:
    terminal.write("train.py", LEARNS)
    assert terminal.train("home", "train.py").wait() == 5
    refused = terminal.call("resume", "home", "--on", "k8s")
    assert refused.returncode == 115
    assert "its results are not on a volume" in refused.stderr
    assert "--output pvc:CLAIM" in refused.stderr
    assert terminal.call("status", "home", "--on", "k8s").returncode == 0  # it is as it was
    assert terminal.call("rm", "home", "--on", "k8s").returncode == 0


# The writes of a resumption after which it is killed: its Job is gone, its record is written anew. When its
# Job is made again it goes on by itself.
MOMENTS = ["DELETE jobs", "PATCH configmaps"]


@pytest.mark.usefixtures("own_cluster")
def test_a_resumption_that_is_killed_anywhere_is_said_again(
    terminal: Terminal, namespace: Kubectl, tmp_path: Path
) -> None:
    terminal.write("train.py", LEARNS.replace("0 if steps else 5", "5"))
    first = terminal.train("again", "--output", "new:64Mi", "train.py")
    assert first.wait() == 5, first
    with Gate(namespace, tmp_path) as gate:
        access = kubeconfig_in(namespace, tmp_path / "through-gate", gate.url)
        through = replace(terminal, kubeconfig=access)
        gate.watch()
        assert through.call("resume", "-d", "again", "--on", "k8s").returncode == 0
        assert terminal.call("wait", "again", "--on", "k8s").returncode == 5
        writes, at = gate.writes, -1
        for start, moment in enumerate(MOMENTS, 2):
            at = writes.index(moment, at + 1)
            gate.watch((at, "after"))
            killed = through.start("resume", "-d", "again", "--on", "k8s")
            gate.arm(killed.process.kill)
            assert killed.wait() < 0, killed
            assert sorted(gate.writes) == sorted(writes[: at + 1])  # some are made at the same time
            done = terminal.call("resume", "again", "--on", "k8s")
            assert done.returncode == 5, done.stderr
            assert done.stdout.splitlines() == [f"restart {start} from step {start}"]
    assert terminal.call("rm", "again", "--on", "k8s").returncode == 0
    terminal.wait_for_nothing("again")
