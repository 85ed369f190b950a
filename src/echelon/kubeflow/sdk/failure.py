"""Why a job failed, for a user who has only an exception to read: the rank, its error and the line of it.
Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from echelon.model.status import Status

_RANK = re.compile(r"^\[rank ?\d+\]:")  # before every line of a traceback that torch writes
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>.+))?$')
_BEGIN = "Traceback (most recent call last)"
_GENERATED = ".echelon"  # a function's own script: its lines are not those of the notebook
_LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<frozen ")


def why_failed(status: Status) -> str:
    """The reason, and the line that raised where the last lines of the rank show it."""
    reason = status.reason or status.state
    cause = status.root_cause
    line = None if cause is None else line_of(cause.tail)
    return f"{reason}, {line}" if line else reason


def line_of(tail: Sequence[str]) -> str | None:
    """The innermost line of the user's own in the last traceback of some lines of output."""
    lines = [_RANK.sub("", line) for line in tail]
    begins = [number for number, line in enumerate(lines) if _BEGIN in line]
    lines = lines[begins[-1] :] if begins else lines
    frames = [(found, number) for number, line in enumerate(lines) if (found := _FRAME.match(line))]
    if not frames:
        return None
    own = [each for each in frames if not _LIBRARIES.search(each[0]["file"])]
    found, number = (own or frames)[-1]
    path = PurePath(found["file"])
    where = "" if _GENERATED in path.parts else f"line {found['line']} of {path.name}, "
    text = lines[number + 1].strip() if number + 1 < len(lines) else ""
    return f"{where}in {found['name'] or path.name}: {text}".removesuffix(": ")
