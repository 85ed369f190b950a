"""One line of a rank's output, and the parser of an agent's output.

An agent's standard output is a stream of lines, each begun by the agent itself, so that no rank can forge
one::

    [3 o 17 1763173621.250] Train Epoch: 1      rank 3, stdout, the agent's 17th line, written at that time
    [3 e+ 18 1763173621.251] half a             stderr; the line goes on in the next piece of that stream
    [3 o~ 19 1763173621.252] 41%|####           a progress bar's state at that moment
    [- o 20 1763173621.253] Collecting numpy    not a rank: what the agent runs before them, such as pip
    [event 21 1763173621.254] {"kind": ...}     an event; it has the number of the next line

A line without such a prefix is a message of the agent itself. The writer is `agent/output/sink.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# No agent writes longer numbers: a line that has them is not one of an agent's.
_LINE = re.compile(
    rb"\[(?:(\d{1,9}|-) ([oe])([+~]?)|event) (\d{1,18}) (\d{1,10}\.\d{1,9})\] ?(.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of output.

    `rank` is None for a message of the agent itself; the next piece of that stream continues an `unfinished`
    one; a line with a negative `sequence` stands for lost lines.
    """

    text: str
    at: float
    worker: int
    rank: int | None = None
    sequence: int = 0
    stream: Literal["stdout", "stderr"] = "stdout"
    unfinished: bool = False
    progress: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """An event line, its JSON not parsed."""

    sequence: int
    at: float
    payload: bytes


def parse_line(raw: bytes, worker: int) -> LogLine | EventLine:
    """Parse one line (without its newline) of the output of worker `worker`'s agent."""
    match = _LINE.match(raw)
    if match is None:
        return LogLine(text=decode(raw), at=0.0, worker=worker)
    rank, stream, flag, sequence, at, rest = match.groups()
    if rank is None:
        return EventLine(sequence=int(sequence), at=float(at), payload=rest)
    return LogLine(
        text=decode(rest),
        at=float(at),
        worker=worker,
        rank=None if rank == b"-" else int(rank),
        sequence=int(sequence),
        stream="stdout" if stream == b"o" else "stderr",
        unfinished=flag == b"+",
        progress=flag == b"~",
    )


def decode(raw: bytes) -> str:
    """Text of any bytes; those that are not UTF-8 stay visible."""
    return raw.decode("utf-8", "backslashreplace")


Line = LogLine | EventLine
GAP = -1  # the sequence number of a line that stands for others


def is_gap(line: Line) -> bool:
    """Whether a line stands for others that are missing."""
    return line.sequence == GAP
