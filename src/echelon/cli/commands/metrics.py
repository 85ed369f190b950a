"""`echelon metrics`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from echelon.cli.options import complete_runs, find_run, target_options_with
from echelon.errors import InvalidJob
from echelon.model.tracking import TRACKERS

if TYPE_CHECKING:
    from echelon.handle import Run
    from echelon.metrics.series import Key
    from echelon.model.output.metric import Metric

_MOST_CHARTS = 12


@click.command("metrics", short_help="Show the metrics of runs: loss, accuracy, ...")
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
@click.option("--metric", "wanted", multiple=True, metavar="NAME", help="only this metric; several times")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="only what this rank printed")
@click.option("--plot", is_flag=True, help="draw curves; those of several runs in one chart")
@click.option("-f", "--follow", is_flag=True, help="a line for each value as it comes, until the run ends")
@click.option(
    "--metric-pattern",
    "patterns",
    multiple=True,
    metavar="REGEX",
    help="find metrics by this instead of the pattern the run was started with; named groups are metrics",
)
@click.option(
    "--track",
    "tracker",
    type=click.Choice(TRACKERS),
    help="send what a tracker does not have of them yet, instead of showing it",
)
@target_options_with("csv")
def metrics(
    names: tuple[str, ...],
    wanted: tuple[str, ...],
    rank: int | None,
    plot: bool,
    follow: bool,
    patterns: tuple[str, ...],
    tracker: str | None,
    **target: str | None,
) -> int:
    """Show what runs have measured, without RUN the newest of this folder: NAME=VALUE and the other usual
    formats in what ranks print, and TensorBoard's files among the results on this machine.

    The table has one line for a metric, with figures of the lowest rank that has it; csv, json and yaml have
    every value. Of a notebook's pipeline, PART is the step that has measured it, and --plot draws one curve
    for each; of a sweep, the trial, and --plot draws the best value so far, too.

    \b
    Examples:
      echelon metrics RUN
      echelon metrics RUN -o csv > metrics.csv
      echelon metrics RUN1 RUN2 --plot --metric loss
      echelon metrics RUN -f --rank 0
      echelon metrics RUN --track mlflow
      echelon metrics RUN --metric-pattern 'loss is (?P<loss>\\S+) at (?P<step>\\d+)'
    """
    format_ = target["format"] or "text"
    if follow and (plot or len(names) > 1):
        raise click.UsageError("-f follows one run, and draws nothing.")
    if plot and format_ != "text":
        raise click.UsageError("--plot draws text.")
    if tracker is not None and (follow or plot or wanted or patterns or rank is not None):
        raise click.UsageError("--track sends all metrics that there are, and takes no other option with it.")
    runs = [find_run(name, target) for name in names or (None,)]
    if tracker is not None:
        from echelon.cli.printing import render

        for run in runs:
            run.track(tracker, tell=render.notice)
        return 0
    chosen = _Selection(wanted, rank, patterns)
    if follow or format_ != "text":
        _print_all(runs, chosen, format_, follow=follow)
    elif plot:
        _plot(runs, chosen)
    else:
        _table(runs, chosen)
    return 0


class _Selection:
    """The metrics that the user wants of a run."""

    def __init__(self, names: Sequence[str], rank: int | None, patterns: Sequence[str]) -> None:
        self.names, self.rank = names, rank
        self._patterns = tuple(patterns) or None
        self.seen: set[str] = set()  # names of metrics, wanted or not

    def of(self, run: Run, *, follow: bool = False) -> Iterator[Metric]:
        from echelon.model.output.metric import Metric

        run.check_exists(self.rank)
        for each in run.observe(follow=follow, events=False, pattern=self._patterns):
            if isinstance(each, Metric) and (self.rank is None or each.rank == self.rank):
                self.seen.add(each.name)
                if not self.names or each.name in self.names:
                    yield each

    def check(self) -> None:
        """Raise for a metric that no run has."""
        for name in self.names:
            if self.seen and name not in self.seen:
                raise InvalidJob("metric", name, "was not measured", hint=f"there are: {_some(self.seen)}")


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:20]) + (", ..." if len(ordered) > 20 else "")


def _print_all(runs: Sequence[Run], chosen: _Selection, format_: str, *, follow: bool) -> None:
    from echelon.cli.printing.metric_rows import printer

    print_one = printer(format_, sys.stdout, parts=any(run.has_steps for run in runs))
    for run in runs:
        for metric in chosen.of(run, follow=follow):
            print_one(run.name, metric)
            if follow:
                sys.stdout.flush()
    sys.stdout.flush()


def _table(runs: Sequence[Run], chosen: _Selection) -> None:
    from echelon.cli.printing import render
    from echelon.cli.printing.metric_rows import number
    from echelon.cli.printing.words import ranges
    from echelon.metrics.series import first_ranks, summarise

    figures = {}
    for run in runs:
        figures.update(summarise(run.name, chosen.of(run)))
    chosen.check()
    if not figures:
        _say_none(runs)
        return
    rows = []
    for key, ranks in first_ranks(figures).items():
        found = figures[key]
        last = found.last
        rows.append(
            (
                key.run,
                key.part or "-",
                key.name,
                ranges(ranks) if ranks else key.source or "-",
                str(found.count),
                number(last.value),
                number(found.least),
                number(found.greatest),
                "-" if last.step is None else str(last.step),
                "-" if last.epoch is None else number(last.epoch),
            )
        )
    heads = ["RUN", "PART", "METRIC", "RANKS", "VALUES", "LAST", "LEAST", "GREATEST", "STEP", "EPOCH"]
    hidden = {
        at
        for at, head in enumerate(heads)
        if (head == "RUN" and len(runs) == 1)
        or (head in ("PART", "STEP", "EPOCH") and all(row[at] == "-" for row in rows))
    }
    render.table(
        [head for at, head in enumerate(heads) if at not in hidden],
        [[cell for at, cell in enumerate(row) if at not in hidden] for row in rows],
    )


def _plot(runs: Sequence[Run], chosen: _Selection) -> None:
    import shutil

    from echelon.cli.printing import render
    from echelon.cli.printing.plot import RESTART, draw
    from echelon.cli.printing.say import say
    from echelon.cli.printing.words import one_line
    from echelon.metrics.series import Key, begins, curves, first_ranks

    points: dict[Key, list[Metric]] = {}
    for run in runs:
        for metric in chosen.of(run):
            key = Key(run.name, metric.name, metric.rank, metric.source, metric.part)
            points.setdefault(key, []).append(metric)
    chosen.check()
    if not points:
        _say_none(runs)
        return
    charts: dict[str, list[Key]] = {}
    for key in first_ranks(points):
        charts.setdefault(key.name, []).append(key)
    if not chosen.names:  # one value is not a curve, unless it was asked for
        charts = {name: keys for name, keys in charts.items() if any(len(points[key]) > 1 for key in keys)}
    width = shutil.get_terminal_size().columns
    starts: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for start in run.later_starts():
            starts.setdefault((run.name, start.part), []).append(start.at)
    best = _plot_best(runs, chosen, width)
    restarted = False
    for name, keys in list(charts.items())[:_MOST_CHARTS]:
        labels, marks = _legend(keys, best)
        axis, drawn = curves([(label, points[key]) for label, key in zip(labels, keys, strict=True)])
        alone = f" ({labels[0]})" if len(keys) == 1 else ""
        again = [
            x
            for key, curve in zip(keys, drawn, strict=True)
            for x in begins(points[key], curve, starts.get((key.run, key.part or ""), ()))
        ]
        restarted = restarted or bool(again)
        for line in draw(one_line(name + alone), axis, drawn, width, again, marks):
            say(line)
        say()
    if restarted:
        render.notice(f"{RESTART} on the axis: the run was restarted or resumed there")
    if not charts:
        render.notice("every metric has one value: `echelon metrics` without --plot shows them")
    if len(charts) > _MOST_CHARTS:
        render.notice(f"more with --metric NAME: {_some(list(charts)[_MOST_CHARTS:])}")
    several = {(key.run, key.part) for key, ranks in first_ranks(points).items() if len(ranks) > 1}
    if several:
        render.notice("curves are of the lowest rank; --rank N draws another's")


def _plot_best(runs: Sequence[Run], chosen: _Selection, width: int) -> dict[str, str]:
    """Draw how the best value of each sweep has become better; returns the best trials of the sweeps."""
    from echelon.cli.printing.plot import draw
    from echelon.cli.printing.say import say
    from echelon.cli.printing.words import one_line
    from echelon.metrics.series import Curve
    from echelon.model.trials import best_of, best_so_far

    found = {}
    for run in runs:
        status = run.status(progress=False) if run.has_steps else None
        if status is None or status.objective is None:
            continue
        values, best = best_so_far(status.steps, status.objective), best_of(status.steps, status.objective)
        if best is not None:
            found[run.name] = best.name
        if len(values) > 1 and (not chosen.names or status.objective.metric in chosen.names):
            title = f"best {status.objective.metric} so far ({run.name})"
            curve = Curve("", [float(number) for number in range(1, len(values) + 1)], values)
            for line in draw(one_line(title), "trials that have ended", [curve], width):
                say(line)
            say()
    return found


def _legend(keys: Sequence[Key], best: Mapping[str, str]) -> tuple[list[str], Sequence[str]]:
    """What each curve is called, and its mark. Where there are more curves than marks, and they are those of
    trials, the best one stands out.
    """
    from echelon.cli.printing.plot import MARKS, REST
    from echelon.cli.printing.words import one_line

    labels = [one_line(" ".join(filter(None, (key.run, key.part, key.source)))) for key in keys]
    if len(keys) <= len(MARKS) or not all(key.run in best for key in keys):
        return labels, MARKS
    are_best = [key.part == best[key.run] for key in keys]
    rest = f"{are_best.count(False)} other trials"
    return (
        [f"{label}, the best" if is_best else rest for label, is_best in zip(labels, are_best, strict=True)],
        [MARKS[0] if is_best else REST for is_best in are_best],
    )


def _say_none(runs: Sequence[Run]) -> None:
    from echelon.cli.printing import render

    for run in runs:
        render.notice(
            f"run {run.name} has printed no metrics so far; print NAME=VALUE, or give --metric-pattern"
        )
