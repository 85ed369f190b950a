"""A terminal in the test's own namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.faults.kubernetes.terminal import Terminal, kubeconfig_in


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
