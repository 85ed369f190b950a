"""A progress bar of a run that a Python call shows."""

from __future__ import annotations

import io
import sys

import pytest

from echelon.model.output.log import LogLine
from echelon.observation.live import shown

BAR = [("10% slowly", True), ("90%", True), ("", True), ("done", False), ("end", False)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written_to(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stdout", stream)
    lines = [LogLine(text=text, at=0.0, worker=0, rank=0, progress=progress) for text, progress in BAR]
    with shown(lambda: iter(lines), prefix=lambda: False):
        pass
    return stream.getvalue()


def test_a_file_gets_the_line_that_the_bar_becomes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written_to(io.StringIO(), monkeypatch) == "done\nend\n"


def test_a_terminal_sees_it_painted_over(monkeypatch: pytest.MonkeyPatch) -> None:
    text = written_to(Terminal(), monkeypatch)
    assert text == "10% slowly\r90%       \r          \rdone      \nend\n"
