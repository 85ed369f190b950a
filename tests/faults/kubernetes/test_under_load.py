"""Every core is busy, and the API server and the kubelets wait for theirs: what ends well is called that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.faults.kubernetes.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FEW, MANY = 4, 48
AT_ONCE = 4
# Both ranks end at the same moment, so that their agents, pods and Jobs end in any order.
TWO = """
import os
rank = os.environ["ECHELON_RANK"]
with open(os.environ["ECHELON_OUTPUT"] + f"/rank-{rank}", "w") as file:
    file.write(f"result of {rank}")
print("done", flush=True)
"""


@pytest.fixture
def load() -> Iterator[None]:
    """Two processes for every core that only compute."""
    busy = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as ends:
        for _ in range(2 * (os.cpu_count() or 1)):
            process = subprocess.Popen(busy)
            ends.callback(process.wait)
            ends.callback(process.kill)
        yield


@pytest.mark.usefixtures("load")
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_runs_of_two_workers_that_end_well(terminal: Terminal, count: int) -> None:
    terminal.write("two.py", TWO)
    for first in range(0, count, AT_ONCE):
        names = [f"well-{number}" for number in range(first, first + AT_ONCE)]
        commands = [terminal.train(name, "-n", "2", "two.py") for name in names]
        for name, command in zip(names, commands, strict=True):
            assert command.wait() == 0, (name, command)
            assert terminal.read(name, "rank-0") == "result of 0"
            assert terminal.read(name, "worker-1/rank-1") == "result of 1"
            status = terminal.status(name)
            assert (status["state"], status["exit_code"], status["restarts"]) == ("succeeded", 0, 0), name
        assert terminal.call("rm", *names).returncode == 0
