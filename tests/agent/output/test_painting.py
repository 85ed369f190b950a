"""What a program paints comes out as the lines that a terminal would show in the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as some
from tqdm import tqdm

from echelon.agent.output.painting import SETTLES, Painting, is_painted


class Recorder:
    """A file that remembers every write."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, text: str) -> None:
        self.pieces.append(text.encode())

    def flush(self) -> None:
        pass


def nested(
    *, leave: bool = False, depth: int = 2, text: bool = True, bar_format: str | None = None
) -> list[bytes]:
    """What nested bars of tqdm write."""
    file = Recorder()

    def loop(level: int) -> None:
        leaves = leave or level == 0
        every = {"mininterval": 0, "miniters": 1, "bar_format": bar_format}
        for number in tqdm(range(3), desc=f"level {level}", file=file, leave=leaves, **every):
            if level + 1 < depth:
                loop(level + 1)
            elif text:
                tqdm.write(f"number {number} of level {level}", file=file)

    loop(0)
    return file.pieces


def paint(pieces: Iterable[bytes]) -> list[str]:
    """The lines, when the pieces come at once."""
    painting = Painting()
    lines = [line for piece in pieces for line in painting.feed(piece, 0.0)]
    return [line.decode().rstrip() for line in [*lines, *painting.close()]]


def on_screen(pieces: Iterable[bytes]) -> list[str]:
    screen = pyte.Screen(120, 200)
    stream = pyte.ByteStream(screen)
    for piece in pieces:
        stream.feed(piece.replace(b"\n", b"\r\n"))
    return [line.rstrip() for line in screen.display if line.strip()]


@pytest.mark.parametrize("leave", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("text", [False, True])
def test_nested_bars_end_as_on_a_terminal(leave: bool, depth: int, text: bool) -> None:
    # Of one width: where a bar gets shorter, tqdm leaves what was behind it on a terminal.
    pieces = nested(leave=leave, depth=depth, text=text, bar_format="{desc} {n_fmt}/{total_fmt} |{bar:5}|")
    assert [line for line in paint(pieces) if line] == on_screen(pieces)
    letters = [bytes([byte]) for byte in b"".join(pieces)]
    assert [line for line in paint(letters) if line] == on_screen(pieces)


def test_bars_are_one_line_of_progress() -> None:
    painting = Painting()
    pieces = nested(text=False)
    middle = next(number for number, piece in enumerate(pieces) if b"level 1:  67%" in piece)
    for piece in pieces[: middle + 1]:
        assert painting.feed(piece, 0.0) == []
    shown = painting.progress().decode()
    assert shown.startswith("level 0:   0%| 0/3 [")
    assert "  level 1:  67%| 2/3 [" in shown


def test_a_bar_is_a_line_once_the_cursor_has_stayed_below_it() -> None:
    painting = Painting()
    assert painting.feed(b"\r 50%", 1.0) == []
    assert painting.feed(b"\r100%\n", 2.0) == []
    assert painting.waits_until() == 2.0 + SETTLES
    assert painting.settle(2.0 + SETTLES) == [b"100%"]
    assert painting.done
    assert painting.rest == b""


def test_lines_above_which_nothing_is_painted_do_not_wait() -> None:
    painting = Painting(b"be")
    assert painting.feed(b"gun\nnext\n\r 1%", 1.0) == [b"begun", b"next"]
    assert painting.progress() == b"1%"


def test_what_is_cleared_for_a_moment_is_not_over() -> None:
    painting = Painting()
    painting.feed(b"\r50%", 1.0)
    painting.feed(b"\r   \r", 1.1)
    assert not painting.done
    painting.feed(b"\r51%", 1.2)
    assert painting.progress() == b"51%"
    painting.feed(b"\r\x1b[2K", 1.3)
    assert painting.settle(1.3 + SETTLES) == []
    assert painting.done


def test_a_program_that_only_writes_lines_holds_few_of_them() -> None:
    painting = Painting()
    painting.feed(b"\r100%\n", 1.0)
    lines = painting.feed(b"".join(b"line %d\n" % number for number in range(1000)), 1.0)
    assert len(lines) > 950
    assert [*lines, *painting.close()] == [b"100%", *(b"line %d" % number for number in range(1000))]


def test_lines_do_not_wait_long_after_nested_bars() -> None:
    painting = Painting()
    painting.feed(b"\r50%\n\r10%\x1b[A", 1.0)
    assert painting.feed(b"\n\n", 1.1) == []
    later = 1.1 + SETTLES
    assert painting.feed(b"a line\nanother\n", later) == [b"50%", b"10%", b"a line", b"another"]
    assert painting.done


PIECES = some.sampled_from(
    [
        b"\r",
        b"\n",
        b"10%",
        b"text",
        b"\x1b[A",
        b"\x1b[2A",
        b"\x1b[K",
        b"\x1b[2K",
        b"\x1b[B",
        b"\x1b[J",
        b"\x1b[",
    ]
)


@given(some.lists(PIECES), some.lists(some.floats(0, 1)))
def test_no_painting_breaks_it(pieces: list[bytes], pauses: list[float]) -> None:
    painting, now = Painting(), 0.0
    for piece, pause in zip(pieces, itertools.chain(pauses, itertools.repeat(0.1)), strict=False):
        now += pause
        lines = painting.feed(piece, now)
        assert not any(b"\n" in line or b"\r" in line for line in lines)
        painting.progress()
        painting.waits_until()
    painting.close()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a line\n", False),
        (b"\x1b[31mred\x1b[0m", False),
        (b"\r", True),
        (b"\x1b[A", True),
        (b"\x1b[3F", True),
    ],
)
def test_painted_or_not(data: bytes, expected: bool) -> None:
    assert is_painted(data) == expected
