"""The files for TensorBoard among a run's results, read again and again while they grow.

They are records of length, checksum, data, checksum, as TensorFlow writes them. A file may be cut off, as
long as it is being written, or hold anything. So a length is believed only with its checksum, a record that
is larger than any scalar needs is skipped unread, and what is torn ends the file; once more of it is there,
reading continues.

The data is protobuf, read as far as scalars take it: Event (1 wall_time, 2 step, 5 summary), Summary
(1 value), Value (1 tag, 2 simple_value, 8 tensor) and TensorProto (1 dtype, 2 shape, 4 content, and a list of
values for each type). What does not follow them gives nothing."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from echelon.model.event import is_moment
from echelon.model.output.metric import Metric

_LONGEST_TAG = 1000  # bytes
_MOST = 10_000  # scalars of one record
# The types that a scalar may have: how it is in the content, which field its values have, and how these are.
_TYPES: dict[int, tuple[str, int, str]] = {
    1: ("<f", 5, "<f"),
    2: ("<d", 6, "<d"),
    3: ("<i", 7, ""),
    9: ("<q", 10, ""),
    19: ("<e", 13, "half"),
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
LARGEST = 1024 * 1024  # bytes of a record that is read; images and graphs may have more
HEAD = struct.Struct("<QI")
CRC = struct.Struct("<I")
FORWARDED = ".echelon"
"""How the name of a file ends that has metrics which echelon has found itself (`tracking/tensorboard.py`)."""
_MARK = "tfevents"
_MOST_FILES = 1000
_MOST_ENTRIES = 100_000  # of folders that are searched: results may be a data set


class Scalar(NamedTuple):
    """One value of a tag."""

    tag: str
    value: float
    at: float
    step: int


class _Torn(Exception):
    pass


def scalars(data: bytes) -> list[Scalar]:
    """The scalars of an Event; none where it is something else, or no Event at all."""
    try:
        return _scalars(data)
    except (_Torn, struct.error, OverflowError):
        return []


def _scalars(data: bytes) -> list[Scalar]:
    at, step = 0.0, 0
    summaries: list[bytes] = []
    for number, kind, value in _fields(data):
        if (number, kind) == (1, _FIXED64):
            (at,) = struct.unpack("<d", _bytes(value))
        elif (number, kind) == (2, _VARINT):
            step = _signed(value)
        elif (number, kind) == (5, _BYTES):
            summaries.append(_bytes(value))
    if not is_moment(at):
        at = 0.0
    found: list[Scalar] = []
    for summary in summaries:
        for number, kind, value in _fields(summary):
            if (number, kind) == (1, _BYTES) and len(found) < _MOST:
                scalar = _value(_bytes(value))
                if scalar is not None:
                    found.append(Scalar(*scalar, at, step))
    return found


def _value(data: bytes) -> tuple[str, float] | None:
    tag, found = b"", None
    for number, kind, value in _fields(data):
        if (number, kind) == (1, _BYTES):
            tag = _bytes(value)
        elif (number, kind) == (2, _FIXED32):
            (found,) = struct.unpack("<f", _bytes(value))
        elif (number, kind) == (8, _BYTES):
            found = _tensor(_bytes(value))
    if found is None or not tag or len(tag) > _LONGEST_TAG:
        return None
    return tag.decode("utf-8", "backslashreplace"), found


def _tensor(data: bytes) -> float | None:
    """The value of a tensor without dimensions."""
    fields = [(number, value) for number, _, value in _fields(data)]
    given = dict(fields)
    type_ = given.get(1)
    if not isinstance(type_, int) or type_ not in _TYPES:
        return None
    if any(number == 2 and _has_dimensions(_bytes(value)) for number, value in fields):
        return None
    content_form, field, value_form = _TYPES[type_]
    content = given.get(4)
    if isinstance(content, bytes) and content:
        return float(struct.unpack(content_form, content)[0])
    return _listed(given.get(field), value_form)


def _listed(value: int | bytes | None, form: str) -> float | None:
    """A value of a list with one entry, packed or not."""
    if value is None:
        return None
    if form in ("<f", "<d"):
        return float(struct.unpack(form, _bytes(value))[0])
    number = value if isinstance(value, int) else _varint(value, 0)[0]
    if form == "half":
        return float(struct.unpack("<e", struct.pack("<H", number & 0xFFFF))[0])
    return float(_signed(number))


def _has_dimensions(shape: bytes) -> bool:
    return any(number == 2 for number, _, _ in _fields(shape))


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields of a message, as number, kind and value: an int for numbers of variable length."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(data, at)
        else:
            if kind == _BYTES:
                length, at = _varint(data, at)
            elif kind in (_FIXED32, _FIXED64):
                length = 4 if kind == _FIXED32 else 8
            else:
                raise _Torn
            if at + length > len(data):
                raise _Torn
            value = data[at : at + length]
            at += length
        yield number, kind, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _Torn


def _signed(value: int | bytes) -> int:
    """A number of 64 bits as it is meant."""
    if not isinstance(value, int):
        raise _Torn
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Torn
    return value


def _table() -> tuple[int, ...]:
    entries = []
    for entry in range(256):
        for _ in range(8):
            entry = (entry >> 1) ^ (0x82F63B78 if entry & 1 else 0)  # noqa: PLW2901
        entries.append(entry)
    return tuple(entries)


_TABLE = _table()


def checksum(data: bytes) -> int:
    """CRC-32C, turned and shifted as the format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class EventFile:
    """A file of records; each `read` continues where the last one ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._broken = False  # from a wrong checksum on, nothing says where a record begins

    def read(self) -> Iterator[Scalar]:
        """The scalars in the records that are whole by now."""
        if self._broken:
            return
        try:
            with self.path.open("rb") as file:
                yield from self._read(file)
        except OSError:  # removed meanwhile, or not ours to read
            return

    def _read(self, file: BinaryIO) -> Iterator[Scalar]:
        size = os.fstat(file.fileno()).st_size
        while True:
            file.seek(self._position)
            head = file.read(HEAD.size)
            if len(head) < HEAD.size:
                return
            length, length_sum = HEAD.unpack(head)
            if checksum(head[:8]) != length_sum:
                self._broken = True
                return
            end = self._position + HEAD.size + length + CRC.size
            if end > size:
                return
            self._position = end
            if length > LARGEST:
                continue
            data = file.read(length)
            tail = file.read(CRC.size)
            found = scalars(data)
            if found and len(tail) == CRC.size and checksum(data) == CRC.unpack(tail)[0]:
                yield from found


class EventFiles:
    """Every event file below a folder; each `read` gives what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, EventFile] = {}

    def read(self) -> Iterator[Metric]:
        """The scalars that came since the last time, file by file."""
        for path in find_event_files(self._folder):
            if path not in self._files and len(self._files) < _MOST_FILES:
                self._files[path] = EventFile(path)
        for path, file in self._files.items():
            source = path.parent.relative_to(self._folder).as_posix()
            for tag, value, at, step in file.read():
                yield Metric(tag, value, at, None, step, None, None, source)


def find_event_files(folder: Path) -> list[Path]:
    """Where they are; links are not followed, since they may lead anywhere."""
    found, entries = [], 0
    for parent, _, names in os.walk(folder):
        entries += len(names)
        for name in names:
            path = Path(parent, name) if _MARK in name and not name.endswith(FORWARDED) else None
            if path is not None and path.is_file() and not path.is_symlink():
                found.append(path)
        if entries > _MOST_ENTRIES:
            break
    return sorted(found)
