"""A question before something is deleted for good; without a terminal the user could not answer it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from echelon.cli.printing.say import say


def confirm_deletion(question: str, about: Sequence[str], *, if_none: str) -> None:
    """Say what it is about, and ask; raises Abort for a no. `if_none` is the reason to say --yes where there
    is no terminal.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(f"without a terminal, say --yes if {if_none}")
    for each in about:
        say(each)
    click.confirm(question, abort=True)
