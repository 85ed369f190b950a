"""The user's packages, installed into a folder for another machine and Python than these, without traces of
the installer and of this machine, so that a layer is reproducible.

Wheels only: there is no compiler for the other machine here. uv is preferred to pip, because pip evaluates
conditions such as `python_version < "3.12"` or `platform_system == "Linux"` for the Python that pip itself
runs on; where only pip is found, a note says so.

What `tidy` removes or rewrites: bytecode contains times, commands name this machine's Python, and pip and uv
leave different marker files and write their lists in different orders.
"""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import importlib.util
import io
import os
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
_MARKS = ("INSTALLER", "REQUESTED", "uv_cache.json", "uv_build.json")
_PYTHON = re.compile(rb"#!(?:.*python[\d.]*|/bin/sh\n'''exec' .*python.*\n' ''')[^\n]*\n", re.IGNORECASE)
_OUR_FIRST_LINE = b"#!/usr/bin/env python3\n"
_OBJECT = re.compile(r"\s*([A-Za-z_][\w.]*)\s*:\s*([A-Za-z_][\w.]*)\s*(?:\[.*\])?\s*", re.ASCII)


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


def tidy(site: Path) -> None:
    """Bring a folder of installed packages into a form that depends on the packages alone."""
    (site / ".lock").unlink(missing_ok=True)
    for folder in [Path(each) for each, _, _ in os.walk(site) if each.endswith("__pycache__")]:
        shutil.rmtree(folder)
    for info in sorted(site.glob("*.dist-info")):
        for name in _MARKS:
            (info / name).unlink(missing_ok=True)
        origin = info / "direct_url.json"
        if origin.is_file() and b'"file:' in origin.read_bytes():
            origin.unlink()  # a path of this machine
        changed = _rewrite_commands(site, info)
        _rewrite_record(site, info, changed)


def _rewrite_commands(site: Path, info: Path) -> set[str]:
    """Let commands start the image's Python; those that an installer wrote are rewritten in one form."""
    changed = set()
    for name, target in _entry_points(info).items():
        path = site / "bin" / name
        if path.is_file() and (text := _command(target)):
            _replace(path, text)
            changed.add(f"bin/{name}")
    for path in _recorded_commands(site, info):
        relative = f"bin/{path.name}"
        content = path.read_bytes()
        if relative not in changed and (first := _PYTHON.match(content)):
            _replace(path, _OUR_FIRST_LINE + content[first.end() :])
            changed.add(relative)
        path.chmod(0o755)  # pip takes the mode from the wheel, uv sets it for commands
    return changed


def _entry_points(info: Path) -> dict[str, str]:
    path = info / "entry_points.txt"
    if not path.is_file():
        return {}
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (configparser.Error, UnicodeDecodeError):
        return {}
    sections = [parser[name] for name in ("console_scripts", "gui_scripts") if parser.has_section(name)]
    return {name: target for section in sections for name, target in section.items() if "/" not in name}


def _command(target: str) -> bytes:
    found = _OBJECT.fullmatch(target)
    if found is None:
        return b""
    module, function = found[1], found[2]
    first = function.partition(".")[0]
    lines = ("import sys", f"from {module} import {first}", "", f"sys.exit({function}())", "")
    return _OUR_FIRST_LINE + "\n".join(lines).encode()


def _recorded_commands(site: Path, info: Path) -> list[Path]:
    names = [path.removeprefix("bin/") for path, _, _ in _record(info) if path.startswith("bin/")]
    paths = [site / "bin" / name for name in names if "/" not in name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _record(info: Path) -> list[tuple[str, str, str]]:
    """The list of a package's files; pip's paths of commands assume packages two folders deeper."""
    path = info / "RECORD"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [[*row, "", ""][:3] for row in csv.reader(stream) if row]
    return [(re.sub(r"^(?:\.\./)+bin/", "bin/", name), digest, size) for name, digest, size in rows]


def _rewrite_record(site: Path, info: Path, changed: set[str]) -> None:
    rows = _record(info)
    if not rows:
        return
    kept = set()
    for name, digest, size in rows:
        path = site / name
        if not path.is_file():
            continue  # removed above
        kept.add((name, *_measured(path)) if name in changed else (name, digest, size))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(sorted(kept))
    _replace(info / "RECORD", text.getvalue().encode())


def _measured(path: Path) -> tuple[str, str]:
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"sha256={digest}", str(len(content))


def _replace(path: Path, content: bytes) -> None:
    """Replace a file, instead of writing through a hard link that others may share."""
    mode = path.stat().st_mode & 0o777
    path.unlink()
    path.write_bytes(content)
    path.chmod(mode)
