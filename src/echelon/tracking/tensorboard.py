"""TensorBoard's event files, written among a run's results: a folder for each rank.

A file has one record for each point, so that its length says how many it has. The metrics that echelon reads
in other event files are not written again, and it reads none of those that it has written itself."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from echelon.metrics.event_files import CRC, FORWARDED, HEAD, LARGEST, checksum
from echelon.model.output.metric import Metric
from echelon.model.status import Status
from echelon.tracking.sink import Away, Facts, Point, Rejected, Sent, key_of

FOLDER = "tracking"
_LARGEST_FLOAT = 3.4028234663852886e38
_LONGEST_TAG = 1000  # bytes
_VERSION = b"brain.Event:2"


class EventFolder:
    """A Sink."""

    def __init__(self, results: Path) -> None:
        self._folder = results / FOLDER
        self._created = 0.0

    @property
    def name(self) -> str:
        """The tracker, and where it is."""
        return f"TensorBoard's folder {self._folder}"

    def wants(self, metric: Metric) -> bool:
        """What was printed: the rest is in such files already."""
        return metric.source is None

    def open(self, facts: Facts) -> Sent:
        """Look what is there; what was cut off is removed."""
        self._created = facts.created
        if self._folder.is_symlink():
            raise Away(f"{self._folder} is a link")
        try:
            return {
                _key_of(path.parent.relative_to(self._folder)): _records(path)
                for path in sorted(self._folder.glob(f"**/*{FORWARDED}"))
            }
        except OSError as error:
            raise Away(f"{error.strerror}: {error.filename}") from error

    def place(self) -> str:
        """How to look at it."""
        return f"{self._folder}; `tensorboard --logdir {self._folder}` shows them"

    def send(self, points: Sequence[Point], sent: Sent) -> None:  # noqa: ARG002 - the files tell
        """Append them."""
        files: dict[Path, list[bytes]] = {}
        for point in points:
            files.setdefault(_folder_of(point.metric), []).append(framed(event(point)))
        try:
            for folder, records in files.items():
                path = self._folder / folder / f"events.out.tfevents.{int(self._created)}{FORWARDED}"
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    if not file.tell():
                        head = struct.pack("<Bd", 0x09, self._created) + _bytes(3, _VERSION)
                        records.insert(0, framed(head))
                    file.write(b"".join(records))
        except OSError as error:
            raise Away(f"{error.strerror}: {error.filename}") from error

    def end(self, status: Status) -> None:
        """Files have no end."""

    def close(self) -> None:
        """No file is open."""


def event(point: Point) -> bytes:
    """A point as an Event: wall_time, step, a summary of one simple value."""
    metric = point.metric
    tag = metric.name.encode("utf-8", "replace")
    if len(tag) > _LONGEST_TAG:
        raise Rejected("a metric has a name of more than 1,000 bytes")
    value = metric.value
    if abs(value) > _LARGEST_FLOAT:
        value = float("inf") if value > 0 else float("-inf")
    scalar = _bytes(1, tag) + struct.pack("<Bf", 0x15, value)
    step = b"\x10" + _varint(point.step & (1 << 64) - 1)
    return struct.pack("<Bd", 0x09, metric.at) + step + _bytes(5, _bytes(1, scalar))


def framed(data: bytes) -> bytes:
    """Data as a record."""
    length = struct.pack("<Q", len(data))
    return length + CRC.pack(checksum(length)) + data + CRC.pack(checksum(data))


def _folder_of(metric: Metric) -> Path:
    """Where the points of a metric are, so that `_key_of` finds their key."""
    return Path(metric.part or "", f"rank-{metric.rank or 0}")


def _key_of(folder: Path) -> str:
    rank = folder.name.removeprefix("rank-")
    part = folder.parent.as_posix()
    found = int(rank) if rank.isdecimal() else None
    return key_of(Metric("", 0.0, 0.0, rank=found, part=None if part == "." else part))


def _records(path: Path) -> int:
    """How many points a file has; half of one at its end is cut off."""
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        count, end = 0, 0
        while (after := _after(file, end, size)) is not None:
            count, end = count + 1, after
        file.truncate(end)
    return max(0, count - 1)


def _after(file: BinaryIO, at: int, size: int) -> int | None:
    """Where a record ends; None if it is not whole."""
    file.seek(at)
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    length, length_sum = HEAD.unpack(head)
    end = at + HEAD.size + int(length) + CRC.size
    if length > LARGEST or end > size or checksum(head[:8]) != length_sum:
        return None
    return end


def _bytes(number: int, data: bytes) -> bytes:
    """A field of bytes."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
