"""The size of the caller's terminal as ranks are told it, with a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import termios
from collections.abc import Iterator

import pytest

from echelon.engines.terminal_size import size_for


@pytest.fixture
def terminal() -> Iterator[int]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 100))
    yield theirs
    os.close(ours)
    os.close(theirs)


def test_lines_of_several_ranks_begin_with_their_numbers(terminal: int) -> None:
    assert size_for(16, {}, terminal) == {"COLUMNS": "95", "LINES": "40", "TQDM_NCOLS": "94"}


def test_lines_of_one_rank_are_as_it_wrote_them(terminal: int) -> None:
    assert size_for(1, {}, terminal)["COLUMNS"] == "100"


def test_what_the_user_has_set_stays(terminal: int) -> None:
    assert size_for(2, {"COLUMNS": "70"}, terminal)["COLUMNS"] == "70"


def test_without_a_terminal_there_is_none() -> None:
    reader, writer = os.pipe()
    assert size_for(2, {}, writer) == {}
    os.close(reader)
    os.close(writer)
