"""How a pipeline run stands: by its record, if this machine has one, and by the runs of its steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from echelon.agent.gang.verdict import LOST_EXIT_CODE, STOPPED_EXIT_CODE
from echelon.errors import ResultsIncomplete
from echelon.model.status import FINAL, RunSummary, State
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
_NOT_OVER = ("waiting", "running")
_ABANDONED = "the command that ran its steps is gone; `echelon notebook run --from` goes on"
_ENDS: dict[str, State] = {
    "failed": "failed",
    "lost": "lost",
    "damaged": "failed",
    "timed-out": "timed-out",
    "stopped": "stopped",
    "not-reached": "stopped",
}  # fmt: skip - the worst first: what a step has that did not succeed, and what its pipeline run is then
_ENDED: frozenset[str] = HAS_VALUES | set(_ENDS)
_WORST_FIRST = ("failed", "lost", "damaged", "timed-out", "stopped", "running", "starting", "queued")


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
    state: State
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
    """How it stands: the one answer for `ps`, `status`, `wait`, the dashboard and the panel. `rows` are its
    steps' runs, as `ps` has them, and `held` says that a command runs it.
    """
    if record is None:
        return _from_rows(name, rows)
    runs = {row.name: row for row in rows}
    steps = tuple(_step(each, step, runs.get(step.run), held=held) for each, step in record.steps.items())
    ends = [step.ended for step in steps if step.ended is not None]
    state, reason = _state(steps, held=held, over=record.over)
    spoiled = next((row for row in rows if row.state == "damaged"), None)
    if spoiled is not None and not held:  # whatever it was: something has to be done about it
        state, reason = "damaged", f"run {spoiled.name}: {spoiled.reason or 'its record cannot be read'}"
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


def exit_code_of(record: PipelineRecord, others: Sequence[int] = ()) -> int:
    """What a pipeline run that is over exits with; `others` are exit codes of runs that its record may not
    have.
    """
    steps = record.steps.values()
    if record.over and all(step.state in HAS_VALUES for step in steps):
        return ResultsIncomplete.exit_code if record.missing else 0
    codes = (*(step.exit_code for step in steps if step.exit_code), *filter(None, others))
    stopped = record.over and all(step.state not in _NOT_OVER for step in steps)
    return next(iter(codes), STOPPED_EXIT_CODE if stopped else LOST_EXIT_CODE)


def _step(name: str, step: StepRecord, row: RunSummary | None, *, held: bool) -> StepStanding:
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
    if step.state == "running" and row is not None and row.created >= (step.started or 0.0):
        found = replace(found, state=row.state, ended=row.ended, reason=row.reason or "")  # it knows better
    elif step.state in _NOT_OVER and not held:
        found = replace(found, state="lost", reason="the command that ran it is gone")
    return replace(found, sign=SIGNS.get(found.state, _WAITS))


def _state(steps: Sequence[StepStanding], *, held: bool, over: bool) -> tuple[State, str]:
    states = {step.state for step in steps}
    if held:
        waits = next((step for step in steps if step.run and step.reason and step.state not in _ENDED), None)
        return "running", "" if waits is None else f"step {waits.name}: {waits.reason}"
    if not states <= _ENDED:  # a run of it goes on
        return "running", _ABANDONED
    for bad, end in _ENDS.items():
        if bad in states:
            first = next(step for step in steps if step.state == bad)
            reason = f": {first.reason}" if first.reason else ""
            return end, _ABANDONED if bad == "lost" else f"step {first.name}{reason}"
    return ("succeeded", "") if over else ("lost", _ABANDONED)


def _from_rows(name: str, rows: Sequence[RunSummary]) -> PipelineStanding:
    """What the runs of steps tell by themselves: another machine has started them."""
    ordered = sorted(rows, key=lambda row: row.created)
    going = [row for row in ordered if row.state not in FINAL]
    shown = going or ordered
    worst = next((row for state in _WORST_FIRST for row in shown if row.state == state), shown[0])
    ended = [row.ended for row in ordered if row.ended is not None]
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
        state=worst.state,
        reason=worst.reason or "",
        created=ordered[0].created,
        ended=None if going or not ended else max(ended),
        owner=worst.owner,
        own=worst.own,
        steps=steps,
    )
