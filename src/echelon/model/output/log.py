"""One line of a rank's output, and the parser of an agent's output.

An agent's standard output is a stream of lines, each begun by the agent itself, so that no rank can forge
one, and short enough that `kubectl logs` reads as the ranks wrote it::

    17 [3] Train Epoch: 1      rank 3, stdout, the agent's 17th line
    18e+ [3] half a            stderr; the line goes on in the next piece of that stream
    19~ [3] 41%|####           a progress bar's state at that moment
    20 [-] Collecting numpy    not a rank: what the agent runs before them, such as pip
    21 [event] {"kind": ...}   an event; it has the number of the next line

The time stands before it: `1763173621.250 17 [3] ...` where the agent writes to a file itself, an RFC 3339
time where the kubelet adds it to the log that it serves. A line without such a mark is a message of the agent
itself. The writer is `agent/output/sink.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, Literal, overload

from echelon.values import frozen

_KUBELETS = rb"\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d)"
# No agent writes longer numbers: a line that has them is not one of an agent's.
_LINE = re.compile(
    rb"(?:(\d{1,10}\.\d{1,9}) |(%b) )?(\d{1,18})(e?)([+~]?) \[(?:(\d{1,9}|-)|event)\] ?(.*)" % _KUBELETS,
    re.DOTALL,
)
_STAMPED = re.compile(rb"(%b) (.*)" % _KUBELETS, re.DOTALL)
# Whole lines that the agent read at once: one rank, stream and time, none unfinished, no progress bar.
_BLOCK = re.compile(
    rb"((?:\d{1,10}\.\d{1,9} )?)\d{1,18}(e? \[(?:\d{1,9}|-)\] )[^\n]*+\n(?:\1\d{1,18}\2[^\n]*+\n)++"
)
_NEXT_PREFIX = re.compile(rb"\n[^\[\n]*+\[[^\]\n]*+\] ")


@frozen
class LogLine:
    """One line of output.

    `rank` is None for a message of the agent itself; the next piece of that stream continues an `unfinished`
    one; a `sequence` of GAP means that it stands for lost lines, one of LOOSE that it has no number.
    """

    text: str
    at: float
    worker: int
    rank: int | None = None
    sequence: int = 0
    stream: Literal["stdout", "stderr"] = "stdout"
    unfinished: bool = False
    progress: bool = False
    part: ClassVar[str] = ""

    def __str__(self) -> str:
        who = f"agent {self.worker}" if self.rank is None else str(self.rank)
        return f"[{in_part(self.part, self.rank) or who}] {self.text}"


@frozen
class PartLine(LogLine):
    """One line of a run that is made of runs: `part` is the step that has written it, "" the executor itself.

    Lines of other runs do without that field: they may come by the million."""

    part: str = ""  # type: ignore[misc] # the others all have the same


def line_of(part: str, line: LogLine) -> PartLine:
    """A line that a step has written."""
    return PartLine(
        text=line.text,
        at=line.at,
        worker=line.worker,
        rank=line.rank,
        sequence=line.sequence,
        stream=line.stream,
        unfinished=line.unfinished,
        progress=line.progress,
        part=part,
    )


def in_part(part: str, rank: int | None) -> str:
    """Who has written a line of a step, for a person: most steps have one rank. "" of any other line."""
    return f"{part} {rank}" if part and rank else part


@frozen
class LogBlock:
    """Several lines that a rank wrote at once: the first, and the text of the others with newlines between.

    One value for hundreds of lines: a client that shows a rank's output handles them together.
    """

    first: LogLine
    rest: str


@frozen
class EventLine:
    """An event line, its JSON not parsed."""

    sequence: int
    at: float
    payload: bytes


def parse_line(raw: bytes, worker: int) -> LogLine | EventLine:
    """Parse one line (without its newline) of the output of worker `worker`'s agent."""
    match = _LINE.match(raw)
    if match is None:
        stamped = _STAMPED.match(raw)
        stamp, text = stamped.groups() if stamped is not None else (None, raw)
        return LogLine(text=decode(text), at=_moment(stamp), worker=worker, sequence=LOOSE)
    seconds, stamp, sequence, stream, flag, rank, rest = match.groups()
    at = float(seconds) if seconds is not None else _moment(stamp)
    if rank is None:
        return EventLine(sequence=int(sequence), at=at, payload=rest)
    return LogLine(
        text=decode(rest),
        at=at,
        worker=worker,
        rank=None if rank == b"-" else int(rank),
        sequence=int(sequence),
        stream="stderr" if stream else "stdout",
        unfinished=flag == b"+",
        progress=flag == b"~",
    )


def may_be_event(raw: bytes) -> bool:
    """Whether a line can be an event line: a quick look, for a reader that wants no others."""
    return b" [event] " in raw[:_LONGEST_MARK]


def _moment(stamp: bytes | None) -> float:
    if stamp is None:
        return 0.0
    try:
        return datetime.fromisoformat(stamp.decode()).timestamp()
    except (ValueError, OverflowError):  # not a time that a calendar has
        return 0.0


def parse_blocks(raw: bytes, worker: int) -> Iterator[LogLine | EventLine | LogBlock]:
    """Parse whole lines, each with its newline; those that were written at once come as one block."""
    start = 0
    while start < len(raw):
        end = raw.index(b"\n", start)
        block = _BLOCK.match(raw, start)
        line = parse_line(raw[start:end], worker)
        if block is None or not isinstance(line, LogLine):
            yield line
            start = end + 1
        else:
            rest = _NEXT_PREFIX.sub(b"\n", raw[end : block.end() - 1])
            yield LogBlock(first=line, rest=decode(rest[1:]))
            start = block.end()


def decode(raw: bytes) -> str:
    """Text of any bytes; those that are not UTF-8 stay visible."""
    return raw.decode("utf-8", "backslashreplace")


def each_line(pieces: Iterable[LogLine | LogBlock]) -> Iterator[LogLine]:
    """Every line by itself. An agent numbers what it writes at once without a gap."""
    for piece in pieces:
        if isinstance(piece, LogLine):
            yield piece
            continue
        first = piece.first
        yield first
        for number, text in enumerate(piece.rest.split("\n"), first.sequence + 1):
            yield replace(first, text=text, sequence=number)


@overload
def whole_lines(pieces: Iterable[LogLine]) -> Iterator[LogLine]: ...
@overload
def whole_lines(pieces: Iterable[LogLine | LogBlock]) -> Iterator[LogLine | LogBlock]: ...
def whole_lines(pieces: Iterable[LogLine | LogBlock]) -> Iterator[LogLine | LogBlock]:
    """Put lines together that came in pieces. What is whole, as lines of a block are, stays as it is."""
    begun: dict[tuple[int, int | None, str], list[LogLine]] = {}
    for piece in pieces:
        line = piece if isinstance(piece, LogLine) else piece.first
        key = (line.worker, line.rank, line.stream)
        if line.unfinished:
            begun.setdefault(key, []).append(line)
        elif key in begun:
            text = "".join(each.text for each in [*begun.pop(key), line])
            whole = replace(line, text=text)
            yield whole if isinstance(piece, LogLine) else replace(piece, first=whole)
        else:
            yield piece
    for lines in begun.values():
        yield replace(lines[-1], text="".join(each.text for each in lines), unfinished=False)


Line = LogLine | EventLine
GAP = -1  # the sequence number of a line that stands for others
LOOSE = -2  # of a line that its agent did not number: a message of the agent or of its interpreter
_LONGEST_MARK = 72  # bytes: time, number, flags and ` [event] `


def is_gap(line: Line) -> bool:
    """Whether a line stands for others that are missing."""
    return line.sequence == GAP
