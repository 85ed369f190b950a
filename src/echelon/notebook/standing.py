"""How a pipeline run stands: by its record, if this machine has one, and by the runs of its steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from echelon.model.status import FINAL, RunSummary
from echelon.notebook.folding import fold_pipelines
from echelon.notebook.kept.folder import HAS_VALUES, PipelineRecord, StepRecord
from echelon.notebook.picture.drawing import Mark, as_svg
from echelon.notebook.picture.graph import Node
from echelon.values import frozen

SIGNS = {
    "succeeded": "✓", "cached": "✓", "kept": "✓", "failed": "✗", "lost": "✗", "damaged": "✗",
    "timed-out": "✗", "stopped": "■", "stopping": "■", "running": "▶", "starting": "↑", "restarting": "↻",
    "not-reached": "○",
}  # fmt: skip
_WAITS = "…"
_ABANDONED = "the command that ran its steps is gone; `echelon notebook run --from` goes on"


@frozen
class StepStanding:
    """One step; `run` is the name of its run, if there is one to look at."""

    name: str
    state: str
    sign: str = _WAITS
    run: str | None = None
    started: float | None = None
    ended: float | None = None
    reason: str = ""
    hint: str = ""
    cell: int | None = None
    line: int | None = None


@frozen
class PipelineStanding:
    """A pipeline run and its steps, in an order in which they can run; `graph` is () if it is not known."""

    name: str
    state: str
    created: float
    ended: float | None = None
    reason: str = ""
    notebook: str = ""
    owner: str = ""
    own: bool = True
    steps: tuple[StepStanding, ...] = ()
    graph: tuple[Node, ...] = ()

    @property
    def done(self) -> int:
        """How many steps have their values."""
        return sum(step.state in HAS_VALUES for step in self.steps)


def standing_of(
    name: str, record: PipelineRecord | None, rows: Sequence[RunSummary], *, held: bool = False
) -> PipelineStanding:
    """How it stands; `rows` are its steps' runs, as `ps` has them, and `held` says that a command runs it."""
    if record is None:
        return _from_rows(name, rows)
    runs = {row.name: row for row in rows}
    steps = tuple(_step(each, step, runs.get(step.run)) for each, step in record.steps.items())
    ends = [step.ended for step in steps if step.ended is not None]
    state, reason = _state(steps, held=held)
    return PipelineStanding(
        name=name,
        state=state,
        reason=reason,
        created=record.created,
        ended=max(ends) if ends and state in FINAL else None,
        notebook=record.notebook,
        steps=steps,
        graph=tuple(node for node in record.graph if node.name in record.steps),
    )


def drawing_of(standing: PipelineStanding) -> str:
    """Its graph as SVG, for the dashboard; where the graph is not known, its steps without lines."""
    marks = {step.name: Mark(state=step.state, sign=step.sign, run=step.run) for step in standing.steps}
    known = {node.name for node in standing.graph}
    others = tuple(Node(name=step.name) for step in standing.steps if step.name not in known)
    return as_svg((*standing.graph, *others), marks)


def _step(name: str, step: StepRecord, row: RunSummary | None) -> StepStanding:
    found = StepStanding(
        name=name,
        state=step.state,
        run=None if row is None else row.name,
        started=step.started,
        ended=step.ended,
        reason=step.reason,
        hint=step.hint,
        cell=step.cell,
        line=step.line,
    )
    if step.state == "running" and row is not None:  # its run knows better
        found = replace(found, state=row.state, ended=row.ended, reason=row.reason or "")
    return replace(found, sign=SIGNS.get(found.state, _WAITS))


def _state(steps: Sequence[StepStanding], *, held: bool) -> tuple[str, str]:
    states = {step.state for step in steps}
    if held:
        return "running", ""
    if states <= HAS_VALUES:
        return "succeeded", ""
    for bad in ("failed", "lost", "damaged", "timed-out", "stopped"):
        if bad in states:
            first = next(step for step in steps if step.state == bad)
            reason = f": {first.reason}" if first.reason else ""
            return ("failed" if bad == "damaged" else bad), f"step {first.name}{reason}"
    going = any(step.run is not None and step.state not in {*FINAL, *HAS_VALUES, "waiting"} for step in steps)
    return ("running" if going else "stopped"), _ABANDONED


def _from_rows(name: str, rows: Sequence[RunSummary]) -> PipelineStanding:
    """What the runs of steps tell by themselves: another machine has started them."""
    ordered = sorted(rows, key=lambda row: row.created)
    (whole,) = fold_pipelines(ordered)
    steps = tuple(
        StepStanding(
            name=row.name.removeprefix(f"{name}-"),
            state=row.state,
            sign=SIGNS.get(row.state, _WAITS),
            run=row.name,
            started=row.created,
            ended=row.ended,
            reason=row.reason or "",
        )
        for row in ordered
    )
    return PipelineStanding(
        name=name,
        state=whole.state,
        reason=whole.reason or "",
        created=whole.created,
        ended=whole.ended,
        owner=whole.owner,
        own=whole.own,
        steps=steps,
    )
