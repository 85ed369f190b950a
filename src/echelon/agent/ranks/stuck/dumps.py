"""What a rank has left that has ended by itself: the state of torch's flight recorder then. Reads files only.

Before NCCL's watchdog ends a process whose collective took too long, it writes a dump: a pickle. A rank that
an exception ends writes what it also answers (`launching/startup/`). A rank is the user's own program, and
its files are read as those of a stranger: of a pickle plain values alone, no class and no function."""

from __future__ import annotations

import io
import json
import os
import pickle
import zlib
from itertools import takewhile

from echelon.agent.ranks.stuck import recorder, stacks

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

DUMP = ".dump."  # and torch's number of the rank: as in launching/startup/sitecustomize.py, like the other
LAST = ".last"
FOLDER = "flight-recorder"  # in a worker's logs: what torch's own fr_trace reads
_LONGEST = 32 << 20  # bytes of a file


def files(start: str) -> list[str]:
    """All files of a rank whose names begin so, of each of its processes."""
    folder, name = os.path.split(start + ".")
    try:
        return sorted(os.path.join(folder, each) for each in os.listdir(folder) if each.startswith(name))
    except OSError:
        return []


def writer_of(path: str, start: str) -> tuple[int, bool]:
    """The process that such a file is of, and whether that is a rank by torch's numbers: the name has its
    starter, such as torchrun, before it.
    """
    numbers = list(takewhile(str.isdigit, path[len(start) + 1 :].split(".")))
    return (int(numbers[-1]) if numbers else 0), len(numbers) > 1


def read(start: str, rank: int) -> dict[int, dict[str, Any]]:
    """What is known of a rank whose files begin so, as `looking.look` tells it: of itself, or of the ranks
    that it has started.
    """
    left: dict[int, dict[str, Any]] = {}
    for path in files(start):  # `.last` comes after the dump of the same process, and counts
        is_one_itself = writer_of(path, start)[1]
        number = path.rpartition(DUMP)[2]
        if path.endswith(LAST):
            look = _read_last(_read(path))
            if look is not None:
                left[int(look["recorder"]["rank"]) if is_one_itself else rank] = look
        elif DUMP in path and number.isdigit() and (is_one_itself or int(number) == rank):
            plain = unpickle(_read(path))
            told = recorder.read_dump(int(number), plain)
            if told is not None:
                left[int(number)] = _look(told, recorder.frames_of_wait(plain))
    return left


def _read_last(answer: bytes) -> dict[str, Any] | None:
    told = recorder.read(answer)
    if told is None or not told["groups"] or not isinstance(told["rank"], int):
        return None
    frames = recorder.read_frames(answer)
    if stacks.is_collective(frames):
        recorder.give_up_newest(told)
    return _look(told, frames)


def keep(start: str, logs: str) -> None:
    """Keep the dumps beside the rank's log, for torch's own tools."""
    for path in files(start):
        number = path.rpartition(DUMP)[2]
        data = _read(path) if DUMP in path and number.isdigit() else b""
        if data:
            try:
                os.makedirs(os.path.join(logs, FOLDER), exist_ok=True)
                with open(os.path.join(logs, FOLDER, "rank_" + number), "wb") as file:
                    file.write(data)
            except OSError:  # no room, or no folder for logs: it was read, and that is enough
                pass


def _look(told: dict[str, Any], frames: list[tuple[str, str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {"recorder": told}
    place = stacks.describe_place(frames)
    if place is not None:
        found.update(place=place, collective=stacks.is_collective(frames))
        found["trace"] = zlib.crc32(json.dumps(frames).encode())
    return found


class _Plain(pickle.Unpickler):
    """Makes numbers, texts, lists, tuples and dictionaries; there is nothing that it could call."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError("a dump has no %s.%s" % (module, name))


def unpickle(data: bytes) -> Any:
    """The plain values of a pickle; None where it has anything else, or is none."""
    try:
        return _Plain(io.BytesIO(data)).load() if data else None
    except Exception:  # it may be damaged in any way; MemoryError is one, too
        return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_LONGEST + 1)
    except OSError:
        return b""
    return data if len(data) <= _LONGEST else b""
