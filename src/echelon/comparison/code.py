"""The code that was shipped for two runs, file by file. Pure: archives in, differences out."""

from __future__ import annotations

import difflib
import hashlib
import io
import tarfile
from collections.abc import Mapping
from typing import Literal, NamedTuple

from echelon.values import frozen

_LARGEST = 1 << 20  # bytes of a file of which the lines are compared
_MOST = 20_000  # lines of two files together: difflib's time grows with their product
_PIECE = 1 << 20


class _File(NamedTuple):
    digest: bytes
    text: str | None  # None if it is large, or no text


@frozen
class FileChange:
    """A file that differs. `diff` is empty for one that is large, or no text."""

    path: str
    change: Literal["added", "removed", "changed"]
    added: int = 0  # lines
    removed: int = 0
    diff: str = ""


def compare_archives(before: bytes, after: bytes, names: tuple[str, str]) -> list[FileChange]:
    """The files that differ, by their paths; `names` stand above the lines of each."""
    old, new = _files(before), _files(after)
    paths = sorted({*old, *new})
    return [_change(path, old, new, names) for path in paths if _digest(old, path) != _digest(new, path)]


def _digest(files: Mapping[str, _File], path: str) -> bytes | None:
    return files[path].digest if path in files else None


def _files(archive: bytes) -> dict[str, _File]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
        for member in members:
            if member.isreg():
                found[member.name] = _read(members, member)
            elif not member.isdir():
                target = member.linkname
                found[member.name] = _File(b"-> " + target.encode(errors="surrogateescape"), f"-> {target}\n")
    return found


def _read(members: tarfile.TarFile, member: tarfile.TarInfo) -> _File:
    content, whole = members.extractfile(member), hashlib.sha256()
    assert content is not None
    kept = b""
    while piece := content.read(_PIECE):
        whole.update(piece)
        kept = piece if member.size <= _LARGEST else b""
    try:
        text = None if member.size > _LARGEST or b"\0" in kept else kept.decode()
    except UnicodeDecodeError:
        text = None
    return _File(whole.digest(), text)


def _change(
    path: str, old: Mapping[str, _File], new: Mapping[str, _File], names: tuple[str, str]
) -> FileChange:
    change: Literal["added", "removed", "changed"] = (
        "added" if path not in old else "removed" if path not in new else "changed"
    )
    texts = [files[path].text if path in files else "" for files in (old, new)]
    before, after = (None if text is None else text.splitlines() for text in texts)
    if before is None or after is None or len(before) + len(after) > _MOST:
        return FileChange(path=path, change=change)
    old_title, new_title = (f"{name}/{path}" for name in names)
    lines = list(difflib.unified_diff(before, after, old_title, new_title, lineterm=""))
    return FileChange(
        path=path,
        change=change,
        added=sum(line.startswith("+") for line in lines[2:]),
        removed=sum(line.startswith("-") for line in lines[2:]),
        diff="".join(f"{line}\n" for line in lines),
    )
