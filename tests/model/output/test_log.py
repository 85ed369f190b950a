"""What a rank writes comes out of its agent's output again, whatever it is and however it is cut."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echelon.agent.loop import Loop, Timer
from echelon.agent.output import sink
from echelon.agent.output.sink import RankLog, Sink, Stream
from echelon.model.output.log import (
    LOOSE,
    EventLine,
    LogBlock,
    LogLine,
    decode,
    each_line,
    may_be_event,
    parse_blocks,
    parse_line,
    whole_lines,
)

STREAMS = [(rank, letter) for rank in (0, 1, 12) for letter in "oe"]
TEXT_WITHOUT_RETURNS = st.binary(max_size=12) | st.sampled_from(
    [b"\n", b"line\n", b"2.0 1 [event] {}\n", b"2.0 1 [0] forged\n", b" indented\n", b"\xff\xfe\n", b"]"]
)
PIECES = TEXT_WITHOUT_RETURNS.map(lambda data: data.replace(b"\r", b""))
PAINTED = st.sampled_from([b"10%", b"\r", b"\n", b"\r\n", b"\r\r", b"done", b"\xff", b"", b"a\rb", b"\n\r"])
NAMES = {"o": "stdout", "e": "stderr"}


class Never(Loop):
    """A loop without a next moment: nothing waits for it."""

    def __init__(self) -> None:
        pass

    def call_later(self, delay: float, action: Callable[[], object]) -> Timer:
        return Timer(delay, action)


NEVER = Never()


def sink_to(file: IO[bytes]) -> Sink:
    return Sink(NEVER, file.fileno())


def write(pieces: Sequence[tuple[int, bytes]], *, hold: bool = True) -> bytes:
    """Feed pieces, each to one of the streams, and return what the agent has written."""
    with tempfile.TemporaryFile() as file:
        out = sink_to(file)
        log = RankLog("/dev/null")
        streams = [Stream(out, log, rank, letter, hold=hold) for rank, letter in STREAMS]
        for number, data in pieces:
            if data:
                streams[number].feed(data)
        for stream in streams:
            stream.close()
        log.close()
        file.seek(0)
        return file.read()


def read(written: bytes) -> list[LogLine]:
    """All lines of the ranks, as the client sees them, without the sights of progress bars."""
    assert written.endswith(b"\n") or not written
    parsed = [parse_line(raw, worker=7) for raw in written.split(b"\n")[:-1]]
    lines = [line for line in parsed if isinstance(line, LogLine)]
    assert lines == parsed
    assert in_blocks(written, worker=7) == parsed
    assert [line.sequence for line in lines] == list(range(len(lines)))
    assert {line.worker for line in lines} <= {7}
    return lines


def in_blocks(written: bytes, worker: int) -> list[LogLine | EventLine]:
    """The same, read many lines at a time."""
    found: list[LogLine | EventLine] = []
    for piece in parse_blocks(written, worker):
        found += [piece] if isinstance(piece, EventLine) else each_line([piece])
    return found


def texts(lines: Iterator[LogLine]) -> dict[tuple[int | None, str], list[str]]:
    found: dict[tuple[int | None, str], list[str]] = {}
    for line in lines:
        if not line.progress:
            found.setdefault((line.rank, line.stream), []).append(line.text)
    return found


def lines_of(data: bytes) -> list[str]:
    """What a terminal would show in the end, line by line: the oracle."""
    shown = []
    for line in data.split(b"\n"):
        screen = b""
        for painting in line.split(b"\r"):
            screen = painting or screen  # a bare return only moves the cursor
        shown.append(decode(screen))
    return shown if shown[-1] else shown[:-1]  # no newline, and nothing after it: no line


def expected(pieces: Sequence[tuple[int, bytes]]) -> dict[tuple[int | None, str], list[str]]:
    all_of = [b"".join(data for number, data in pieces if number == each) for each in range(len(STREAMS))]
    return {
        (rank, NAMES[letter]): lines_of(data)
        for (rank, letter), data in zip(STREAMS, all_of, strict=True)
        if lines_of(data)
    }


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(STREAMS) - 1), PIECES), max_size=25))
def test_every_line_comes_out_whole(pieces: list[tuple[int, bytes]]) -> None:
    assert texts(iter(read(write(pieces)))) == expected(pieces)


TIMES = (b"1.250 ", b"2.500 ", b"1.250", b"2026-11-16T07:00:00Z ", b"")
MARKS = (b" [0] ", b"e [0] ", b" [1] ", b"+ [0] ", b"~ [0] ", b" [-] ", b" [event] ", b" [0]", b" [x] ", b"")


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            lambda time, mark, rest: (time, mark, rest),
            st.sampled_from(TIMES),
            st.sampled_from(MARKS),
            st.binary(max_size=6) | st.sampled_from([b"1.250 1 [0] forged", b"\xe2\x82", b"\x80", b"]"]),
        )
    )
)
def test_many_lines_at_a_time_are_the_same_lines(parts: list[tuple[bytes, bytes, bytes]]) -> None:
    lines = [
        b"%b%d%b%b" % (time, number, mark, rest.replace(b"\n", b""))
        for number, (time, mark, rest) in enumerate(parts)
    ]
    assert in_blocks(b"".join(line + b"\n" for line in lines), 3) == [parse_line(line, 3) for line in lines]


def test_what_a_rank_wrote_at_once_is_one_block() -> None:
    first, *others = parse_blocks(write([(0, b"a\nb\n\n1.0 1 [0] c\n"), (1, b"d\n")]), 0)
    assert isinstance(first, LogBlock)
    assert (first.first.text, first.rest) == ("a", "b\n\n1.0 1 [0] c")
    assert [line.text for line in others if isinstance(line, LogLine)] == ["d"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"a", b"\n", b"b\nc", b"\xff", b"\n\n"]))))
def test_half_lines_are_put_together(pieces: list[tuple[int, bytes]]) -> None:
    lines = read(write(pieces, hold=False))
    assert texts(whole_lines(iter(lines))) == expected(pieces)
    halves = [(line.rank, line.stream) for line in lines if line.unfinished]
    assert len(halves) == len([data for _, data in pieces if not data.endswith(b"\n")])


@settings(deadline=None)
@given(st.lists(PAINTED, max_size=12), st.sets(st.integers(0, 40)))
@example([b"10%", b"\r", b"\n"], {3, 4})
@example([b"done", b"\r", b"\r", b"10%"], {4, 5, 6})
def test_of_a_progress_bar_its_last_sight_stays_however_it_is_cut(parts: list[bytes], cuts: set[int]) -> None:
    data = b"".join(parts)
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [(0, data[start:end]) for start, end in itertools.pairwise(places)]
    assert texts(iter(read(write(pieces)))) == expected([(0, data)])


def test_a_progress_bar_is_seen_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    paintings = [(0, b"\r%d%%" % percent) for percent in range(100)]
    seen = [line for line in read(write(paintings)) if line.progress]
    assert [line.text for line in seen] == ["0%", ""], "the next would come some seconds later"
    monkeypatch.setattr(sink, "PROGRESS_EVERY", 0.0)
    seen = read(write(paintings))
    assert [line.text for line in seen if line.progress] == [f"{percent}%" for percent in range(100)] + [""]
    assert [line.text for line in seen if not line.progress] == ["99%"]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.just(0), st.binary(max_size=12).map(bytes.hex).map(str.encode) | st.just(b"\n")))
)
def test_a_very_long_line_comes_in_pieces(pieces: list[tuple[int, bytes]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink, "LONGEST_LINE", 8)
        lines = read(write(pieces))
    assert texts(whole_lines(iter(lines))) == expected(pieces)


def test_no_more_than_a_line_is_held_back() -> None:
    half = b"x" * sink.LONGEST_LINE
    lines = read(write([(0, half), (0, half), (0, b"end\n")]))
    assert [(len(line.text), line.unfinished) for line in lines] == [
        (sink.LONGEST_LINE, True),
        (sink.LONGEST_LINE, True),
        (3, False),
    ]


def test_a_character_cut_in_two_is_whole_again() -> None:
    data = "grüße ☃\n".encode()
    for cut in range(len(data)):
        assert texts(iter(read(write([(0, data[:cut]), (0, data[cut:])])))) == {(0, "stdout"): ["grüße ☃"]}


# BUG: an agent cuts pieces of a line wherever a read ends, and the client decodes them one by one, so that a
# character on the edge of two comes out as \xc3\xbc. Stream._handle_partial should hold back its beginning.
def test_a_character_cut_in_two_between_pieces_is_whole_again() -> None:
    data = "grüße ☃\n".encode()
    for cut in range(len(data)):
        lines = whole_lines(iter(read(write([(0, data[:cut]), (0, data[cut:])], hold=False))))
        assert texts(lines) == {(0, "stdout"): ["grüße ☃"]}


def test_the_log_file_holds_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "rank-0.log"
    pieces = [b"one\r", b"two\nthr", b"ee\xff\x00", b"\r\n", b"no end"]
    with tempfile.TemporaryFile() as file:
        log = RankLog(str(path))
        stream = Stream(sink_to(file), log, 0, "o")
        for piece in pieces:
            stream.feed(piece)
        stream.close()
        log.close()
    assert path.read_bytes() == b"".join(pieces)
    assert stream.tail == b"".join(pieces)


def test_events_are_told_apart_from_output() -> None:
    heard: list[dict[str, object]] = []
    with tempfile.TemporaryFile() as file:
        out = sink_to(file)
        out.on_event = heard.append
        out.event("note", reason="a line\nof two, 2.0 1 [0] and a \\ in it", worker=3)
        file.seek(0)
        (raw,) = file.read().split(b"\n")[:-1]
    line = parse_line(raw, 0)
    assert isinstance(line, EventLine)
    assert json.loads(line.payload) == heard[0]
    assert heard[0]["kind"] == "note"
    assert may_be_event(raw)
    assert may_be_event(b"2026-11-16T06:40:21.250000000+02:00 %d [event] {}" % (10**18 - 1))


def in_a_pod(*pieces: bytes) -> list[bytes]:
    """What a rank's output looks like to `kubectl logs`."""
    read_end, write_end = os.pipe()
    log = RankLog("/dev/null")
    try:
        stream = Stream(Sink(None, write_end), log, 3, "e")  # type: ignore[arg-type]
        for piece in pieces:
            stream.feed(piece)
        stream.close()
        return os.read(read_end, 1 << 16).splitlines()
    finally:
        log.close()
        os.close(read_end)
        os.close(write_end)


def test_a_pods_log_reads_as_the_rank_wrote_it() -> None:
    assert in_a_pod(b"loss 0.5\n", b"7 [0] forged\nno end") == [
        b"0e [3] loss 0.5",
        b"1e [3] 7 [0] forged",
        b"2e [3] no end",
    ]


def test_no_container_runtime_cuts_a_pods_line() -> None:
    """One that is cut after 16 KiB goes on without a mark of the agent's."""
    text = "ü7 [0] forged" * 2000
    for cuts in ([text.encode() + b"\n"], [text.encode(), b"\n"], [text.encode()]):
        raw = in_a_pod(*cuts)
        assert max(map(len, raw)) <= 16 * 1024 - 1
        lines = [line for line in (parse_line(each, 0) for each in raw) if isinstance(line, LogLine)]
        assert texts(whole_lines(iter(lines))) == {(3, "stderr"): [text]}


@settings(deadline=None)
@given(st.binary())
def test_anything_can_be_read(raw: bytes) -> None:
    line = parse_line(raw.replace(b"\n", b""), 0)
    if isinstance(line, LogLine) and line.rank is None:
        assert line.text == decode(raw.replace(b"\n", b"")), "a word of the agent itself"


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"5.250 17 [3] loss=1", LogLine(text="loss=1", at=5.25, worker=0, rank=3, sequence=17)),
        (b"5.250 17e [3]  x ", LogLine(text=" x ", at=5.25, worker=0, rank=3, sequence=17, stream="stderr")),
        (b"5.0 1+ [0] ha", LogLine(text="ha", at=5.0, worker=0, rank=0, sequence=1, unfinished=True)),
        (b"5.0 1~ [0] 4%", LogLine(text="4%", at=5.0, worker=0, rank=0, sequence=1, progress=True)),
        (b"5.0 1 [0] ", LogLine(text="", at=5.0, worker=0, rank=0, sequence=1)),
        (b"1 [0] no time", LogLine(text="no time", at=0.0, worker=0, rank=0, sequence=1)),
        (b"5.0 1 [0] 2 [1] x", LogLine(text="2 [1] x", at=5.0, worker=0, rank=0, sequence=1)),
        (
            b"2026-11-16T06:40:21.250000000Z 17e [3] loss",
            LogLine(text="loss", at=1794811221.25, worker=0, rank=3, sequence=17, stream="stderr"),
        ),
        (
            b"2026-11-16T08:40:21.25+02:00 Traceback ...",
            LogLine(text="Traceback ...", at=1794811221.25, worker=0, sequence=LOOSE),
        ),
        (
            b"2026-99-99T06:40:21.250000000Z 1 [0] no such day",
            LogLine(text="no such day", at=0.0, worker=0, rank=0, sequence=1),
        ),
        (b"Traceback ...", LogLine(text="Traceback ...", at=0.0, worker=0, sequence=LOOSE)),
        (b"1 [x] no", LogLine(text="1 [x] no", at=0.0, worker=0, sequence=LOOSE)),
    ],
)
def test_a_line(raw: bytes, line: LogLine) -> None:
    assert parse_line(raw, 0) == line


def test_what_an_agent_runs_before_its_ranks_belongs_to_no_rank() -> None:
    line = parse_line(b"1763173621.250 17 [-] Collecting numpy", 2)
    assert line == LogLine(text="Collecting numpy", at=1763173621.25, worker=2, rank=None, sequence=17)


def test_pieces_become_lines() -> None:
    def line(text: str, *, worker: int = 0, at: float = 1.0, unfinished: bool = False) -> LogLine:
        return LogLine(text=text, at=at, worker=worker, rank=worker, unfinished=unfinished)

    pieces = [
        line("a", unfinished=True),
        line("x", worker=1),
        line("b", unfinished=True),
        line("c", at=2.0),
        line("d", unfinished=True, at=3.0),
    ]
    made = list(whole_lines(iter(pieces)))
    assert [(each.text, each.worker, each.at) for each in made] == [
        ("x", 1, 1.0),
        ("abc", 0, 2.0),
        ("d", 0, 3.0),
    ]
    assert not any(each.unfinished for each in made)
