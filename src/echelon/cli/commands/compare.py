"""`echelon compare`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import click

from echelon.cli.options import complete_runs, find_run, target_options
from echelon.errors import InvalidJob

if TYPE_CHECKING:
    from echelon.comparison.code import FileChange
    from echelon.comparison.comparing import CodeDifference, Comparison
    from echelon.comparison.measured import MetricDifference
    from echelon.handle import Run

_BESIDE = 4  # runs that have a column each; more have a line each
_DIFF_LINES = 40  # of all files together, unless all are asked for
_METRICS = 20


@click.command("compare", short_help="Compare runs: code, arguments, size, metrics.")
@click.argument("names", metavar="RUN RUN...", nargs=-1, shell_complete=complete_runs)
@click.option("--diff", "whole", is_flag=True, help="every line of the code that differs")
@click.option("--metric", "wanted", multiple=True, metavar="NAME", help="only this metric; several times")
@target_options
def compare(names: tuple[str, ...], whole: bool, wanted: tuple[str, ...], **target: str | None) -> int:
    """Show what differs between runs: how they ended, program, arguments, variables, image, packages, size,
    place and settings; the code that was shipped, line by line; from which step on their metrics differ, and
    their last values.

    All runs are compared with the first one. The name of a sweep alone stands for its trials. Runs may be on
    this machine and in clusters. Code that ran in place, without --snapshot, was not kept; variables that a
    run found in its environment are in no record. The value of a secret is never shown.

    \b
    Examples:
      echelon compare fm fm2
      echelon compare tune/3 tune/7 --metric val_loss
      echelon compare tune                        all trials of the sweep
      echelon compare fm k8s://team/fm --diff
      echelon compare fm fm2 -o json
    """
    from echelon.comparison.comparing import compare as compare_runs

    runs = _runs(names, target)
    found = compare_runs(runs, wanted)
    format_ = target["format"] or "text"
    if format_ != "text":
        from echelon.cli.printing.render import data

        data(found, format_)
    else:
        _show(found, whole=whole)
    return 0


def _runs(names: Sequence[str], target: dict[str, str | None]) -> list[Run]:
    if not names:
        raise click.UsageError("Name two runs or more, or a sweep. See `echelon compare --help`.")
    runs = [find_run(name, target) for name in names]
    if len(runs) == 1 and runs[0].has_steps:
        runs = list(runs[0].steps().values())
        if len(runs) < 2:
            raise InvalidJob("run", names[0], "has fewer than two runs so far", hint="wait for more of them")
    if len(runs) == 1:
        hint = f"name another: echelon compare {names[0]} RUN; `echelon ps -a` lists the runs"
        raise InvalidJob("run", names[0], "is one run alone", hint=hint)
    if len({run.uri for run in runs}) < len(runs):
        twice = next(run.name for at, run in enumerate(runs) if run.uri in {each.uri for each in runs[:at]})
        raise InvalidJob("run", twice, "is named twice", hint="name each run once")
    return runs


def _show(found: Comparison, *, whole: bool) -> None:
    from echelon.cli.printing import render
    from echelon.cli.printing.say import say

    _show_facts(found)
    for code in found.code:
        if code.verdict == "differs":
            say()
            say(_headline(code, found.runs[0].name))
            _show_files(code, whole=whole)
    if unknown := [code for code in found.code if code.verdict == "unknown"]:
        say()
        for code in unknown[:_BESIDE]:
            say(_headline(code, found.runs[0].name))
        if len(unknown) > _BESIDE:
            say(f"code of {len(unknown) - _BESIDE} more runs: not known; -o json has why")
    if all(code.verdict == "same" for code in found.code):
        say()
        say("the same code")
    _show_metrics(found)
    for text in found.unread:
        render.notice(f"metrics cannot be read of {text}")


def _show_facts(found: Comparison) -> None:
    """How the runs stand, and what differs: a column for each run or, of many, a line."""
    from echelon.cli.printing.render import table
    from echelon.cli.printing.words import state
    from echelon.model.display import duration

    rows: list[tuple[str, ...]] = [
        ("state", *(state(run.state) for run in found.runs)),
        ("took", *(duration(run.seconds) for run in found.runs)),
    ]
    if len({run.restarts for run in found.runs}) > 1:
        rows.append(("restarts", *(str(run.restarts) for run in found.runs)))
    rows += [
        (f"{each.about} {each.name}".strip(), *("-" if value is None else value for value in each.values))
        for each in found.differences
    ]
    heads = ("WHAT", *(run.name for run in found.runs))
    if len(found.runs) <= _BESIDE:
        table(heads, rows)
    else:
        table(("RUN", *(row[0].upper() for row in rows)), list(zip(*(heads, *rows), strict=True))[1:])


def _headline(code: CodeDifference, first: str) -> str:
    if code.verdict == "unknown":
        return f"code of {first} and {code.run}: {code.reason}"
    count = len(code.files)
    return f"code of {first} and {code.run}: {count} {'file differs' if count == 1 else 'files differ'}"


def _show_files(code: CodeDifference, *, whole: bool) -> None:
    from echelon.cli.printing.say import say, style

    for file in code.files:
        say(f"  {file.path}  {_extent(file)}")
    lines = list(chain.from_iterable(file.diff.splitlines() for file in code.files))
    for line in lines if whole else lines[:_DIFF_LINES]:
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        say(style(line, fg=colour) if colour else line)
    if not whole and len(lines) > _DIFF_LINES:
        say(f"  {len(lines) - _DIFF_LINES} more lines: --diff")


def _extent(file: FileChange) -> str:
    if not file.diff:
        return f"{file.change}, not shown" if file.change == "changed" else file.change
    lines = f"+{file.added} -{file.removed}"
    return lines if file.change == "changed" else f"{file.change}, {lines}"


def _show_metrics(found: Comparison) -> None:
    from echelon.cli.printing import render
    from echelon.cli.printing.metric_rows import number
    from echelon.cli.printing.say import say

    if not found.metrics:
        return
    shown = found.metrics[:_METRICS]
    rows = [
        (
            " ".join(filter(None, (each.part, each.source, each.name))),
            _where_they_part(each),
            *("-" if figure is None else number(figure.last) for figure in each.figures),
        )
        for each in shown
    ]
    say()
    heads = ("LAST VALUE OF", "DIFFERS", *(run.name for run in found.runs))
    if len(found.runs) <= _BESIDE:
        render.table(heads, rows)
    else:
        columns = [(row[0], *row[2:]) for row in rows]
        names = ("RUN", *(run.name for run in found.runs))
        turned = list(zip(*(names, *columns), strict=True))
        render.table(turned[0], turned[1:])
    if len(found.metrics) > len(shown):
        others = ", ".join(each.name for each in found.metrics[_METRICS : 2 * _METRICS])
        render.notice(f"more with --metric NAME: {others}")


def _where_they_part(each: MetricDifference) -> str:
    from echelon.cli.printing.metric_rows import number

    if sum(figure is not None for figure in each.figures) < 2:
        return "-"
    if not each.common:
        return f"no {each.axis} in common"
    if each.parts_at is None:
        return f"never, {each.common} values"
    values = tuple(_some(number(value) for value in each.values_there))
    return f"from {each.axis} {number(each.parts_at)} on: {', '.join(values)}"


def _some(values: Iterator[str]) -> Iterator[str]:
    for at, value in enumerate(values):
        if at == _BESIDE:
            yield "..."
            return
        yield value
