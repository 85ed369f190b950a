"""Packages from PyPI as part of an image's layer, for Debian's Python and not for this machine's."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path, PurePosixPath
from zipfile import ZipFile, ZipInfo

from testbed.paths import CACHE
from testbed.progress import run_long

PYTHON = "3.13"  # of the suite
PACKAGES = "./usr/lib/python3/dist-packages"
PREFIX = "./usr/local"


def install(
    name: str, layer: Path, wheels: tuple[str, ...], folder: Path, how: tuple[str, ...] = ("--no-deps",)
) -> None:
    """Install packages where every Python 3 of Debian finds them, with this machine's pip."""
    _pip(name, wheels, "install", *how, "--no-compile", "--target", str(folder))
    with tarfile.open(layer, "a") as tar:
        tar.add(folder, arcname=PACKAGES)


def unpack(name: str, layer: Path, wheels: tuple[str, ...], folder: Path) -> None:
    """Add packages with the programs and libraries that they bring, which `pip install --target` leaves out:
    those are below /usr/local.
    """
    _pip(name, wheels, "download", "--no-deps", "--python-version", PYTHON, "--dest", str(folder))
    with tarfile.open(layer, "a") as tar:
        for wheel in sorted(folder.glob("*.whl")):
            with ZipFile(wheel) as archive:
                for entry in archive.infolist():
                    if not entry.is_dir():
                        _add(tar, archive, entry)


def _add(tar: tarfile.TarFile, archive: ZipFile, entry: ZipInfo) -> None:
    parts = PurePosixPath(entry.filename).parts
    of_prefix = parts[0].endswith(".data") and parts[1] == "data"
    place = PurePosixPath(PREFIX, *parts[2:]) if of_prefix else PurePosixPath(PACKAGES, *parts)
    member = tarfile.TarInfo(f"./{place}")
    member.size, member.mode = entry.file_size, (entry.external_attr >> 16) & 0o777 or 0o644
    with archive.open(entry) as content:
        tar.addfile(member, content)


def _pip(name: str, wheels: tuple[str, ...], *words: str) -> None:
    pip = [sys.executable, "-m", "pip", words[0], "--quiet", "--disable-pip-version-check"]
    run_long(
        f"adding {', '.join(wheels)} to the image {name}",
        [*pip, *words[1:], "--only-binary", ":all:", *wheels],
        log=CACHE / "logs" / f"image-{name}-wheels.log",
    )
