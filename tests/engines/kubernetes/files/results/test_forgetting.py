"""A run is not forgotten while its workers keep results; those that leave are waited for, and it is said."""

from __future__ import annotations

from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from tests.engines.kubernetes.small import stored

from echelon.engines.kubernetes.files.results import forgetting
from echelon.engines.kubernetes.files.results.forgetting import check_fetched, patience_for
from echelon.engines.kubernetes.record import Collected
from echelon.engines.machine import Submissions
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

    def may(self, *_: object, **__: object) -> bool:
        return True

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
