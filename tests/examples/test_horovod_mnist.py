"""The Horovod example as its users meet it: on two workers of this machine, continued, and in two pods."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = "examples/horovod_mnist/train.py"
PLACES = ["rank 0 of 2, 0 of 2 here", "rank 1 of 2, 1 of 2 here"]
IN_PODS = ["rank 0 of 2, 0 of 1 here", "rank 1 of 2, 0 of 1 here"]

KILLED = """
import os, signal
import horovod.torch as hvd, torch
hvd.init()
if hvd.rank() == 1 and os.environ["ECHELON_RESTART"] == "0":
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(torch.ones(1))
"""
Echelon = Callable[..., str]


@pytest.fixture
def project(tmp_path: Path, make_idx_folder: Callable[..., Path]) -> Path:
    """Both examples, of which one uses the other's data, with small data beside them."""
    folder = tmp_path / "project"
    for name in ("fashion_mnist", "horovod_mnist"):
        shutil.copytree(EXAMPLES / name, folder / "examples" / name)
    (folder / "pyproject.toml").touch()
    make_idx_folder(folder / "data", train=1000, test=100)
    return folder


@pytest.fixture
def echelon(project: Path, tmp_path: Path, clean_environment: Mapping[str, str]) -> Echelon:
    """`echelon ...` in the project; what it prints, both streams together."""

    def call(*words: str, **more: str) -> str:
        environment = {
            **clean_environment,
            "ECHELON_HOME": str(tmp_path / "home"),
            "PYTHONWARNINGS": "default",
        }
        done = subprocess.run(
            [sys.executable, "-m", "echelon.cli.main", *words],
            cwd=project,
            env=environment | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=5 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return call


def epoch_of(checkpoint: Path) -> int:
    import torch  # seconds that collecting the tests need not take

    return int(torch.load(checkpoint, weights_only=True)["epoch"])


def places(printed: str) -> list[str]:
    return sorted(re.findall(r"rank \d of \d, \d of \d here", printed))


@pytest.mark.slow
def test_two_workers_of_this_machine(project: Path, echelon: Echelon, horovod: Path) -> None:
    here = ("--python", sys.executable, "--name", "hm")
    ranks = {"PYTHONPATH": str(horovod), "HOROVOD_GLOO_TIMEOUT_SECONDS": str(int(5 * PATIENCE))}
    printed = echelon("run", "-n", "2", *here, SCRIPT, "--data_path", "data", **ranks)
    assert places(printed) == PLACES
    assert "epoch 1: loss=" in printed
    checkpoint = project / "runs" / "hm" / "checkpoint.pt"
    assert epoch_of(checkpoint) == 1

    echelon("rm", "hm")
    more = echelon("run", *here, "--reuse-results", SCRIPT, "--data_path", "data", "--epochs", "2", **ranks)
    assert "resuming after epoch 1" in more
    assert "epoch 1: loss=" not in more
    assert epoch_of(checkpoint) == 2


@pytest.mark.slow
@pytest.mark.cluster
def test_two_pods(namespace: Kubectl, image: Callable[[str], str], project: Path, echelon: Echelon) -> None:
    there = ("--on", "k8s", "--namespace", namespace.namespace, "--image", image("horovod"))
    patient = ("--env", f"HOROVOD_GLOO_TIMEOUT_SECONDS={5 * PATIENCE:.0f}")
    script = (SCRIPT, "--data_path", "data")
    kubeconfig = {"KUBECONFIG": str(namespace.kubeconfig)}
    printed = echelon("run", "-n", "2", "--name", "hm", *there, *patient, *script, **kubeconfig)
    assert places(printed) == IN_PODS
    assert epoch_of(project / "runs" / "hm" / "checkpoint.pt") == 1

    (project / "killed.py").write_text(KILLED)
    again = ("--restarts", "1", "--framework", "horovod", "killed.py")
    printed = echelon("run", "-n", "2", "--name", "killed", *there, *patient, *again, **kubeconfig)
    assert "rank 1 was killed by SIGKILL" in printed
