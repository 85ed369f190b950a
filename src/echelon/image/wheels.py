"""The user's packages, installed into a folder for another machine and Python than these.

Wheels only: there is no compiler for the other machine here. uv is preferred to pip, because pip evaluates
conditions such as `python_version < "3.12"` or `platform_system == "Linux"` for the Python that pip itself
runs on; where only pip is found, a note says so.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from echelon.errors import InvalidJob, Unavailable
from echelon.image.oci import Platform
from echelon.values import frozen

LIBC = "glibc-2.28"  # what wheels may require: every maintained Linux has at least this
_MACHINES = {
    "amd64": "x86_64",
    "arm64": "aarch64",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
    "riscv64": "riscv64",
}
_UV_MACHINES = ("x86_64", "aarch64")
_UV_GLIBC = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)  # the minor versions that uv has names for
_STDERR = 2
_OLDER_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@frozen
class PackageSet:
    """Packages, and the system and Python that they must run on."""

    packages: tuple[str, ...]  # as pip takes them: name, name==1.2, a wheel's path or address
    requirements: tuple[Path, ...]
    platform: Platform
    python: str  # 3.12
    libc: str = LIBC
    dependencies: bool = True


def check_python(text: str) -> str:
    """A version of Python as wheels name it, or InvalidJob."""
    found = re.fullmatch(r"(3\.\d{1,2})(?:\.\d+\S*)?", text)
    if found is None:
        raise InvalidJob("python", text, "is not a version of Python 3", hint="for example 3.12")
    return found[1]


def check_packages(packages: Sequence[str]) -> None:
    """Refuse packages that the installer would take for options."""
    for package in packages:
        if not package.strip() or package.startswith("-"):
            raise InvalidJob(
                "pip", package, "is not a package", hint="options belong into a file for --requirements"
            )


def install(wanted: PackageSet, into: Path) -> tuple[str, ...]:
    """Install packages; the installer's output goes to standard error. Returns notes for the user."""
    tool, notes = find_tool(wanted)
    command = [*tool, *arguments(wanted, into, uv=_is_uv(tool))]
    # Its output is for the user, and standard output is for the result.
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=_STDERR, check=False)
    if done.returncode:
        name = "uv" if _is_uv(tool) else "pip"
        raise Unavailable(
            f"{name} could not install the packages for {wanted.platform}, Python {wanted.python}:"
            " its output is above",
            hint="only wheels can be installed: build one of the package, or use a base image that has it",
        )
    return notes


def find_tool(wanted: PackageSet) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The beginning of the installer's command, and notes for the user."""
    uv = _find_uv()
    if uv and _MACHINES.get(wanted.platform.architecture) in _UV_MACHINES:
        return (uv, "pip"), ()
    if importlib.util.find_spec("pip") is not None:
        pip: tuple[str, ...] = (sys.executable, "-m", "pip")
    elif found := shutil.which("pip3") or shutil.which("pip"):
        pip = (found,)
    else:
        raise Unavailable(
            "packages are installed by uv or pip, and neither is here", hint="install uv or pip"
        )
    note = (
        "pip judges the packages' conditions (their Python, their system) by this machine;"
        " where it differs from the image, install uv, which does not"
    )
    return pip, (note,)


def arguments(wanted: PackageSet, into: Path, *, uv: bool) -> list[str]:
    """The installer's arguments. Pure."""
    machine = _MACHINES.get(wanted.platform.architecture, "")
    if not machine:
        raise Unavailable(
            f"no wheels are known for {wanted.platform}", hint="use a base image with the packages"
        )
    command = ["install", "--target", str(into), "--only-binary", ":all:", "--python-version", wanted.python]
    if uv:
        # `tidy` must not change a file that is a hard link into uv's cache.
        command += [
            "--link-mode",
            "copy",
            "--python",
            sys.executable,
            "--python-platform",
            _uv_name(wanted, machine),
        ]
    else:
        command += ["--no-compile", "--no-warn-script-location", "--disable-pip-version-check"]
        command += ["--implementation", "cp"]
        for tag in _tags(wanted.libc, machine):
            command += ["--platform", tag]
    if not wanted.dependencies:
        command.append("--no-deps")
    for file in wanted.requirements:
        command += ["--requirement", str(file)]
    return [*command, "--", *wanted.packages] if wanted.packages else command


def _libc(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(glibc-2|musl-1)\.(\d{1,2})", text)
    if found is None:
        raise InvalidJob("libc", text, "is not a C library", hint=f"{LIBC}, or musl-1.2 for Alpine")
    return found[1], int(found[2])


def _tags(libc: str, machine: str) -> list[str]:
    """pip takes a wheel's tag literally, so every compatible version is named, the newest first."""
    family, newest = _libc(libc)
    if family == "musl-1":
        return [f"musllinux_1_{minor}_{machine}" for minor in range(newest, 0, -1)]
    tags = []
    for minor in range(newest, 4, -1):
        tags.append(f"manylinux_2_{minor}_{machine}")
        if minor in _OLDER_NAMES:
            tags.append(f"{_OLDER_NAMES[minor]}_{machine}")
    return tags


def _uv_name(wanted: PackageSet, machine: str) -> str:
    family, newest = _libc(wanted.libc)
    if family == "musl-1":
        return f"{machine}-unknown-linux-musl"
    minor = next((known for known in _UV_GLIBC if known <= newest), _UV_GLIBC[-1])
    return f"{machine}-manylinux_2_{minor}"


def _find_uv() -> str:
    beside = Path(sys.executable).with_name("uv")  # in our environment, which need not be the active one
    return shutil.which("uv") or (str(beside) if beside.exists() else "")


def _is_uv(tool: Sequence[str]) -> bool:
    return len(tool) == 2
