"""The commands for Kubernetes of the README and its guide, executed as they stand on a real cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl

from tests.conftest import PATIENCE
from tests.test_readme import KUBERNETES, README, SCRIPT, commands

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_every_command_for_kubernetes_works_as_it_stands_there(
    home: Path,
    namespace: Kubectl,
    image: Callable[[str], str],
    give_gpus: Callable[..., None],
    real_nodes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Path.cwd()
    (here / "train.py").write_text(SCRIPT)
    (here / "data").mkdir()
    (here / "data" / "images.bin").write_bytes(bytes(1000))
    kubeconfig = here / "kubeconfig"
    kubeconfig.write_text(namespace("config", "view", "--raw", "--minify", "--flatten"))
    namespace_word = ["config", "set-context", "--current", f"--namespace={namespace.namespace}"]
    Kubectl(kubeconfig=kubeconfig)(*namespace_word)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("ECHELON_ON", "k8s")
    give_gpus(real_nodes[0], 2, model="NVIDIA-A100-SXM4-80GB")
    shown, guided = commands(README, "sh"), commands(KUBERNETES, "sh")
    assert len(shown) >= 3
    assert len(guided) >= 12
    for line in [*shown, *guided]:
        words = [image("python") if word == "my/torch" else word for word in line]
        done = subprocess.run(
            [sys.executable, "-m", "echelon.cli.main", *words[1:]],
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
            check=False,
            env=os.environ,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    assert (here / "out" / "model.pt").read_text() == "weights"
