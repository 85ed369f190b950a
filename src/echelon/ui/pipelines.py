"""Pipeline runs of notebooks, as pages get them: this machine's records, and the runs of their steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from echelon.engines.base import Engine, unknown_run
from echelon.model.status import RunSummary
from echelon.notebook.kept.folder import is_held
from echelon.notebook.kept.noted import Noted, noted, noted_folder, noted_names
from echelon.notebook.standing import PipelineStanding, standing_of


class Pipelines:
    """Those of one place. A record that has not changed is not read again: months of them may be there."""

    def __init__(self, engine: Engine) -> None:
        self._on = engine.traits.place if engine.traits.remote else ""
        self._read: dict[str, tuple[tuple[int, int], Noted]] = {}

    def listed(self, rows: Sequence[RunSummary]) -> list[dict[str, Any]]:
        """All of them, the newest first, each in a few fields."""
        known = {name: found for name in noted_names() if (found := self._noted(name)) is not None}
        self._read = {name: self._read[name] for name in known}
        names = dict.fromkeys([*known, *(row.pipeline for row in rows if row.pipeline is not None)])
        every = [_standing(name, known.get(name), rows) for name in names]
        return [_in_short(each) for each in sorted(every, key=lambda each: each.created, reverse=True)]

    def one(self, rows: Sequence[RunSummary], name: str) -> PipelineStanding:
        """One of them; raises UnknownRun."""
        known = self._noted(name)
        if known is None and not any(row.pipeline == name for row in rows):
            raise unknown_run(name, [row.pipeline for row in rows if row.pipeline is not None])
        return _standing(name, known, rows)

    def _noted(self, name: str) -> Noted | None:
        """The record of one that runs here, without the lists of files that its steps have made."""
        folder = noted_folder(name)
        if folder is None:
            return None
        runs = is_held(folder)  # before the record: of one that is over, that is the last one
        try:
            about = (folder.path / "pipeline.json").stat()
        except (OSError, ValueError):
            return None
        stamp = (about.st_mtime_ns, about.st_ino)
        if (before := self._read.get(name)) is not None and before[0] == stamp:
            return replace(before[1], held=runs)
        found = noted(name)
        if found is None or found.record.on != self._on:
            return None
        steps = {step: replace(each, files={}) for step, each in found.record.steps.items()}
        short = replace(found, record=replace(found.record, steps=steps), held=runs)
        self._read[name] = (stamp, short)
        return short


def pipeline_data(found: PipelineStanding) -> dict[str, Any]:
    """One of them with its steps."""
    steps = [_step(found, at) for at in range(len(found.steps))]
    return {**_in_short(found), "notebook": found.notebook, "steps": steps, "now": time.time()}


def _standing(name: str, known: Noted | None, rows: Sequence[RunSummary]) -> PipelineStanding:
    steps = [row for row in rows if row.pipeline == name]
    own = [row for row in steps if row.own]
    if known is None:
        return standing_of(name, None, own or steps)  # another user may have one of the same name
    return standing_of(name, known.record, own, held=known.held)


def _in_short(found: PipelineStanding) -> dict[str, Any]:
    plain = ("name", "state", "reason", "created", "ended", "owner", "own", "done")
    return {**{key: getattr(found, key) for key in plain}, "steps": len(found.steps)}


def _step(found: PipelineStanding, at: int) -> dict[str, Any]:
    step = found.steps[at]
    node = next((each for each in found.graph if each.name == step.name), None)
    graph = {} if node is None else {"after": node.sources, "gets": node.gets, "size": node.size}
    return {**msgspec.to_builtins(step), **graph}
