"""A project as one content-addressed archive.

The same content gives the same bytes, and so the same digest, on every machine and at any time: no times, no
owners, no permissions but "executable", sorted members, a fixed header. (Only zlib is beyond control: another
version may compress differently. Then the digest differs, and the code is sent once more.)

The archive is an ordinary tar.gz, so that `tar tzf` shows what a run was given.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from echelon.bundle.survey import MARKER, Survey, TreeEntry, survey, unreadable
from echelon.bundle.withheld import Withheld
from echelon.errors import CannotShip
from echelon.values import frozen

_PIECE = 1 << 20
_BLOCK = 512
_LARGEST_FILE = 8**11 - 1  # the limit of a tar header's size field, 8 GiB
_DEEPEST = 100  # levels of folders, as in the agent
_BEST_RATIO = 1032  # zlib never compresses better: what is larger than this times the limit need not be tried
_NO_LONGER_A_FILE = {
    errno.ENOENT: "vanished",
    errno.ENOTDIR: "vanished",
    errno.ELOOP: "became a link",
    errno.EISDIR: "became a folder",
}
_WAYS_OUT = (
    "name what the run can do without in .gitignore or .echelonignore; put data on a volume or in an image; "
    "--code-volume pvc:NAME ships up to 1 GiB"
)
_NO_FILES: Mapping[str, bytes] = MappingProxyType({})


@frozen
class Bundle:
    """Packed code."""

    digest: str  # sha256 of the data, in hexadecimal
    data: bytes  # tar.gz
    files: int  # files and links in it
    size: int  # bytes in its files, before compression
    notes: tuple[str, ...] = ()  # what the user should know about it
    withheld: tuple[Withheld, ...] = ()  # what of the project is not in it


def pack(
    root: Path,
    *,
    include: Sequence[str] = (),
    extra: Mapping[str, bytes] = _NO_FILES,
    limit: int | None = None,
) -> Bundle:
    """Pack a project with `extra` generated files; an extra file replaces one of the same name.

    Raises CannotShip when something cannot be read, changes meanwhile, or takes over `limit` bytes packed.
    """
    return _pack(survey(root, include=include), extra, limit)


def pack_files(files: Mapping[str, bytes], *, limit: int | None = None) -> Bundle:
    """Pack generated files alone."""
    return _pack(Survey(root=Path(), found=(), notes=()), files, limit)


def _pack(surveyed: Survey, extra: Mapping[str, bytes], limit: int | None) -> Bundle:
    import hashlib  # imported only when packing

    members: dict[str, TreeEntry | bytes] = {each.path: each for each in surveyed.found} | dict(extra)
    _check_names(members, extra)
    sizes = {path: _size(member) for path, member in members.items() if not _is_folder(member)}
    if limit is not None and sum(sizes.values()) > limit * _BEST_RATIO:
        raise _too_large(surveyed.root, sizes, limit)
    pieces: list[bytes] = []
    written = 0
    for piece in compress(_archive(surveyed.root, members)):
        pieces.append(piece)
        written += len(piece)
        if limit is not None and written > limit:
            raise _too_large(surveyed.root, sizes, limit)
    data = b"".join(pieces)
    return Bundle(
        digest=hashlib.sha256(data).hexdigest(),
        data=data,
        files=len(sizes),
        size=sum(sizes.values()),
        notes=surveyed.notes,
        withheld=surveyed.withheld,
    )


def _check_names(members: Mapping[str, TreeEntry | bytes], extra: Mapping[str, bytes]) -> None:
    for path in extra:
        if {"", ".", "..", MARKER} & set(path.split("/")) or "\0" in path:
            raise ValueError(f"not a name for a generated file: {path!r}")
    for path, member in members.items():
        parts = path.split("/")
        if len(parts) > _DEEPEST:
            raise CannotShip(f"{path} lies more than {_DEEPEST} folders deep", hint="move it, or ignore it")
        if _size(member) > _LARGEST_FILE:
            raise CannotShip(f"{path} is {human_size(_size(member))} large", hint=_WAYS_OUT)
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            holder = members.get(above)
            if holder is not None and not _is_folder(holder):
                raise CannotShip(f"{above} is in the way of {path}, which echelon adds", hint="rename it")


def _is_folder(member: TreeEntry | bytes) -> bool:
    return isinstance(member, TreeEntry) and stat.S_ISDIR(member.status.st_mode)


def _size(member: TreeEntry | bytes) -> int:
    if isinstance(member, bytes):
        return len(member)
    return member.status.st_size if stat.S_ISREG(member.status.st_mode) else 0


def _archive(root: Path, members: Mapping[str, TreeEntry | bytes]) -> Iterator[bytes]:
    """The tar file, piece by piece."""
    for path in sorted(members, key=os.fsencode):
        member = members[path]
        yield _header(path, member)
        if isinstance(member, bytes):
            yield member
        elif stat.S_ISREG(member.status.st_mode):
            yield from read_content(root, member)
        yield b"\0" * (-_size(member) % _BLOCK)
    yield b"\0" * (2 * _BLOCK)


def _header(path: str, member: TreeEntry | bytes) -> bytes:
    import tarfile  # imported only when packing

    info = tarfile.TarInfo(portable(path))
    info.size = _size(member)
    if isinstance(member, bytes):
        info.mode = 0o644
    elif _is_folder(member):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    elif stat.S_ISLNK(member.status.st_mode):
        info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, portable(member.target)
    else:
        info.mode = 0o755 if member.status.st_mode & stat.S_IXUSR else 0o644
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def portable(path: str) -> str:
    """A name by its bytes, independent of this machine's encoding."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def read_content(root: Path, member: TreeEntry) -> Iterator[bytes]:
    """A file's bytes; raises if it is no longer the file that was found."""
    left = member.status.st_size
    try:
        descriptor = os.open(root / member.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while left >= 0 and (piece := stream.read(_PIECE)):
                left -= len(piece)
                yield piece
            after = os.fstat(descriptor)
    except OSError as error:
        if error.errno in _NO_LONGER_A_FILE:
            raise _changed(member.path, _NO_LONGER_A_FILE[error.errno]) from error
        raise unreadable(member.path, error) from error
    before = member.status
    if left or (after.st_ino, after.st_mtime_ns, after.st_mode) != (
        before.st_ino,
        before.st_mtime_ns,
        before.st_mode,
    ):
        raise _changed(member.path, "changed")


def compress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Gzip, with a header without time, name and system."""
    import zlib  # imported only when packing

    engine = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    checksum = length = 0
    yield b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
        length += len(piece)
        if compressed := engine.compress(piece):
            yield compressed
    yield engine.flush() + checksum.to_bytes(4, "little") + (length % 2**32).to_bytes(4, "little")


def _too_large(root: Path, sizes: Mapping[str, int], limit: int) -> CannotShip:
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:5]
    named = ", ".join(f"{path} {human_size(sizes[path])}" for path in largest)
    return CannotShip(
        f"{'the code' if root == Path() else root} holds {human_size(sum(sizes.values()))} in"
        f" {len(sizes)} files,"
        f" more than the {human_size(limit)} that can be shipped when compressed",
        hint=f"the largest: {named}; {_WAYS_OUT}",
    )


def _changed(path: str, what: str) -> CannotShip:
    hint = "try again when nothing writes to it, or name it in .gitignore or .echelonignore"
    return CannotShip(f"{path} {what} while it was being packed", hint=hint)


def human_size(size: float) -> str:
    """A size for messages."""
    unit = "bytes"
    for larger in ("kB", "MB", "GB"):
        if size < 999.95:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f}".removesuffix(".0") + f" {unit}"
