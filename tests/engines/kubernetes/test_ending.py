"""Stopping a run at the moment when it changes under the hand that stops it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.engines.kubernetes.files.results.test_shards import PLAN
from tests.engines.kubernetes.small import job, stored, view

from echelon.engines.kubernetes import control, ending
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.queue import admitting
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state import whole


class Records:
    """An API server that takes every change."""

    def patch(self, *_: Any, **__: Any) -> None:
        pass


def admitted() -> View:
    found = view()
    return replace(found, stored=replace(found.stored, run=replace(found.stored.run, plan=PLAN)))


@pytest.mark.parametrize("waits", [True, False])
def test_a_stop_that_loses_against_a_start_orders_the_leader_of_what_was_started(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Without the plan of the start no Job and no pod is the run's, and its leader would not be found."""
    queued = View(stored=stored(started=False), jobs=[], pods=[], waiting=[job()] if waits else [])
    looks = iter([queued, admitted()])
    asked: list[Stored] = []

    def reach(_api: object, found: Stored, *_order: str) -> bool:
        asked.append(found)
        return True

    monkeypatch.setattr(views, "look", lambda *_, **__: next(looks))
    monkeypatch.setattr(admitting, "withdraw", lambda *_: False)
    monkeypatch.setattr(whole, "is_being_made", lambda found, *_: found.run.plan is None and not waits)
    monkeypatch.setattr(control, "reach_leader", reach)
    monkeypatch.setattr(ending, "_end_untold", lambda *_: None)
    assert ending.stop_run(Records(), stored().run.ref, "SIGTERM") is None  # type: ignore[arg-type]
    assert [each.run.plan for each in asked] == [PLAN]
