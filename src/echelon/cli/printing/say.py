"""The one place where text for a person is written, and what becomes of control characters on its way there.

Messages and tables have texts that did not originate on this machine: reasons, names of nodes and users,
commands in others' records, what an API server said. A terminal obeys what is in such a text: it changes
the title, fills the clipboard, moves the cursor. So `say` leaves out foreign colours and shows every other
control character as it is written in Python; `style` gives the colours of our own. Lines of ranks keep what
progress bars and colours need (`tamed`). Data (JSON, YAML) has escapes of its own (`data_text`)."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import click

_OWN = f"\ufdd0{os.urandom(4).hex()}\ufdd1"  # stands for an escape character of ours; no text has it
# What is not text: control characters, those of the second set (a terminal takes U+009B for ESC [), and marks
# that turn the direction of writing around, so that a text reads as another one.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_COLOUR = re.compile("\x1b\\[[0-9;:]*m")
# In a rank's line: colours and "erase to the end of the line" stay; then, in this order, what goes: strings
# to the terminal (title, clipboard, ...) with their content, other sequences, any other control character but
# tab, backspace and carriage return.
_SEQUENCE = re.compile(
    "(?P<stays>\x1b\\[[0-9;:]*m|\x1b\\[[0-2]?K)"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|\x1b[ -/]*[0-~]?"
    "|[\x00-\x07\x0a-\x0c\x0e-\x1f\x7f-\x9f]"
)
_PLAIN = bytes(range(0x20, 0x7F)) + b"\n"  # what most lines consist of
_CUT = re.compile("\x1b(?:\\[[0-9;:]{0,32})?\\Z")
# Gives way while something is printed: what is painted at the bottom of the terminal (`bottom.py`).
give_way: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext


def say(text: str = "", *, err: bool = False) -> None:
    """Print text for a person; colours are left out where there is no terminal."""
    with give_way():
        click.echo(shown(text), err=err)


def shown(text: str) -> str:
    """Text as it may reach a terminal: what others wrote has no effect, `style` has."""
    if text.isprintable() and _OWN not in text:
        return text
    return _CONTROL.sub(_written, _COLOUR.sub("", text)).replace(_OWN, "\x1b")


def style(text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
    """Give text a colour, unless the user wants none; to be printed with `say`, or made with `shown`."""
    if not coloured() or not (fg or bold):
        return text
    return click.style(shown(text), fg=fg, bold=bold).replace("\x1b", _OWN)


def coloured() -> bool:
    """Whether the user wants colours: see no-color.org, and what a dumb terminal can do."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def tamed(text: str) -> str:
    """A rank's line without what would do more to a terminal than colour and overwrite that line."""
    if text.isprintable():
        return text
    return _SEQUENCE.sub(lambda found: found["stays"] or "", text)


def tamed_lines(text: str) -> str:
    """Several lines, each as `tamed` gives it; text that needs nothing done to it is looked at as a whole."""
    if text.isascii() and not text.encode().translate(None, _PLAIN):
        return text
    return "\n".join([tamed(line) for line in text.split("\n")])


def split_at_cut(text: str) -> tuple[str, str]:
    """A piece of a line, and the beginning of a sequence that the next piece may end."""
    found = _CUT.search(text)
    return (text[: found.start()], text[found.start() :]) if found else (text, "")


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def confirm_deletion(question: str, about: Sequence[str], *, if_none: str) -> None:
    """Say what it is about, and ask; raises Abort for a no. `if_none` is the reason to say --yes where there
    is no terminal.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(f"without a terminal, say --yes if {if_none}")
    for each in about:
        say(each)
    click.confirm(question, abort=True)
