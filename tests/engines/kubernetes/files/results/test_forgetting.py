"""A run is not forgotten while its workers keep results; those that leave are waited for, and it is said."""

from __future__ import annotations

from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from tests.engines.kubernetes.small import stored
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.files.results import forgetting
from echelon.engines.kubernetes.files.results.forgetting import check_fetched, check_volume, patience_for
from echelon.engines.kubernetes.record import Collected
from echelon.engines.machine import Fetched, Submissions
from echelon.errors import StateTrouble


class Held:
    """Workers that hold results for so many looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, looks: int | None) -> None:
        self.looks = 0
        self.said: list[str] = []
        held = repeat(True) if looks is None else chain(repeat(True, looks), repeat(False))

        def look(*_: object) -> bool:
            self.looks += 1
            return next(held)

        monkeypatch.setattr(forgetting, "can_be_fetched", look)
        monkeypatch.setattr(forgetting, "_LOOK", 0.0)

    def check(self, collected: object) -> None:
        found = stored(collected=collected)
        check_fetched(self, Submissions(), found, self.said.append)  # type: ignore[arg-type]


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "state"))
    return monkeypatch


FETCHED: dict[str, Any] = {"at": 4e9, "host": "theirs", "path": "/home/ann/runs/demo"}


@pytest.mark.core
def test_workers_that_leave_are_waited_for_and_it_is_said_once(apart: pytest.MonkeyPatch) -> None:
    apart.setattr(forgetting, "_SILENT", 0.0)
    held = Held(apart, 4)
    held.check(FETCHED)
    assert held.looks == 5
    assert held.said == ["theirs has fetched the results: waiting until the workers have left"]


def test_a_short_wait_needs_no_word(apart: pytest.MonkeyPatch) -> None:
    apart.setattr(forgetting, "_SILENT", 1e9)
    held = Held(apart, 4)
    held.check(FETCHED)
    assert held.said == []


def test_nothing_is_waited_for_where_nobody_has_fetched_anything(apart: pytest.MonkeyPatch) -> None:
    held = Held(apart, None)
    with pytest.raises(StateTrouble, match="were not fetched yet, and would be lost"):
        held.check(None)
    assert (held.looks, held.said) == (1, [])


class Claims:
    """An API server with the claim of a run, in a phase."""

    def __init__(self, phase: str, uid: str = "the-record") -> None:
        self.made = {
            "metadata": {
                "name": "demo-results",
                "labels": {names.RUN: "demo"},
                "annotations": {names.RECORD_UID: uid},
            },
            "status": {"phase": phase},
        }

    def find_shape(self, kind: str, shape: type[Any], name: str) -> Any:
        assert (kind, name) == ("PersistentVolumeClaim", "demo-results")
        return typed(shape, [self.made])[0]


def test_a_volume_with_results_that_were_not_brought_here_keeps_the_run(apart: pytest.MonkeyPatch) -> None:
    run = stored()
    ours = Submissions()
    ours.remember(run.uid, Path("runs/demo"))
    for known in (None, Fetched(), Fetched(missing=("worker 0: its files not fetched",))):
        if known is not None:
            ours.note_fetched(run.uid, run.run.created, known)
        with pytest.raises(StateTrouble, match="are on the volume claim demo-results") as caught:
            check_volume(Claims("Bound"), ours, run)  # type: ignore[arg-type]
        assert "`echelon rm --force demo`" in caught.value.hint
    check_volume(Claims("Pending"), ours, run)  # type: ignore[arg-type]
    check_volume(Claims("Bound", uid="another"), ours, run)  # type: ignore[arg-type]
    ours.note_fetched(run.uid, run.run.created, Fetched(path="/home/ann/runs/demo"))
    check_volume(Claims("Bound"), ours, run)  # type: ignore[arg-type]


def test_who_did_not_submit_a_run_may_forget_it_and_its_volume_stays(apart: pytest.MonkeyPatch) -> None:
    check_volume(Claims("Bound"), Submissions(), stored())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at", "seconds"),
    [
        (None, 0.0),
        (1000.0, 90.0),
        (970.0, 60.0),
        (100.0, 10.0),  # fetched long ago: they stay for another reason
        (9000.0, 90.0),  # by another machine's clock, which is ahead
    ],
)
def test_how_long_workers_may_take_to_leave(at: float | None, seconds: float) -> None:
    assert patience_for(None if at is None else Collected(at=at), 1000.0) == seconds
