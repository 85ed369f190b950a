"""TensorBoard's event files: records of length, checksum, data, checksum, as TensorFlow writes them.

A file may be cut off, as long as it is being written, or hold anything. So a length is believed only with
its checksum, a record that is larger than any scalar needs is skipped unread, and what is torn ends the file;
once more of it is there, reading goes on."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from echelon.metrics.scalars import Scalar, scalars

LARGEST = 1024 * 1024  # bytes of a record that is read; images and graphs may have more
HEAD = struct.Struct("<QI")
CRC = struct.Struct("<I")


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
    """A file of records; each `read` goes on where the last one ended."""

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
