"""A run is found by its name wherever it is: on this machine, or on the cluster of the kubeconfig."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.conftest import PATIENCE
from tests.faults.kubernetes.terminal import Terminal

from echelon.errors import UnknownRun

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def plainly(terminal: Terminal, *words: str) -> subprocess.CompletedProcess[str]:
    """Call echelon with a kubeconfig and nothing that says where."""
    environment = {**os.environ, "KUBECONFIG": str(terminal.kubeconfig)}
    environment.pop("ECHELON_ON", None)
    command = [sys.executable, "-m", "echelon.cli.main", *words]
    return subprocess.run(
        command,
        cwd=terminal.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )


def test_a_name_is_looked_up_in_the_other_place(terminal: Terminal) -> None:
    terminal.write("train.py", "print('here')")
    terminal.write("job.yaml", f"script: train.py\non: k8s\nimage: {terminal.image}\nname: there\n")
    assert plainly(terminal, "run", "-f", "job.yaml").returncode == 0
    shown = plainly(terminal, "logs", "there")
    where = f"k8s://{terminal.kubectl.namespace}/there"
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "here\n", f"echelon: run there is {where}\n")
    assert plainly(terminal, "logs").stderr == "echelon: run there, the newest of this folder\n"
    assert plainly(terminal, "status", "there", "-o", "json").stderr == ""
    assert plainly(terminal, "status", "--on", "local", "there").returncode == UnknownRun.exit_code
    missing = plainly(terminal, "status", "nowhere")
    assert missing.returncode == UnknownRun.exit_code
    assert plainly(terminal, "run", "--name", "mine", "train.py").returncode == 0
    found = terminal.call("logs", "mine")  # with ECHELON_ON=k8s
    assert (found.stdout, found.stderr) == ("here\n", "echelon: run mine is local://mine\n")
    assert terminal.call("logs", "k8s://mine").returncode == UnknownRun.exit_code
    assert plainly(terminal, "rm", "there").returncode == 0
    terminal.wait_for_nothing("there")
