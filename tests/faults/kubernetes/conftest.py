"""The testbed's fixtures, and a terminal in the test's own namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.fixtures import (
    api_outage,
    audit,
    cluster,
    image,
    namespace,
    own_cluster,
    real_nodes,
    spare_node,
    turn,
    user,
)
from testbed.kubectl import Kubectl
from tests.faults.kubernetes.terminal import Terminal, kubeconfig_in

__all__ = [
    "api_outage",
    "audit",
    "cluster",
    "image",
    "namespace",
    "own_cluster",
    "real_nodes",
    "spare_node",
    "turn",
    "user",
]


@pytest.fixture
def terminal(
    home: Path, namespace: Kubectl, image: Callable[[str], str], tmp_path: Path
) -> Iterator[Terminal]:
    """Somebody who may do everything, in a fresh namespace, with an image that has only Python."""
    folder = tmp_path / "work"
    (folder / "pyproject.toml").write_text("[project]\nname = 'work'\n")
    terminal = Terminal(
        folder=folder,
        kubeconfig=kubeconfig_in(namespace, tmp_path / "kubeconfig"),
        kubectl=namespace,
        image=image("python"),
    )
    yield terminal
    terminal.leave()
