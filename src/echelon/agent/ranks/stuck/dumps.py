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

from echelon.agent.ranks.stuck import recorder, stacks

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

DUMP = ".dump."  # and torch's number of the rank: as in launching/startup/sitecustomize.py, like the other
LAST = ".last"
FOLDER = "flight-recorder"  # in a worker's logs: what torch's own fr_trace reads
_LONGEST = 32 << 20  # bytes of a file


def read(start: str, rank: int) -> dict[str, Any] | None:
    """What is known of a rank whose files begin so, as `looking.look` tells it; None if nothing is left."""
    answer = _read(start + LAST)
    told = recorder.read(answer)
    if told is not None and told["groups"]:
        frames = recorder.read_frames(answer)
        if stacks.is_collective(frames):
            recorder.give_up_newest(told)
        return _look(told, frames)
    plain = unpickle(_read(start + DUMP + str(rank)))
    told = recorder.read_dump(rank, plain)
    return None if told is None else _look(told, recorder.frames_of_wait(plain))


def names(start: str) -> list[str]:
    """How the names of all dumps end that begin so; where a rank is a launcher, its children have some."""
    folder, name = os.path.split(start + DUMP)
    try:
        files = os.listdir(folder)
    except OSError:
        return []
    return [DUMP + file[len(name) :] for file in files if file.startswith(name)]


def keep(start: str, rank: int, logs: str) -> None:
    """Keep the dump beside the rank's log, for torch's own tools."""
    data = _read(start + DUMP + str(rank))
    if data:
        try:
            os.makedirs(os.path.join(logs, FOLDER), exist_ok=True)
            with open(os.path.join(logs, FOLDER, "rank_%d" % rank), "wb") as file:
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
