"""The example, unchanged, on two nodes of a real cluster as `make demo-k8s` does it: the local result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "fashion_mnist"
ACCURACY = re.compile(r"accuracy=(\d\.\d{4})")
# With larger steps than usual a part of the data is enough; an epoch over all of it would take minutes.
FLAGS = ("--limit", "5000", "--lr", "0.05", "--checkpoint_path", "{output}/ckpt", "--log_path", "{output}/tb")
# Results, logs and volumes are the user's: whatever else carries the run's label goes with `rm`.
KINDS = "jobs,pods,configmaps,secrets,services"

Echelon = Callable[..., str]


@pytest.fixture
def echelon(tmp_path: Path, namespace: Kubectl, clean_environment: Mapping[str, str]) -> Echelon:
    """`echelon ...` in a folder of its own; what it prints, both streams together."""
    kept = {name: text for name, text in clean_environment.items() if not name.startswith("ECHELON_")}
    environment = kept | {
        "ECHELON_HOME": str(tmp_path / "home"),
        "KUBECONFIG": str(namespace.kubeconfig),
        "PYTHONWARNINGS": "default",
    }

    def call(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "echelon.cli.main", *words],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=15 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return call


def accuracy(printed: str) -> float:
    found = ACCURACY.findall(printed)
    assert len(found) == 1, printed
    return float(found[0])


def cores(amount: str) -> float:
    return float(amount[:-1]) / 1000 if amount.endswith("m") else float(amount)


def test_example_trains_on_two_nodes_as_it_does_here(
    shared_class: str,
    namespace: Kubectl,
    image: Callable[[str], str],
    real_nodes: Sequence[str],
    real_data: Path,
    echelon: Echelon,
    tmp_path: Path,
) -> None:
    there = ("--on", "k8s", "--namespace", namespace.namespace)
    storage = ("--size", "1Gi", "--mode", "rwx", "--class", shared_class)
    echelon("volume", "create", "fashion-mnist", *storage, *there)
    copied = echelon("cp", *there, "--image", image("python"), f"{real_data}{os.sep}.", "pvc:fashion-mnist")
    assert "t10k" not in copied  # one line that counts, no list of files

    # More than half of a node's cores each: two workers do not fit on one node.
    nodes = (namespace.get("node", name) for name in real_nodes)
    most = max(cores(node["status"]["allocatable"]["cpu"]) for node in nodes)
    script = str(EXAMPLE / "train.py")
    shape = ("--cpus", f"{most * 600:.0f}m", "--mount", "pvc:fashion-mnist:/data:ro")
    run = ("run", "-n", "2", "--name", "fm")
    pods = echelon(*run, *there, "--image", image("torch"), *shape, script, "--data_path", "/data", *FLAGS)
    told = json.loads(echelon("status", *there, "fm", "-o", "json"))
    assert told["state"] == "succeeded"
    assert len({worker["node"] for worker in told["workers"]}) == 2
    results = tmp_path / "runs" / "fm"
    import torch  # seconds that collecting the tests need not take

    model = torch.load(results / "ckpt" / "model.pt", weights_only=True)
    assert sum(part.numel() for part in model.values()) == 431_080
    assert list((results / "tb").glob("events.out.tfevents.*"))
    assert sorted(path.name for path in (results / "logs").iterdir()) == ["rank-0.log", "rank-1.log"]
    assert f"accuracy={accuracy(pods):.4f}" in (results / "logs" / "rank-0.log").read_text()

    here = ("run", "-n", "2", "--name", "here", "--python", sys.executable)
    local = echelon(*here, script, "--data_path", str(real_data), *FLAGS)
    assert accuracy(pods) == pytest.approx(accuracy(local), abs=0.02)
    assert accuracy(pods) > 0.6

    echelon("rm", *there, "fm")
    assert namespace.items(KINDS, "-l", "echelon.dev/run=fm") == []
    assert (results / "ckpt" / "model.pt").exists()
    assert namespace.find("pvc", "fashion-mnist")
