"""Every command of echelon's on the page for users of Kubeflow is executed, in its order, with its file."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-kubeflow.md").read_text()
ROW = re.compile(r"^\| .* \| `echelon ([^`]+)` \|$", re.MULTILINE)


def test_the_table_of_commands(
    cli: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHELON_ON", "local")
    code = re.search(r"```yaml\n# pytorchjob.yaml\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    Path("pytorchjob.yaml").write_text(code[1])
    commands = [found[1] for found in ROW.finditer(PAGE)]
    assert len(commands) >= 9
    said = {}
    for command in commands:
        done = cli(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)
        said[command] = done.stdout
    assert sorted(said["logs mnist"].splitlines()) == ["[0] rank 0 of 2", "[1] rank 1 of 2"]
    assert said["logs mnist --rank 0"].splitlines() == ["[0] rank 0 of 2"]
