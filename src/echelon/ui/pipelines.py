"""Pipeline runs of notebooks, as pages get them: this machine's records, and the runs of their steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from echelon.engines.base import Engine, unknown_run
from echelon.model.status import RunSummary
from echelon.notebook.folder import is_held
from echelon.notebook.noted import Noted, all_noted, noted
from echelon.notebook.standing import PipelineStanding, standing_of


def list_pipelines(engine: Engine, rows: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """All of them, the newest first, each in a few fields."""
    known = {each.record.name: each for each in all_noted() if _is_here(each, engine)}
    names = dict.fromkeys([*known, *(row.pipeline for row in rows if row.pipeline is not None)])
    found = [_standing(name, known.get(name), rows) for name in names]
    return [_in_short(each) for each in sorted(found, key=lambda each: each.created, reverse=True)]


def find_pipeline_run(engine: Engine, rows: Sequence[RunSummary], name: str) -> PipelineStanding:
    """One of them; raises UnknownRun."""
    known = noted(name)
    if known is not None and not _is_here(known, engine):
        known = None
    if known is None and not any(row.pipeline == name for row in rows):
        raise unknown_run(name, [row.pipeline for row in rows if row.pipeline is not None])
    return _standing(name, known, rows)


def pipeline_data(found: PipelineStanding) -> dict[str, Any]:
    """One of them with its steps."""
    steps = [_step(found, at) for at in range(len(found.steps))]
    return {**_in_short(found), "notebook": found.notebook, "steps": steps, "now": time.time()}


def _standing(name: str, known: Noted | None, rows: Sequence[RunSummary]) -> PipelineStanding:
    steps = [row for row in rows if row.pipeline == name]
    own = [row for row in steps if row.own]
    if known is None:
        return standing_of(name, None, own or steps)  # another user may have one of the same name
    return standing_of(name, known.record, own, held=is_held(known.folder))


def _is_here(known: Noted, engine: Engine) -> bool:
    return known.record.on == (engine.traits.place if engine.traits.remote else "")


def _in_short(found: PipelineStanding) -> dict[str, Any]:
    plain = ("name", "state", "reason", "created", "ended", "owner", "own", "done")
    return {**{key: getattr(found, key) for key in plain}, "steps": len(found.steps)}


def _step(found: PipelineStanding, at: int) -> dict[str, Any]:
    step = found.steps[at]
    node = next((each for each in found.graph if each.name == step.name), None)
    graph = {} if node is None else {"after": node.sources, "gets": node.gets, "size": node.size}
    return {**msgspec.to_builtins(step), **graph}
