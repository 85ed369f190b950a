"""A sweep whose trials wait for the GPUs of two nodes, one of which is drained meanwhile."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import Terminal

from echelon.engines.kubernetes import names

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.alone]
TRIALS = 30
SCRIPT = """
import os, sys, time

time.sleep(2)
with open(os.environ["ECHELON_OUTPUT"] + "/model", "w") as file:
    print(sys.argv[1], file=file)
print("loss=" + sys.argv[1])
"""
LONG = 900.0  # seconds for all of it, on a quiet machine


def test_all_trials_are_done_though_a_node_is_drained(
    terminal: Terminal, give_gpus: Callable[..., None], real_nodes: list[str]
) -> None:
    """Four trials fit at a time: each has four of eight GPUs of a node. Those of the drained node go on at
    the other one.
    """
    left, drained = real_nodes[:2]
    for node in (left, drained):
        give_gpus(node, 8)
    terminal.write("train.py", SCRIPT)
    words = ("--array", f"0..{TRIALS - 1}", "--maximize", "loss", "--name", "many")
    run = ("--image", terminal.image, "--gpus", "4", "--cpus", "0.1", "--restarts", "5")
    command = terminal.start("sweep", *words, "--", *run, "train.py", "{index}")

    def running_there() -> list[str]:
        pods = terminal.kubectl.items("pods", "-l", f"{names.RUN},{names.COMPONENT}=worker")
        return [
            pod["metadata"]["name"]
            for pod in pods
            if pod["spec"].get("nodeName") == drained and pod["status"]["phase"] == "Running"
        ]

    command.wait_for(" succeeded in", count=4)
    wait_until(running_there, "a trial on the node that is drained", LONG)
    try:
        terminal.kubectl("cordon", drained)
        terminal.kubectl("drain", drained, f"--pod-selector={names.RUN}", "--delete-emptydir-data", "--force")
        assert command.wait(LONG) == 0, command
    finally:
        terminal.kubectl("uncordon", drained)
    rows = list(csv.DictReader(io.StringIO(terminal.read("many", "trials.csv"))))
    assert [(row["trial"], row["loss"], row["state"]) for row in rows] == [
        (str(number + 1), f"{number}.0", "succeeded") for number in range(TRIALS)
    ]
    found = [terminal.read("many", f"{number + 1}/model") for number in range(TRIALS)]
    assert found == [f"{number}\n" for number in range(TRIALS)]
    assert f"best loss {TRIALS - 1} (index={TRIALS - 1}): trial {TRIALS}" in command.said
    removed = terminal.call("rm", "many")
    assert removed.returncode == 0, removed.stderr
    wait_until(lambda: not terminal.left_of("many"), "nothing of the trials to be left", LONG)
