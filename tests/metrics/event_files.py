"""TensorBoard's event files as they are specified, written byte by byte: an oracle for their reader."""

from __future__ import annotations

import struct


def crc32c(data: bytes) -> int:
    """Bit by bit, as the polynomial says."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(tag: str, value: float, *, at: float = 1e9, step: int = 0) -> bytes:
    """One scalar."""
    one = field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)
    return (
        varint(1 << 3 | 1) + struct.pack("<d", at) + varint(2 << 3) + varint(step) + field(5, field(1, one))
    )
