"""What becomes of control characters on their way to a terminal."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.terminal import Terminal

from echelon.cli.following.lines import LinePrinter
from echelon.cli.printing.say import say, shown, split_at_cut, style, tamed, tamed_lines
from echelon.model.output.log import LogBlock, LogLine, each_line

TITLE = "\x1b]0;mine now\x07"
CLIPBOARD = "\x1b]52;c;cm0gLXJm\x1b\\"
CONTROLS = st.sampled_from(
    ["\x1b", "\x1b[", "\x1b]0;", "\x9b", "\x9d", "\x07", "\x1b\\", "\r", "\n", "m", "2J", "K"]
)
HOSTILE = st.lists(CONTROLS | st.text(max_size=3), max_size=12).map("".join)
HARMLESS = re.compile("\x1b\\[[0-9;:]*m|\x1b\\[[0-2]?K")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@given(HOSTILE)
def test_no_control_character_of_others_passes(text: str) -> None:
    assert not CONTROL.search(shown(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("two\nlines\tand", "two\nlines\tand"),
        (TITLE, "\\x1b]0;mine now\\x07"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("back\rover", "back\\rover"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("na\u00efve \u2713", "na\u00efve \u2713"),
    ],
)
def test_what_is_shown_instead(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_our_own_styles_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert shown(style("done", fg="green") + TITLE) == "\x1b[32mdone\x1b[0m\\x1b]0;mine now\\x07"
    assert shown(style(f"a{CLIPBOARD}b", bold=True)) == "\x1b[1ma\\x1b]52;c;cm0gLXJm\\x1b\\b\x1b[0m"


def test_nothing_of_a_style_is_left_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    say(style("done", fg="green"))
    assert capsys.readouterr().out == "done\n"


@given(HOSTILE)
def test_a_ranks_line_keeps_colours_and_little_else(text: str) -> None:
    kept = HARMLESS.sub("", tamed(text))
    assert not re.search("[\x00-\x07\x0a-\x0c\x0e-\x1f\x7f-\x9f]", kept)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        ("\x1b[38:2::1:2:3mtrue colour", "\x1b[38:2::1:2:3mtrue colour"),
        ("\r 50%|###\x1b[K", "\r 50%|###\x1b[K"),
        ("ab\b\bcd\te", "ab\b\bcd\te"),
        (f"a{TITLE}b", "ab"),
        (f"a{CLIPBOARD}b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1bPq#0;2\x1b\\b", "ab"),
        ("a\x1b[2J\x1b[H\x1b[3A\x1b[?1049hb", "ab"),
        ("a\x9b2Jb\x9d0;t\x9cc", "abc"),
        ("a\x1bcb\x1b(0c\x07\x05", "abc"),
        ("a\x1b]0;never ended", "a"),
        ("a\x1b", "a"),
    ],
)
def test_what_stays_of_a_ranks_line(text: str, expected: str) -> None:
    assert tamed(text) == expected


def test_a_colour_that_was_cut_in_two_is_whole_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert split_at_cut("a\x1b[3") == ("a", "\x1b[3")
    printer = LinePrinter(prefix=False)
    printer.show(LogLine(text="a\x1b[3", at=1.0, worker=0, rank=0, unfinished=True))
    printer.show(LogLine(text="1mb", at=1.0, worker=0, rank=0))
    assert capsys.readouterr().out == "a\x1b[31mb\n"


def test_a_sequence_that_was_cut_in_two_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    printer = LinePrinter(prefix=False)
    printer.show(LogLine(text="a\x1b", at=1.0, worker=0, rank=0, unfinished=True))
    printer.show(LogLine(text="]0;title\x07b", at=1.0, worker=0, rank=0))
    assert capsys.readouterr().out == "ab\n"


@given(st.lists(HOSTILE.map(lambda text: text.replace("\n", "")), min_size=1))
def test_several_lines_are_tamed_one_by_one(lines: list[str]) -> None:
    assert tamed_lines("\n".join(lines)) == "\n".join(map(tamed, lines))


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize("prefix", [True, False])
def test_a_block_is_shown_as_its_lines_are(
    capsys: pytest.CaptureFixture[str], prefix: bool, timestamps: bool, raw: bool
) -> None:
    begun = LogLine(text="be\x1b[3", at=1.0, worker=0, rank=1, sequence=1, unfinished=True)
    first = LogLine(text="1mgun", at=1.0, worker=0, rank=1, sequence=2)
    block = LogBlock(first=first, rest=f"plain\n\n{TITLE}title\n\x1b]0;never ended\nna\u00efve \u2713\tend")
    make = partial(LinePrinter, prefix=prefix, timestamps=timestamps, raw=raw)
    printer = make()
    for line in (begun, *each_line([block])):
        printer.show(line)
    printer.finish()
    expected = capsys.readouterr().out
    printer = make()
    printer.show(begun)
    printer.show_block(block)
    printer.finish()
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("prefix", [True, False])
def test_raw_lines_are_as_they_were_written(capsys: pytest.CaptureFixture[str], prefix: bool) -> None:
    line = LogLine(text=f"a{TITLE}", at=1.0, worker=0, rank=0)
    LinePrinter(prefix=prefix).show(line)
    LinePrinter(prefix=prefix, raw=True).show(line)
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("a")
    assert second.endswith(f"a{TITLE}")


SCRIPT = r"print('\x1b[32mgreen\x1b[0m \x1b]0;title\x07end')"


@pytest.mark.parametrize("raw", [False, True])
def test_on_a_terminal(tmp_path: Path, raw: bool) -> None:
    """A run in the foreground, and its logs afterwards."""
    (tmp_path / "paint.py").write_text(SCRIPT)
    around = {"ECHELON_HOME": str(tmp_path / "state")}
    flags = ["--raw"] if raw else []
    for words in (["run", *flags, "-n", "2", "--name", "fm", "paint.py"], ["logs", *flags, "fm"]):
        screen = Terminal(*words, environment=around, cwd=tmp_path)
        assert screen.end() == 0
        assert "\x1b[32mgreen\x1b[0m " in screen.shown
        assert ("\x1b]0;title\x07end" in screen.shown) == raw
