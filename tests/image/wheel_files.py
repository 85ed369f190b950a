"""Wheels made by hand, so that pip and uv have something to install without any network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    tag: str = "py3-none-any",
    requires: Sequence[str] = (),
    commands: Sequence[str] = (),
    files: dict[str, str] | None = None,
    python: str = ">=3.8",
) -> Path:
    """Write a wheel: a module of its name with VERSION in it, and what else is asked for."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {word}\n" for word in requires)
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {python}\n{needs}"
    members = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n\n\ndef main():\n    print({name!r}, VERSION)\n",
        **(files or {}),
        f"{info}/METADATA": about,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if commands:
        lines = "".join(f"{command} = {name}:main\n" for command in commands)
        members[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    record = "".join(f"{path},{_hash(text)},{len(text.encode())}\n" for path, text in members.items())
    members[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
    return path


def _hash(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
