"""Events of another program: what of them cannot be, and how long their texts may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echelon.model.event import LONGEST, Event, bounded, is_sound

SAFE = Event(kind="checkpoint", at=5.0, path="ckpt/step-1", size=10, files=2)


def test_an_event_of_a_checkpoint_is_sound() -> None:
    assert is_sound(SAFE)
    assert is_sound(replace(SAFE, size=None, files=None))


@pytest.mark.parametrize("wrong", [{"size": -1}, {"size": 10**400}, {"files": -2}, {"generation": -1}])
def test_counts_that_cannot_be(wrong: dict[str, int]) -> None:
    assert not is_sound(replace(SAFE, **wrong))  # type: ignore[arg-type]


def test_a_path_is_no_longer_than_a_message_can_be() -> None:
    assert len(bounded(replace(SAFE, path="x" * 10**6)).path or "") == LONGEST + 3
