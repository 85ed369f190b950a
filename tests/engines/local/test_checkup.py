"""What `doctor` finds."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from tests.cli.nvidia_smi import StandIn

from echelon.engines.local.checkup import check_up
from echelon.model.engine.finding import Finding


def findings(python: str = sys.executable, **environment: str) -> dict[str, Finding]:
    return {each.what: each for each in check_up(python, {"PATH": "/nowhere", **environment})}


def test_this_machine(home: Path) -> None:
    found = findings()
    version = ".".join(map(str, sys.version_info[:3]))
    assert found["Python for ranks"].found == f"{version} ({sys.executable})"
    assert {"torch", "tensorflow", "GPUs", "state folder", "results folder", "open files", "clean-up"} <= set(
        found
    )
    assert all(each.fix for each in found.values() if each.level != "ok")
    assert found["state folder"].level == found["results folder"].level == "ok"
    assert str(home) in found["state folder"].found
    assert not home.exists()  # looking leaves nothing behind


def test_modules_of_the_ranks_python_not_of_ours(home: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    found = findings(str(bare))
    assert found["Python for ranks"].level == "ok"
    assert (found["torch"].level, found["torch"].found) == ("degraded", "not installed")
    assert "pip install torch" in found["torch"].fix


def test_the_panel_in_jupyterlab(home: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name in ("jupyterlab", "jupyter_core", "echelon"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").touch()
    (site / "jupyter_core" / "paths.py").write_text(
        f"def jupyter_path(name): return [{str(tmp_path)!r} + '/share/' + name]\n"
        f"def jupyter_config_path(): return [{str(tmp_path)!r} + '/etc']\n"
    )
    python = tmp_path / "python"
    start = f'#!/bin/sh\nexport PYTHONPATH={site}\nexec {sys.executable} -S "$@"\n'
    python.write_text(start)
    python.chmod(0o755)
    what = "panel in JupyterLab"
    assert findings(str(python))[what].found == "JupyterLab ? does not have it"
    assert "echelon[notebook]" in findings(str(python))[what].fix
    for name in ("share/labextensions/echelon/package.json", "etc/jupyter_server_config.d/echelon.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert findings(str(python))[what] == Finding(level="ok", what=what, found="JupyterLab ? has it")
    shutil.rmtree(site / "jupyterlab")
    assert findings(str(python))[what].found == "no JupyterLab"


@pytest.mark.parametrize("body", [None, "exit 3", "echo not JSON", "kill -9 $$"])
def test_a_python_that_does_not_work(home: Path, tmp_path: Path, body: str | None) -> None:
    python = tmp_path / "python"
    if body is not None:
        python.write_text(f"#!/bin/sh\n{body}\n")
        python.chmod(0o755)
    found = findings(str(python))
    assert found["Python for ranks"].level == "missing"
    assert "--python" in found["Python for ranks"].fix
    assert "torch" not in found
    assert "clean-up" in found  # the rest is looked at all the same


def test_gpus(home: Path, tmp_path: Path) -> None:
    assert findings()["GPUs"].found == "no nvidia-smi"
    smi = StandIn(tmp_path / "driver")
    path = f"{smi.folder}:/bin:/usr/bin"
    assert findings(PATH=path)["GPUs"].found == "nvidia-smi shows none"
    smi.show(3, models=("NVIDIA H100", "NVIDIA H100", "Tesla T4"))
    assert findings(PATH=path)["GPUs"] == Finding(level="ok", what="GPUs", found="3: NVIDIA H100, Tesla T4")
    hidden = findings(PATH=path, CUDA_VISIBLE_DEVICES="")["GPUs"]
    assert hidden.level == "degraded"
    assert "CUDA_VISIBLE_DEVICES='' hides them" in hidden.fix


def test_folders_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_HOME", "/proc/nowhere/state")
    found = findings()["state folder"]
    assert found.level == "missing"
    assert "/proc/nowhere/state cannot be written to" in found.found
    assert "ECHELON_HOME" in found.fix


def test_little_room(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(total=2**20, free=2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    found = findings()
    assert found["state folder"].level == found["results folder"].level == "degraded"
    assert "1 MiB free" in found["state folder"].found
    if Path("/dev/shm").exists():
        assert (found["shared memory"].level, found["shared memory"].found) == ("degraded", "1 MiB")
