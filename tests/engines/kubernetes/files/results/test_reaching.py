"""What can be fetched of a run whose workers are gone: its keeper is told that the run is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.engines.kubernetes.small import view

from echelon.engines.kubernetes import control
from echelon.engines.kubernetes.files.results import reaching
from echelon.engines.kubernetes.files.results.seen import Seen
from echelon.engines.kubernetes.follow.keeper import KeeperView
from echelon.errors import Denied, ResultsIncomplete
from echelon.model.pods.pod import Keeper


def seen(**more: Any) -> Seen:
    found = view(pods=[])
    run = found.stored.run
    pod = replace(run.job.pod, **{"checkpoints": "ckpt", "keeper": Keeper(), **more})
    stored = replace(found.stored, run=replace(run, job=replace(run.job, pod=pod)))
    return Seen(view=replace(found, stored=stored), events=[], keeper=KeeperView(pod="keeper"))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(control, "tell_keeper", lambda _api, _record, pod: not told.append(pod))  # type: ignore[func-returns-value]
    return told


def look(monkeypatch: pytest.MonkeyPatch, *moments: Seen) -> Seen:
    found = iter(moments)
    monkeypatch.setattr(reaching, "see", lambda *_: next(found))
    return reaching.see_all(None, moments[0].view.stored.run.ref)  # type: ignore[arg-type]


def test_the_keeper_is_told_and_looked_at_again(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    after = seen()
    assert look(monkeypatch, seen(), after) is after
    assert told == ["keeper"]


def test_a_run_without_checkpoints_needs_none_of_it(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    look(monkeypatch, seen(checkpoints=None))
    assert told == []


def test_a_keeper_that_does_not_answer_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "tell_keeper", lambda *_: False)
    with pytest.raises(ResultsIncomplete, match="does not answer"):
        look(monkeypatch, seen(), seen())
    gone = replace(seen(), keeper=KeeperView(why="the keeper is gone", lost=True))
    assert look(monkeypatch, seen(), gone) is gone


def test_who_may_not_ask_it_sees_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> bool:
        raise Denied("no", hint="")

    monkeypatch.setattr(control, "tell_keeper", denied)
    first = seen()
    assert look(monkeypatch, first) is first
