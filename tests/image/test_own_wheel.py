"""The wheel of this echelon, and the manager's image that it goes into."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.image.bases import Base, write_layout

import echelon
from echelon.image.own_wheel import write_wheel


def test_the_same_echelon_is_the_same_wheel(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for each in folders:
        each.mkdir()
    one, two = (write_wheel(each) for each in folders)
    assert one.name == two.name == f"echelon-{echelon.__version__}-py3-none-any.whl"
    assert one.read_bytes() == two.read_bytes()


def test_it_has_every_file_of_the_package_and_its_dependencies(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_wheel(tmp_path)) as archive:
        names = set(archive.namelist())
        about = archive.read(f"echelon-{echelon.__version__}.dist-info/METADATA").decode()
    assert {"echelon/cli/main.py", "echelon/job.schema.json", "echelon/py.typed"} <= names
    assert not [each for each in names if "__pycache__" in each]
    assert "Requires-Dist: msgspec" in about


@pytest.mark.slow
def test_what_it_installs_runs(tmp_path: Path) -> None:
    """Installed beside nothing else of echelon, it says its version; its dependencies are this Python's."""
    site = tmp_path / "site"
    with zipfile.ZipFile(write_wheel(tmp_path)) as archive:
        archive.extractall(site)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); from echelon.cli import main; print(main.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(site))


def test_the_managers_image_has_echelon_and_no_project(
    call: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    base = f"oci-archive:{write_layout(tmp_path / 'base.tar', Base())}"
    words = (
        "--manager",
        "--base",
        base,
        "--python",
        "3.12",
        "--no-deps",
        "--to",
        "manager.tar",
        "-o",
        "json",
    )
    done = call("image", "build", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["origin"] for each in found["layers"]] == ["base", "packages"]
    blob = found["layers"][1]["digest"].partition(":")[2]
    with tarfile.open("manager.tar") as archive:
        layer = archive.extractfile(f"blobs/sha256/{blob}")
        assert layer is not None
        with tarfile.open(fileobj=layer) as files:
            assert "echelon/site/echelon/cli/main.py" in [each.name.lstrip("/") for each in files]


def test_a_dockerfile_cannot_go_with_it(call: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = call("image", "build", "--manager", "-f", "Dockerfile", "--push", "x/y")
    assert done.returncode == 2
    assert "--manager" in done.stderr
