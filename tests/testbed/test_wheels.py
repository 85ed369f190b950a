"""Packages of PyPI in an image's layer: their files, and the commands that pip would make of them."""

from __future__ import annotations

import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
from testbed.pypi import FRAMEWORKS, Framework

from testbed import wheels


def write_wheel(path: Path, files: dict[str, str]) -> None:
    with ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def test_a_framework_comes_with_its_commands_and_without_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[tuple[str, ...], bool]] = []

    def pip(_name: str, packages: tuple[str, ...], *words: str) -> None:
        asked.append((packages, "--no-deps" in words))
        folder = Path(words[words.index("--dest") + 1])
        folder.mkdir(exist_ok=True)
        files = {"net/__init__.py": "x = 1", "net/include/net.h": "int x;", "net-1.data/data/lib/net.so": ""}
        points = "[console_scripts]\nnetRun = net.run:main\nold = net.old:main [extra]\n\n[other]\na = b:c\n"
        write_wheel(folder / "net-1.whl", {**files, "net-1.dist-info/entry_points.txt": points})

    monkeypatch.setattr(wheels, "_pip", pip)
    layer = tmp_path / "layer.tar"
    framework = Framework(alone=("net==1",), whole=("others==2",), leave_out=("net/include/*",))
    wheels.unpack_framework("net", layer, framework, tmp_path / "wheels")
    assert asked == [(("net==1",), True), (("others==2",), False)]
    with tarfile.open(layer) as tar:
        found = {each.name: each for each in tar}
        places = {f"{wheels.PACKAGES}/net/__init__.py", "./usr/local/lib/net.so", "./usr/local/bin/old"}
        assert places <= set(found)
        assert not [name for name in found if name.endswith("net.h")]
        command = found["./usr/local/bin/netRun"]
        assert command.mode == 0o755
        content = tar.extractfile(command)
        assert content is not None
        assert content.read().decode().splitlines()[0] == "#!/usr/bin/python3"


def test_every_version_is_pinned() -> None:
    for each in FRAMEWORKS.values():
        assert all("==" in package for package in (*each.alone, *each.whole))
