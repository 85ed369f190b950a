"""How single things are written for people."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.cli.printing.words import checkpoint_event, phases
from echelon.model.event import Event
from echelon.model.status import Status


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, "queued 1 m 39 s"),
        ({"started": 3.0}, "queued 2.0 s, starting 1 m 37 s"),
        (
            {"started": 3.0, "agents_since": 4.0, "training_since": 5.0},
            "queued 2.0 s, starting 2.0 s, training 1 m 35 s",
        ),
        ({"namespace": "team", "started": 3.0}, "queued 2.0 s, pulling 1 m 37 s"),
        (
            {
                "namespace": "team",
                "started": 3.0,
                "agents_since": 10.0,
                "training_since": 12.0,
                "ended": 22.0,
            },
            "queued 2.0 s, pulling 7.0 s, starting 2.0 s, training 10.0 s",
        ),
        (
            {
                "namespace": "team",
                "started": 3.0,
                "agents_since": 50.0,
                "trained_first": 20.0,
                "training_since": 60.0,
                "restarts": 2,
            },
            "queued 2.0 s, starting 17.0 s, earlier starts 40.0 s, training 40.0 s",
        ),
        (
            {"namespace": "team", "started": 3.0, "agents_since": 50.0, "restarts": 1},
            "queued 2.0 s, starting 1 m 37 s",
        ),
        (
            {"started": 3.0, "trained_first": 4.0, "restarts": 1, "ended": 14.0},
            "queued 2.0 s, starting 1.0 s, earlier starts 10.0 s",
        ),
    ],
)
def test_phases(about: dict[str, Any], expected: str) -> None:
    assert phases(Status(name="r", uri="u", created=1.0, **about), 100.0) == expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            Event(kind="checkpoint", at=1.0, path="ckpt/step-4000", size=1288490188, files=4),
            "checkpoint ckpt/step-4000 (1.2 GiB) is with the keeper",
        ),
        (Event(kind="checkpoint", at=1.0, path="ckpt/a"), "checkpoint ckpt/a is with the keeper"),
        (
            Event(kind="restored", at=1.0, worker=1, path="ckpt/step-4000", generation=1),
            "worker 1 got ckpt/step-4000 back",
        ),
        (Event(kind="checkpoint", at=1.0), ""),
        (Event(kind="note", at=1.0, reason="a word"), ""),
    ],
)
def test_what_became_of_a_checkpoint(event: Event, expected: str) -> None:
    assert checkpoint_event(event) == expected
