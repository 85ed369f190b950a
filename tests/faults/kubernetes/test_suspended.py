"""A run whose Job somebody suspends, by hand as here or as Kueue does, waits, says so, and goes on in its own
results when the Job is released.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Command, Terminal

pytestmark = pytest.mark.cluster
SCRIPT = """
import os, time
from pathlib import Path

saved = Path(os.environ["ECHELON_OUTPUT"], "checkpoint")
steps = int(saved.read_text()) if saved.exists() else 0
saved.write_text(str(steps + 1))
print("begins after step", steps, flush=True)
while steps == 0:
    time.sleep(0.1)
"""


@pytest.mark.core
def test_a_run_that_is_suspended_goes_on_in_its_own_output(terminal: Terminal, shared_class: str) -> None:
    terminal.kubectl.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "shelf"},
            "spec": {
                "storageClassName": shared_class,
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    terminal.write("train.py", SCRIPT)
    command = terminal.train("demo", "--output", "pvc:shelf/demo", "train.py")
    check_that_it_waits_and_goes_on(command, terminal)
    again = terminal.train("other", "--output", "pvc:shelf/demo", "train.py")
    assert again.wait() == 115, again
    assert "the results folder is not empty: it has checkpoint" in again.said


@pytest.mark.slow
def test_a_run_with_gpus_that_is_suspended_by_hand_waits(
    terminal: Terminal, give_gpus: Callable[..., None], real_nodes: list[str]
) -> None:
    """Its Jobs are suspended before it is admitted, too: this is another suspension, and not undone by us."""
    give_gpus(real_nodes[0], 2)
    terminal.write("train.py", SCRIPT.replace('os.environ["ECHELON_OUTPUT"]', '"/dev/shm"'))
    command = terminal.train("demo", "--gpus", "1", "--framework", "plain", "train.py")
    command.wait_for("begins after step 0")
    wait_until(lambda: "whole" in str(annotations_of(terminal.kubectl)), "it to be seen whole", PATIENCE)
    suspend(terminal.kubectl, suspend=True)
    command.wait_for("its Job is suspended")
    assert terminal.status("demo")["state"] == "queued"
    suspend(terminal.kubectl, suspend=False)
    command.wait_for("begins after step 0", 2)
    assert terminal.call("stop", "demo").returncode == 0


def check_that_it_waits_and_goes_on(command: Command, terminal: Terminal) -> None:
    command.wait_for("begins after step 0")
    suspend(terminal.kubectl, suspend=True)
    command.wait_for("its Job is suspended, and goes on when that is undone")
    listed = json.loads(terminal.call("ps", "-o", "json").stdout)
    assert [(each["state"], each["reason"]) for each in listed if each["name"] == "demo"] == [
        ("queued", "its Job is suspended, and goes on when that is undone")
    ]
    suspend(terminal.kubectl, suspend=False)
    assert command.wait() == 0, command
    assert "begins after step 1" in command.lines


def suspend(kubectl: Kubectl, *, suspend: bool) -> None:
    kubectl("patch", "job/demo", "--type=merge", "-p", json.dumps({"spec": {"suspend": suspend}}))


def annotations_of(kubectl: Kubectl) -> object:
    return kubectl.get("job", "demo")["metadata"].get("annotations")
