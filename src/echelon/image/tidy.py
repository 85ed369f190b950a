"""Installed packages without traces of the installer and of this machine, so that a layer is reproducible.

Bytecode contains times, commands name this machine's Python, and pip and uv leave different marker files and
write their lists in different orders.
"""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import os
import re
import shutil
from pathlib import Path

_MARKS = ("INSTALLER", "REQUESTED", "uv_cache.json", "uv_build.json")
_PYTHON = re.compile(rb"#!(?:.*python[\d.]*|/bin/sh\n'''exec' .*python.*\n' ''')[^\n]*\n", re.IGNORECASE)
_OUR_FIRST_LINE = b"#!/usr/bin/env python3\n"
_OBJECT = re.compile(r"\s*([A-Za-z_][\w.]*)\s*:\s*([A-Za-z_][\w.]*)\s*(?:\[.*\])?\s*", re.ASCII)


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
