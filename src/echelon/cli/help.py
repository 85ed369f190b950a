"""Help of a command with many options, and former names.

`--help` shows the options that most users need, in groups; `--help-all` shows every one, and `--help WORD`
those whose name or text has the word. Names of commands and flags that have changed are accepted for a
release, are in no help, and say the new one in a line on standard error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

_REST = "Options"
_SHOWN = "echelon.help"  # in a context's `meta`: the word, or _EVERY
_EVERY = "--help-all"


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


class Group(NamedTuple):
    """A heading, and names of options: what `--help` shows there, and what only `--help-all` does."""

    title: str
    first: tuple[str, ...]
    more: tuple[str, ...] = ()


class SectionedOption(click.Option):
    """An option that stands under the heading `section` where no group of its command has it."""

    def __init__(self, names: Sequence[str], *, section: str | None, **attributes: Any) -> None:
        super().__init__(names, **attributes)
        self.section = section


class SectionedCommand(RenamedFlags):
    """A command whose help has headings. Without groups it shows every option. `more_examples` are those that
    only `--help-all` has.
    """

    def __init__(
        self,
        *arguments: Any,
        groups: Sequence[Group] = (),
        more_examples: str = "",
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.groups = groups
        self.more_examples = more_examples
        self._help_all = click.Option(
            [_EVERY],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            help="show every option",
            callback=_show_every,
        )

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """`--help`, which may have a word after it."""
        names = self.get_help_option_names(ctx)
        if self.groups and self._help_option is None and names:
            self._help_option = click.Option(
                names,
                is_flag=False,
                flag_value="",
                metavar="[WORD]",
                is_eager=True,
                expose_value=False,
                help="show this; or the options whose name or text has the word",
                callback=_show,
                shell_complete=self._complete_word,
            )
        return super().get_help_option(ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """With `--help-all`, if there is more than `--help` shows."""
        return [*super().get_params(ctx), *([self._help_all] if self.groups else [])]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all of it, or, for a word, the options that match."""
        word = ctx.meta.get(_SHOWN, "")
        if word in ("", _EVERY):
            super().format_help(ctx, formatter)
        elif any(self._matching(ctx, word)):
            self.format_usage(ctx, formatter)
            self.format_options(ctx, formatter)
        else:
            ctx.meta[_SHOWN] = ""
            super().format_help(ctx, formatter)
            formatter.write_paragraph()
            formatter.write_text(f"No option matches {word!r}.")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        word = ctx.meta.get(_SHOWN, "")
        if word in ("", _EVERY):
            shown = {option.name for option in self._options(ctx)}
        else:
            shown = {option.name for option in self._matching(ctx, word)}
        for title, options in self._sections(ctx, first_only=word == "").items():
            records = [
                record for each in options if each.name in shown and (record := each.get_help_record(ctx))
            ]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the rest of the examples after every option."""
        if ctx.meta.get(_SHOWN) == _EVERY and self.more_examples:
            formatter.write_paragraph()
            formatter.write_text(self.more_examples)

    def _options(self, ctx: click.Context) -> Iterator[click.Option]:
        """What has a flag, in the order of the declarations."""
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and not param.hidden:
                yield param

    def _matching(self, ctx: click.Context, word: str) -> Iterator[click.Option]:
        for option in self._options(ctx):
            if word.casefold() in f"{' '.join(option.opts)} {option.help}".casefold():
                yield option

    def _sections(self, ctx: click.Context, *, first_only: bool) -> dict[str, list[click.Option]]:
        """The options of each heading: those of the groups first, in their order."""
        rest = {option.name or "": option for option in self._options(ctx)}
        firsts = [[rest.pop(name) for name in group.first if name in rest] for group in self.groups]
        mores = [[rest.pop(name) for name in group.more if name in rest] for group in self.groups]
        if self.groups and first_only:
            mores = [[] for _ in self.groups]
            rest = {name: each for name, each in rest.items() if each in (self._help_option, self._help_all)}
        # Without groups, what has no heading is first.
        sections: dict[str, list[click.Option]] = {} if self.groups else {_REST: []}
        for group, first, more in zip(self.groups, firsts, mores, strict=True):
            sections[group.title] = [*first, *more]
        for option in rest.values():
            section = option.section if isinstance(option, SectionedOption) else None
            sections.setdefault(section or _REST, []).append(option)
        return sections

    def _complete_word(self, ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
        names = (max(option.opts, key=len).lstrip("-") for option in self._options(ctx))
        return [CompletionItem(name) for name in names if name.startswith(begun)]


def _show(ctx: click.Context, _param: click.Parameter, word: str | None) -> None:
    if word is not None and not ctx.resilient_parsing:
        ctx.meta[_SHOWN] = word
        click.echo(ctx.get_help())
        ctx.exit()


def _show_every(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    _show(ctx, param, _EVERY if asked else None)
