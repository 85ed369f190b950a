"""Names of commands and flags that have changed: the old ones are accepted for a release, are in no help, and
say the new one in a line on standard error.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import click


class RenamedFlags(click.Command):
    """A command some of whose flags had another name: `former` leads from that to the one of now."""

    def __init__(self, *arguments: Any, former: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.former = former or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words with the names of now."""
        return super().parse_args(ctx, [self._renamed(word, ctx) for word in args])

    def _renamed(self, word: str, ctx: click.Context) -> str:
        flag, equals, value = word.partition("=")
        if flag not in self.former:
            return word
        if not ctx.resilient_parsing:  # the shell completes
            _say_now(flag, self.former[flag])
        return f"{self.former[flag]}{equals}{value}"


def renamed(command: click.Command, old: str, now: str) -> click.Command:
    """The command as a hidden one that says how it is called now."""
    former, call = copy(command), command.callback
    assert call is not None

    def call_by_old_name(*arguments: Any, **options: Any) -> Any:
        _say_now(f"echelon {old}", f"echelon {now}")
        return call(*arguments, **options)

    former.hidden, former.callback = True, call_by_old_name
    return former


def _say_now(old: str, now: str) -> None:
    from echelon.cli.printing.render import notice

    notice(f"{old} is now {now}; the old name works until the next release")
