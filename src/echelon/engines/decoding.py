"""Decoders of our values, built one at a time and kept.

msgspec crashes the process when two threads build a decoder of the same type at the same moment, and nearly
every command reads a run's events in one thread and its logs in another. So no other file builds one."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_building = threading.Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type."""
    found = _decoders.get(kind)
    if found is None:
        with _building:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return found


def decode(data: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """The value that a JSON text is; raises msgspec's errors where it is none."""
    return decoder_of(kind).decode(data)


def convert(value: object, kind: Any, *, strict: bool = False) -> Any:
    """A value of plain types as one of ours; numbers may be written as text, as agents of any version do,
    unless it is to be `strict`.
    """
    with _building:
        return msgspec.convert(value, kind, strict=strict)
