"""Values as people read them at a Python prompt and in a notebook: a few rows of text, or of HTML."""

from __future__ import annotations

from collections.abc import Sequence

Rows = Sequence[tuple[str, str]]
_LONGEST = 500  # characters of one cell


def duration(seconds: float) -> str:
    """A time as people write it: 4.2 s, 3 m 10 s, 2 h 5 m."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} m"
    return f"{hours // 24} d {hours % 24} h"


def some_of(names: Sequence[str], most: int) -> str:
    """Names in a sentence: the first of them and how many more there are, unless that is one."""
    more = len(names) - most
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:most])} and {more} more"


def as_text(rows: Rows) -> str:
    """A table for a prompt; what is empty is left out."""
    rows = [(head, one_line(text)) for head, text in rows if text]
    width = max(len(head) for head, _ in rows)
    return "\n".join(f"{head:<{width}}  {text}" for head, text in rows)


def as_html(rows: Rows) -> str:
    """The same for a notebook; every text is escaped."""
    import html  # its table of entities takes milliseconds

    cell = 'style="text-align: left"'
    lines = [
        f"<tr><th {cell}>{html.escape(head)}</th><td {cell}>{html.escape(one_line(text))}</td></tr>"
        for head, text in rows
        if text
    ]
    return f"<table>{''.join(lines)}</table>"


def one_line(text: str) -> str:
    """Text that may hold anything, as one line that does nothing to a terminal."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:_LONGEST])
    return " ".join(shown.split())
