"""What the pages get, as plain data: everything is read from the engine as the commands read it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace as with_fields

from echelon import __version__
from echelon.children import gathered, listed, nested
from echelon.comparison.comparing import compare
from echelon.engines.base import Engine, RunDamaged, unknown_run
from echelon.engines.choose import LOCAL, choose_engine
from echelon.errors import EchelonError, InvalidJob
from echelon.handle import Run
from echelon.jobfile.writing import job_file_of
from echelon.metrics.curves import MOST_CHARTS, Curves
from echelon.model.engine.traits import Where
from echelon.model.output.metric import Metric
from echelon.model.output.progress import Progress, at_end, words
from echelon.model.program import Step
from echelon.model.run import parse_uri
from echelon.model.status import FINAL, RunSummary, Status
from echelon.model.step_names import run_name
from echelon.observation.reasons import beside
from echelon.queueing.looking import look, standing
from echelon.ui.feed import Feed, Feeds, Polled, plain_number
from echelon.ui.results import Results
from echelon.ui.spool import LineQuery

_HERE, _ELSEWHERE = 1.0, 2.0  # seconds between two looks at this machine, and at a cluster
PAGE = 500  # lines that are given at a time

_MOST_COMPARED = 20  # runs on one page
_MOST_BELOW = 100  # steps of one run in the list of all


class Reading:
    """What there is to see in one place. Any thread may use it; nothing of it changes anything."""

    def __init__(self, engine: Engine, *, read_only: bool = False) -> None:
        self._engine = engine
        self.read_only = read_only
        every = _ELSEWHERE if engine.traits.remote else _HERE
        self.rows: Polled[list[RunSummary]] = Polled(lambda: listed(engine), every)
        self.place: Polled[dict[str, Any]] = Polled(self._look_at_place, 2 * every)
        self.feeds = Feeds()

    def about(self) -> dict[str, Any]:
        """What this page looks at."""
        try:
            where = self._engine.where
        except EchelonError:  # the pages say what is wrong with the kubeconfig
            where = Where()
        place = self._engine.traits.place
        return {"version": __version__, "place": place, **where._asdict(), "read_only": self.read_only}

    def runs(self) -> list[dict[str, Any]]:
        """All runs, the newest first."""
        found = self.rows.get()[0]
        return [msgspec.to_builtins(row) for row in found]

    def nested(self) -> list[dict[str, Any]]:
        """The same for the list: runs that are steps are below the run that they are a part of; of very many,
        active ones come first, and the others are a number.
        """
        found = []
        for row, below in nested(self.rows.get()[0]):
            shown = sorted(below, key=lambda step: step.state in FINAL)[:_MOST_BELOW]
            shown.sort(key=lambda step: step.created)
            data = {"below": [msgspec.to_builtins(step) for step in shown], "more": len(below) - len(shown)}
            found.append({**msgspec.to_builtins(row), **data})
        return found

    def row(self, name: str) -> RunSummary:
        """The run of that name: only one that is listed can be named. Raises UnknownRun."""
        rows: list[RunSummary] = []
        for _ in range(2):
            rows = self.rows.get()[0]
            for row in rows:
                if row.name == name:
                    return row
            self.rows.forget()  # it may have been started a moment ago
        raise unknown_run(name, [row.name for row in rows])

    def attach(self, row: RunSummary) -> Run:
        """The handle on a run."""
        return Run(parse_uri(row.uri, ""), self._engine_of(row))

    def _engine_of(self, row: RunSummary) -> Engine:
        """The place's own, or, of a run here whose steps are in a cluster, this machine's."""
        return choose_engine(LOCAL) if row.steps is not None and self._engine.traits.remote else self._engine

    def gathered(self, name: str) -> Status | None:
        """How a run stands that another machine has started, as far as its steps tell; None if there are no
        steps of such a run.
        """
        rows = self.rows.get()[0]
        if any(row.name == name for row in rows):
            return None
        return next((gathered(row, steps) for row, steps in nested(rows) if row.name == name), None)

    def links(self, name: str, steps: Sequence[Step]) -> Mapping[str, str]:
        """By step, the names of those runs of a run's steps that have a page here: they may be elsewhere."""
        there = {each.name for row, below in nested(self.rows.get()[0]) if row.name == name for each in below}
        runs = {step.name: parse_uri(step.run, "").name for step in steps if step.run}
        runs |= {step.name: run_name(name, step.name) for step in steps if step.state == "kept"}
        return {step: run for step, run in runs.items() if run in there}

    def drawn(self, name: str) -> tuple[Sequence[Step], Mapping[str, str]]:
        """The steps of a run and where they lead to. Raises UnknownRun."""
        status = self.gathered(name)
        steps = (self.feed(name).status() if status is None else status).steps
        return steps, self.links(name, steps)

    def feed(self, name: str) -> Feed:
        """A run's feed."""
        row = self.row(name)
        return self.feeds.of(row, lambda: self.attach(row))

    def run(self, name: str) -> dict[str, Any]:
        """All of a run but its lines, metrics and results."""
        if (status := self.gathered(name)) is not None:
            return self.run_elsewhere(status)
        feed = self.feed(name)
        feed.catch_up()
        return self.run_of(feed, self.row(name))

    def run_elsewhere(self, status: Status) -> dict[str, Any]:
        """The same of a run that another machine has started."""
        return {
            "parent": None,
            "status": msgspec.to_builtins(status),
            "links": self.links(status.name, status.steps),
            "phases": [],
            "now": time.time(),
            "job": "",
        }

    def run_of(self, feed: Feed, row: RunSummary) -> dict[str, Any]:
        """The same of a feed as far as it has come."""
        status = feed.status()
        found: dict[str, Any] = {
            "parent": row.parent,
            "status": msgspec.to_builtins(status),
            "links": None if row.steps is None else self.links(row.name, status.steps),
            "phases": [msgspec.to_builtins(phase) for phase in list(feed.timeline.phases)],
            "now": time.time(),
            "job": "" if row.steps is not None else _job_of(feed),  # it would start no steps
        }
        if feed.trouble is not None:
            found["trouble"] = error_data(feed.trouble)
        return found

    def logs(self, name: str, wanted: LineQuery, after: int | None, before: int | None) -> dict[str, Any]:
        """Lines from a number on, or the last ones before a number."""
        feed = self.feed(name)
        feed.catch_up()
        complete = feed.complete
        if after is None:
            count = feed.lines.count
            return {
                "lines": feed.lines.last(PAGE, wanted, before),
                "next": count if before is None else min(before, count),
                "complete": complete,
            }
        lines, goes_on = feed.lines.since(after, PAGE, wanted)
        return {"lines": lines, "next": goes_on, "complete": complete and goes_on >= feed.lines.count}

    def events(self, name: str) -> list[dict[str, Any]]:
        """What happened, the last events."""
        feed = self.feed(name)
        feed.catch_up()
        return [
            {key: value for key, value in msgspec.to_builtins(event).items() if value is not None}
            for event in list(feed.events)
        ]

    def slow(self, name: str) -> list[dict[str, Any]]:
        """What costs a run time while all of its ranks run, such as one that keeps the others waiting."""
        feed = self.feed(name)
        if self.row(name).steps is not None or feed.status().state != "running":
            return []
        with suppress(EchelonError):  # its samples may not be read; the page is none the worse
            return [msgspec.to_builtins(each) for each in beside(feed.usage())]
        return []

    def metrics(
        self, name: str, rank: int | None, search: str = "", most: int | None = None
    ) -> list[dict[str, Any]]:
        """A run's curves."""
        feed = self.feed(name)
        feed.catch_up()
        return feed.charts(rank, search, MOST_CHARTS if most is None else most)

    def compare(self, names: Sequence[str]) -> dict[str, Any]:
        """Runs beside each other, and their curves in one chart for each metric."""
        if not 1 < len(set(names)) <= _MOST_COMPARED or len(set(names)) < len(names):
            hint = "choose them in the list"
            raise InvalidJob("run", ", ".join(names), f"are not 2 to {_MOST_COMPARED} runs", hint=hint)
        curves = Curves()

        def see(name: str, metric: Metric) -> None:
            part = "/".join(filter(None, (name, metric.part)))
            curves.add(with_fields(metric, part=part))

        found = compare([self.attach(self.row(name)) for name in names], see=see)
        charts = curves.charts(None, most=MOST_CHARTS)
        return {
            "compared": msgspec.to_builtins(found),
            "charts": [{**each, "last": plain_number(each["last"])} for each in charts],
            "found": len(curves.names(None)),
        }

    def results_of(self, name: str) -> Results:
        """A run's results on this machine, if they belong here."""
        row = self.row(name)
        try:
            record = self._engine_of(row).read(parse_uri(row.uri, ""))
        except RunDamaged:
            return Results(None)
        folder = Path(record.results)
        program = record.job.program
        return Results(folder if folder.is_absolute() else None, () if program is None else program.private)

    def cluster(self) -> dict[str, Any]:
        """Devices and nodes, who holds what, and the queue."""
        return self.place.get()[0]

    def _look_at_place(self) -> dict[str, Any]:
        usage = self._engine.usage
        snapshot = look(self._engine)
        return {
            "usage": None if usage is None else msgspec.to_builtins(usage.measure()),
            "queue": [msgspec.to_builtins(each) for each in standing(snapshot, time.time())],
            "holding": [msgspec.to_builtins(each) for each in snapshot.holding],
        }


def progress_data(progress: Progress | None, *, over: bool) -> dict[str, Any] | None:
    """How far a run has come as a page shows it: a bar and words."""
    if progress is None:
        return None
    if over:
        progress = at_end(progress)
        if progress.of == "epoch":  # all of its last epoch says nothing of the run
            progress = replace(progress, done=None)
    text = ", ".join(words(progress))
    return {"done": progress.done, "rank": progress.rank, "text": text}


def error_data(error: EchelonError) -> dict[str, str]:
    """An error as pages get it."""
    return {"error": error.message, "hint": error.hint}


def _job_of(feed: Feed) -> str:
    """The run as a job file; "" where it cannot be read."""
    if feed.job is None:
        try:
            feed.job = job_file_of(feed.run.job())
        except EchelonError:
            feed.job = ""
    return feed.job
