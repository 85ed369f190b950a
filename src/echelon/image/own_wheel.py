"""A wheel of this echelon, made from the package as it is installed here: what the manager's image installs.

Any kind of installation will do, an editable one too, and no build tool is needed. The same sources give the
same bytes."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import echelon
from echelon.errors import Unavailable

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can hold
_LEFT_OUT = ("__pycache__",)


def write_wheel(folder: Path) -> Path:
    """Write the wheel into a folder; its dependencies are those that the installed package names."""
    try:
        needs = [each for each in requires("echelon") or () if "extra ==" not in each]
    except PackageNotFoundError:
        raise Unavailable("echelon is not installed as a package", hint="pip install it first") from None
    info = f"echelon-{echelon.__version__}.dist-info"
    about = f"Metadata-Version: 2.1\nName: echelon\nVersion: {echelon.__version__}\n"
    members = dict(_all_files(files("echelon"), "echelon"))
    members[f"{info}/METADATA"] = (about + "".join(f"Requires-Dist: {each}\n" for each in needs)).encode()
    tag = "Wheel-Version: 1.0\nGenerator: echelon\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members[f"{info}/WHEEL"] = tag.encode()
    listing = "".join(f"{path},{_hash(data)},{len(data)}\n" for path, data in members.items())
    members[f"{info}/RECORD"] = f"{listing}{info}/RECORD,,\n".encode()
    made = folder / f"echelon-{echelon.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in members.items():
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), data)
    return made


def _all_files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.name in _LEFT_OUT:
            continue
        if entry.is_dir():
            yield from _all_files(entry, f"{name}/{entry.name}")
        else:
            yield f"{name}/{entry.name}", entry.read_bytes()


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
