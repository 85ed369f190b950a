"""The only file that prints. Plain and stable when piped; tables and colour on a terminal.

Data goes to standard output, words about it to standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from echelon.engines.base import Engine
from echelon.handle import Run
from echelon.model.event import RootCause
from echelon.model.job import Job
from echelon.model.log import LogLine
from echelon.model.plan import Plan
from echelon.model.resources import format_memory
from echelon.model.status import RunSummary, Status
from echelon.model.world import rank_count, worker_count
from echelon.planning import make_world

if TYPE_CHECKING:
    from echelon.engines.local.checkup import Finding
    from echelon.engines.local.usage import Usage

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")
_STATE_COLOURS = {
    "running": "green", "succeeded": "green", "failed": "red", "lost": "red", "timed-out": "red",
    "queued": "yellow", "restarting": "yellow", "stopping": "yellow",
}  # fmt: skip


class LinePrinter:
    """Prints log lines, each with its rank; of a single rank, as it wrote them."""

    def __init__(
        self, *, prefix: bool = True, timestamps: bool = False, as_json: bool = False, to_stderr: bool = False
    ) -> None:
        self._prefix = prefix
        self._timestamps = timestamps
        self._as_json = as_json
        self._to_stderr = to_stderr
        self._begun: dict[tuple[int | None, str], str] = {}
        self._colour = {
            name: stream.isatty() and not _no_colour()
            for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr))
        }
        self._open_line = False

    def show(self, line: LogLine) -> None:
        """Print one line, or a piece of one."""
        if self._as_json:
            import msgspec

            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
            return
        stream = sys.stderr if self._to_stderr or (line.stream == "stderr") else sys.stdout
        if not self._prefix and not self._timestamps:
            stream.write(line.text + ("" if line.unfinished else "\n"))
            stream.flush()
            self._open_line = line.unfinished
            return
        key = (line.rank, line.stream)
        text = self._begun.pop(key, "") + line.text
        if line.unfinished:
            self._begun[key] = text
            return
        stream.write(f"{self._head(line)}{text}\n")
        stream.flush()

    def finish(self) -> None:
        """Print what was begun and never ended."""
        for (rank, _stream), text in self._begun.items():
            sys.stdout.write(f"[{rank}] {text}\n")
        if self._open_line:
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _head(self, line: LogLine) -> str:
        stamp = (
            time.strftime("%H:%M:%S", time.localtime(line.at)) + f".{int(line.at * 1000) % 1000:03d} "
            if self._timestamps
            else ""
        )
        if not self._prefix:
            return stamp
        name = f"[{line.rank}]" if line.rank is not None else f"[agent {line.worker}]"
        if self._colour[line.stream] and line.rank is not None:
            name = click.style(name, fg=_COLOURS[line.rank % len(_COLOURS)])
        return f"{stamp}{name} "


def plain(text: str) -> None:
    """Print a line of data."""
    click.echo(text)


def notice(text: str) -> None:
    """Say something about what is going on."""
    click.echo(click.style("echelon: ", fg="bright_black") + text, err=True)


def data(value: object, format_: str) -> None:
    """Print a value as JSON or YAML."""
    import msgspec

    if format_ == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    else:
        import yaml

        click.echo(yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True), nl=False)


def headline(job: Job, run: Run) -> str:
    """What is about to run."""
    world = make_world(job)
    workers, ranks = worker_count(world), rank_count(world)
    size = f"{workers} worker{'s' * (workers != 1)}" + (f", {ranks} ranks" if ranks != workers else "")
    return f"run {click.style(run.name, bold=True)}: {size}, {job.framework}"


def submitted(run: Run, format_: str) -> None:
    """A run that was left to itself."""
    if format_ == "text":
        click.echo(run.name)
    else:
        data({"name": run.name, "uri": str(run)}, format_)


def preview(job: Job, plan: object, engine: Engine, format_: str) -> None:
    """What a submission would do."""
    if not isinstance(plan, Plan):
        notice(f"it would wait: {getattr(plan, 'reason', '')}")
        return
    if format_ == "text":
        click.echo(engine.preview(job, plan), nl=False)
    else:
        data({"job": job, "plan": plan}, format_)


def ending(status: Status) -> None:
    """How a run in the foreground ended."""
    took = duration((status.ended or time.time()) - status.created)
    if status.state == "succeeded":
        notice(f"{click.style('succeeded', fg='green')} in {took}; results in {near(status.results)}")
        return
    notice(f"{click.style(status.state, fg=_STATE_COLOURS.get(status.state))} after {took}: {status.reason}")
    if status.root_cause is not None:
        for text in _cause_lines(status.root_cause, with_tail=len(ranks_of(status)) > 1):
            click.echo(text, err=True)
    notice(f"all output is in {near(status.results)}/logs")


def outcome(status: Status, format_: str) -> None:
    """One line on how a run ended."""
    outcomes([status], format_)


def outcomes(found: Sequence[Status], format_: str) -> None:
    """A line for each run, on how it ended."""
    if format_ != "text":
        data(found[0] if len(found) == 1 else list(found), format_)
        return
    for status in found:
        click.echo(f"{status.name} {_state(status.state)}" + (f": {status.reason}" if status.reason else ""))


def fetched(where: Path, seconds: float, format_: str) -> None:
    """Where results were brought to."""
    if format_ == "text":
        click.echo(near(str(where)))
    else:
        data({"path": str(where), "seconds": round(seconds, 3)}, format_)


def runs(found: object, format_: str) -> None:
    """The table of runs."""
    assert isinstance(found, list)
    if format_ != "text":
        data(found, format_)
        return
    rows = [_run_row(row) for row in found]
    if rows:
        table(("NAME", "STATE", "WORKERS", "GPUS", "AGE", "TOOK", "COMMAND", ""), rows)
    else:
        notice("no runs" if sys.stdout.isatty() else "no runs; -a shows those that have ended")


def _run_row(row: RunSummary) -> tuple[str, ...]:
    now = time.time()
    return (
        row.name,
        _state(row.state),
        str(row.workers),
        str(row.gpus or "-"),
        duration(now - row.created),
        duration((row.ended or now) - row.created),
        row.command,
        row.reason or "",
    )


def status(found: Status, format_: str) -> None:
    """How a run stands."""
    if format_ != "text":
        data(found, format_)
        return
    now = time.time()
    click.echo(
        f"{click.style(found.name, bold=True)}  {_state(found.state)}"
        + (f"  {found.reason}" if found.reason else "")
    )
    facts = [
        ("framework", found.framework or "-"),
        ("elapsed", duration((found.ended or now) - (found.started or found.created))),
        ("restarts", f"{found.restarts} of {found.restarts_allowed}"),
        ("results", near(found.results)),
    ]
    if found.exit_code is not None:
        facts.append(("exit code", str(found.exit_code)))
    for name, value in facts:
        click.echo(f"  {name:<10} {value}")
    if found.workers:
        click.echo()
        rows = [
            (
                str(each.worker),
                each.role,
                _ranges(each.ranks),
                _state(each.state),
                each.node or "-",
                ",".join(each.gpus) or "-",
                str(each.pid or "-"),
                each.reason or "",
            )
            for each in found.workers
        ]
        table(("WORKER", "ROLE", "RANKS", "STATE", "NODE", "GPUS", "PID", ""), rows)
    if found.root_cause is not None:
        click.echo()
        for text in _cause_lines(found.root_cause, with_tail=True):
            click.echo(text)


def usage(found: Usage, format_: str) -> None:
    """The machine, its GPUs and who uses them."""
    if format_ != "text":
        data(found, format_)
        return
    memory = f"{format_memory(found.memory_used)} of {format_memory(found.memory)}"
    click.echo(f"{found.cpus} CPUs, load {found.load:.2f}; memory {memory}")
    click.echo()
    if found.gpus:
        rows = [
            (
                each.gpu,
                each.model,
                f"{format_memory(each.used)} of {format_memory(each.memory)}",
                "-" if each.utilization is None else f"{each.utilization} %",
                each.user or click.style("free", fg="green"),
            )
            for each in found.gpus
        ]
        table(("GPU", "MODEL", "MEMORY", "BUSY", "USED BY"), rows)
    else:
        click.echo("no GPUs")
    click.echo()
    if found.runs:
        run_rows = [
            (
                each.name,
                _state(each.state),
                str(each.processes),
                f"{each.cpus:.2f}",
                format_memory(each.memory),
                ",".join(each.gpus) or "-",
            )
            for each in found.runs
        ]
        table(("RUN", "STATE", "PROCESSES", "CPUS", "MEMORY", "GPUS"), run_rows)
    else:
        click.echo("no runs")


def findings(found: Iterable[Finding], format_: str) -> list[Finding]:
    """The lines of a check-up, each as soon as it is there; returns them."""
    if format_ != "text":
        everything = list(found)
        data(everything, format_)
        return everything
    colours = {"ok": "green", "degraded": "yellow", "missing": "red"}
    shown = []
    for each in found:
        level = click.style(each.level.ljust(8), fg=colours[each.level])
        click.echo(f"{level}  {each.what.ljust(16)}  {each.found}")
        if each.fix:
            click.echo(f"{'':28}{each.fix}")
        shown.append(each)
    return shown


def _cause_lines(cause: RootCause, *, with_tail: bool) -> list[str]:
    lines = []
    if cause.rank is not None:
        lines.append(f"  first to fail: rank {cause.rank} (worker {cause.worker})")
    if cause.error:
        lines.append(f"  error: {cause.error}")
    if with_tail and cause.tail:
        lines.append("  its last lines:")
        lines += [f"    {text}" for text in cause.tail[-12:]]
    followed = [end for end in cause.others if end.consequence]
    failed = [end for end in cause.others if not end.consequence]
    if followed:
        lines.append(f"  died of the consequence: {_named_ranks([end.rank for end in followed])}")
    if failed:
        lines.append(f"  failed too: {_named_ranks([end.rank for end in failed])}")
    return lines


def _named_ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {_ranges(sorted(ranks))}"


def ranks_of(found: Status) -> tuple[int, ...]:
    """Every rank of a run."""
    return tuple(rank for worker in found.workers for rank in worker.ranks)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns: drawn by rich on a terminal, plainly aligned elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for head in heads:
            drawn.add_column(
                head,
                overflow="fold" if head in ("", "COMMAND") else "ellipsis",
                no_wrap=head not in ("", "COMMAND"),
            )
        for row in rows:
            drawn.add_row(*(Text.from_ansi(cell) for cell in row))
        Console().print(drawn)
        return
    widths = [max(len(click.unstyle(row[column])) for row in [heads, *rows]) for column in range(len(heads))]
    for row in [heads, *rows]:
        cells = [click.unstyle(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def repeatedly(show: Callable[[], None], every: float | None) -> None:
    """Show something once, or again and again on a cleared screen until Ctrl-C."""
    if every is None:
        show()
        return
    while True:
        if sys.stdout.isatty():
            click.clear()
        show()
        time.sleep(every)


def duration(seconds: float) -> str:
    """A time as people say it: 4.2 s, 3 m 10 s, 2 h 5 m."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} m"
    return f"{hours // 24} d {hours % 24} h"


def near(path: str | None) -> str:
    """A path as it is seen from here."""
    if path is None:
        return "-"
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def _state(name: str) -> str:
    return click.style(name, fg=_STATE_COLOURS.get(name))


def _ranges(numbers: Sequence[int]) -> str:
    """0-3, 6."""
    parts: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ", ".join(parts)


def _no_colour() -> bool:
    import os

    return bool(os.environ.get("NO_COLOR"))
