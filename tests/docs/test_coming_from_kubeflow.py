"""Every command of echelon's on the page for users of Kubeflow is executed, in its order, with its file."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.notebooks import run_cells

CELLS = re.compile(r"^```python\n(# cell \d.*?)^```", re.MULTILINE | re.DOTALL)
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


@pytest.mark.slow
def test_the_notebook(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no cluster is configured, as on a laptop, it trains on this machine."""
    assert home is not None
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(Path.cwd()))
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2] / 'src'}")
    cells = CELLS.findall(PAGE)
    assert len(cells) == 5
    book = run_cells([*cells, "print(client.list_jobs())"], Path.cwd())
    created, names, logs, left = (str(book.cells[number].outputs) for number in (1, 2, 3, 5))
    assert "no cluster is configured" in created
    assert all(f"mnist-worker-{number}" in names for number in range(4))
    assert "mnist-master-0" in names
    assert "[Pod mnist-master-0]: rank 0 of 5: loss" in logs
    assert "[]" in left
