"""Packages from PyPI as part of an image's layer, for Debian's Python and not for this machine's."""

from __future__ import annotations

import configparser
import io
import sys
import tarfile
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from zipfile import ZipFile, ZipInfo

from testbed.paths import CACHE
from testbed.progress import run_long
from testbed.pypi import Framework

PYTHON = "3.13"  # of the suite
PACKAGES = "./usr/lib/python3/dist-packages"
PREFIX = "./usr/local"
COMMAND = """\
#!/usr/bin/python3
import sys
from {module} import {function}
sys.exit({function}())
"""


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
    download(name, wheels, folder)
    with tarfile.open(layer, "a") as tar:
        for wheel in sorted(folder.glob("*.whl")):
            with ZipFile(wheel) as archive:
                _add_files(tar, archive)


def unpack_framework(name: str, layer: Path, framework: Framework, folder: Path) -> None:
    """The same for a framework, with the commands that its packages name, such as torchrun."""
    download(name, framework.alone, folder)
    if framework.whole:
        download(name, framework.whole, folder, with_others=True)
    with tarfile.open(layer, "a") as tar:
        for wheel in sorted(folder.glob("*.whl")):
            with ZipFile(wheel) as archive:
                _add_files(tar, archive, framework.leave_out)
                _add_commands(tar, archive)


def download(name: str, wheels: tuple[str, ...], folder: Path, *, with_others: bool = False) -> None:
    """Download packages, alone or with what they depend on."""
    alone = () if with_others else ("--no-deps",)
    _pip(name, wheels, "download", *alone, "--python-version", PYTHON, "--dest", str(folder))


def _add_files(tar: tarfile.TarFile, archive: ZipFile, leave_out: Iterable[str] = ()) -> None:
    for entry in archive.infolist():
        if not entry.is_dir() and not any(fnmatch(entry.filename, each) for each in leave_out):
            _add(tar, archive, entry)


def _add(tar: tarfile.TarFile, archive: ZipFile, entry: ZipInfo) -> None:
    parts = PurePosixPath(entry.filename).parts
    of_prefix = parts[0].endswith(".data") and parts[1] == "data"
    place = PurePosixPath(PREFIX, *parts[2:]) if of_prefix else PurePosixPath(PACKAGES, *parts)
    member = tarfile.TarInfo(f"./{place}")
    member.size, member.mode = entry.file_size, (entry.external_attr >> 16) & 0o777 or 0o644
    with archive.open(entry) as content:
        tar.addfile(member, content)


def _add_commands(tar: tarfile.TarFile, archive: ZipFile) -> None:
    """The commands that pip would make when it installs a wheel."""
    for entry in archive.namelist():
        if not entry.endswith(".dist-info/entry_points.txt"):
            continue
        told = configparser.ConfigParser(delimiters=("=",), strict=False)
        told.optionxform = str  # type: ignore[assignment, method-assign] # names are kept as they are
        told.read_string(archive.read(entry).decode())
        for command, place in told.items("console_scripts") if told.has_section("console_scripts") else ():
            module, _, function = place.partition("[")[0].strip().partition(":")
            content = COMMAND.format(module=module, function=function).encode()
            member = tarfile.TarInfo(f"{PREFIX}/bin/{command}")
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))


def _pip(name: str, wheels: tuple[str, ...], *words: str) -> None:
    pip = [sys.executable, "-m", "pip", words[0], "--quiet", "--disable-pip-version-check"]
    more = f" and {len(wheels) - 3} more" if len(wheels) > 3 else ""
    run_long(
        f"adding {', '.join(wheels[:3])}{more} to the image {name}",
        [*pip, *words[1:], "--only-binary", ":all:", *wheels],
        log=CACHE / "logs" / f"image-{name}-wheels.log",
    )
