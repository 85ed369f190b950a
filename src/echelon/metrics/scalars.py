"""The scalars in one record of TensorBoard's event files: protobuf, as far as it takes.

The messages are Event (1 wall_time, 2 step, 5 summary), Summary (1 value), Value (1 tag, 2 simple_value,
8 tensor) and TensorProto (1 dtype, 2 shape, 4 content, and a list of values for each type). What does not
follow them gives nothing."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from echelon.model.event import is_moment

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
