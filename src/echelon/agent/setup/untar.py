"""Extraction of an archive; nothing in it can reach outside the target folder.

Only what the client packs is accepted: files, folders and symbolic links, with plain relative names, each
once. The archive is not read by `tarfile`, whose safe extraction came with Python 3.12 and whose import costs
more than all of this. Links are made last, when every file is written, so that nothing is ever written
through one; their targets are as free as those of a link that a script makes.
"""

from __future__ import annotations

import os
import zlib

MARKER = ".echelon-bundle"  # in the unpacked folder, with the bundle's digest; the client never ships it
MOST_ENTRIES = 1000 * 1000
DEEPEST = 100  # levels of folders; it must be possible to delete them again

_BLOCK = 512
_PIECE = 1 << 16
_LONGEST_RECORD = 1 << 16  # of an extended header: two names of 4,096 bytes fit easily
_FILE, _LINK, _FOLDER, _EXTENDED = b"0", b"2", b"5", b"x"
_REFUSED = {b"1": "a hard link", b"3": "a device", b"4": "a device", b"6": "a pipe"}


class BadBundle(ValueError):
    """An archive that is damaged or malicious; nothing of it is left behind."""


class Stream:
    """The archive's bytes, decompressed on demand, and never more than `limit` of them."""

    def __init__(self, data: bytes, limit: int) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._engine = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._ready = bytearray()
        self._limit = limit
        self._left = limit

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        while len(self._ready) < size:
            piece = self._next()
            if not piece:
                raise BadBundle("the archive is cut off")
            self._ready += piece
        result = bytes(self._ready[:size])
        del self._ready[:size]
        return result

    def check_room(self, size: int) -> None:
        """Refuse what would exceed the limit before any of it is written."""
        if size > self._left + len(self._ready):
            raise BadBundle("the archive grows beyond the limit of %d bytes" % self._limit)

    def finish(self) -> None:
        """Check that only padding follows."""
        rest = bytes(self._ready)
        while not rest.strip(b"\0"):
            rest = self._next()
            if not rest:
                return
        raise BadBundle("the archive has more behind its end")

    def _next(self) -> bytes:
        while not self._engine.eof:
            source = self._engine.unconsumed_tail
            if not source:
                source = bytes(self._data[self._at : self._at + _PIECE])
                self._at += len(source)
            piece = self._engine.decompress(source, _PIECE)
            if piece:
                self._left -= len(piece)
                self.check_room(0)
                return piece
            if not source and not self._engine.eof:
                raise BadBundle("the archive is cut off")
        if self._engine.unused_data or self._at < len(self._data):
            raise BadBundle("the archive has more behind its end")
        return b""


class Tree:
    """The target folder. It is new and private, so that it contains only what was made here."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._made: dict[bytes, bytes] = {b"": _FOLDER}  # name to kind
        self._links: dict[bytes, bytes] = {}  # name to target

    def fill(self, stream: Stream) -> None:
        """Make everything that the archive contains."""
        records: dict[bytes, bytes] = {}
        while True:
            header = stream.read(_BLOCK)
            if not header.strip(b"\0"):
                break
            kind, size = _check_header(header), _number(header[124:136])
            if kind == _EXTENDED:
                if size > _LONGEST_RECORD:
                    raise BadBundle("a header of the archive is too long")
                records = _read_records(stream.read(size + -size % _BLOCK)[:size])
                continue
            name = records.get(b"path") or _name_in(header)
            target = records.get(b"linkpath") or _text(header[157:257])
            records = {}
            if kind == _FILE:
                self._write(name, _number(header[100:108]), size, stream)
            elif size:
                raise BadBundle("%s has content, and is not a file" % _shown(name))
            elif kind == _FOLDER:
                self._claim(name[:-1] if name.endswith(b"/") else name, kind)
            elif kind == _LINK:
                self._link(name, target)
            else:
                raise BadBundle("%s is %s" % (_shown(name), _REFUSED.get(kind, "of no known kind")))
        stream.finish()
        for name, target in self._links.items():
            os.symlink(target, os.path.join(self._root, name))

    def _write(self, name: bytes, mode: int, size: int, stream: Stream) -> None:
        if mode & ~0o777:
            raise BadBundle("%s would get special rights" % _shown(name))
        stream.check_room(size)
        path = self._claim(name, _FILE)
        allowed = 0o755 if mode & 0o100 else 0o644
        left = size
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, allowed), "wb"
        ) as file:
            while left:
                left -= file.write(stream.read(min(left, _PIECE)))
        stream.read(-size % _BLOCK)

    def _link(self, name: bytes, target: bytes) -> None:
        if not target or b"\0" in target:
            raise BadBundle("%s is a link to nothing" % _shown(name))
        depth = name.count(b"/")
        for part in () if target.startswith(b"/") else target.split(b"/"):
            depth += -1 if part == b".." else part not in (b"", b".")
            if depth < 0:
                raise BadBundle("%s is a link that climbs out of the folder" % _shown(name))
        self._links[name] = target
        self._claim(name, _LINK)

    def _claim(self, name: bytes, kind: bytes) -> bytes:
        """Reserve a name, and make the folders above it; returns the path on disk."""
        parts = name.split(b"/")
        if name.startswith(b"/"):
            raise BadBundle("%s is an absolute path" % _shown(name))
        if b".." in parts:
            raise BadBundle("%s climbs out of the folder" % _shown(name))
        if (
            b"" in parts
            or b"." in parts
            or b"\0" in name
            or max(map(len, parts)) > 255
            or len(parts) > DEEPEST
        ):
            raise BadBundle("%s is not a proper name" % _shown(name))
        if name in self._made:
            raise BadBundle("%s is in the archive more than once" % _shown(name))
        if name == MARKER.encode():
            raise BadBundle("%s is a name of our own" % _shown(name))
        for end in range(1, len(parts)):
            above = b"/".join(parts[:end])
            if self._made.get(above, _FOLDER) != _FOLDER:
                raise BadBundle("%s lies below something that is not a folder" % _shown(name))
            self._make(above, _FOLDER)
        return self._make(name, kind)

    def _make(self, name: bytes, kind: bytes) -> bytes:
        path = os.path.join(self._root, name)
        if name not in self._made:
            if len(self._made) > MOST_ENTRIES:
                raise BadBundle("the archive has more than %d entries" % MOST_ENTRIES)
            self._made[name] = kind
            if kind == _FOLDER:
                os.mkdir(path)
        return path


def _check_header(header: bytes) -> bytes:
    """The kind of a member; raises BadBundle if the header is damaged."""
    total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
    if total != _number(header[148:156]) or header[257:263] != b"ustar\0":
        raise BadBundle("a header of the archive is damaged")
    return header[156:157]


def _number(field: bytes) -> int:
    text = field.strip(b" \0")
    if text.strip(b"01234567"):
        raise BadBundle("a header of the archive is damaged")
    return int(text or b"0", 8)


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def _name_in(header: bytes) -> bytes:
    prefix = _text(header[345:500])
    return prefix + b"/" + _text(header[:100]) if prefix else _text(header[:100])


def _read_records(text: bytes) -> dict[bytes, bytes]:
    """The records of an extended header: each is its own length, a space, name=value, and a line end."""
    records = {}
    while text:
        digits, _, _ = text.partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) < 8 else 0
        record = text[len(digits) + 1 : length - 1]
        name, equals, value = record.partition(b"=")
        if (
            not equals
            or text[length - 1 : length] != b"\n"
            or name not in (b"path", b"linkpath", b"hdrcharset")
        ):
            raise BadBundle("a header of the archive is damaged")
        records[name] = value
        text = text[length:]
    return records


def _shown(name: bytes) -> str:
    return repr(name[:200].decode("utf-8", "replace"))
