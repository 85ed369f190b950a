"""How often a worker looks for its leader: a small gang eagerly, a large one sparing the name service."""

from __future__ import annotations

import pytest

from echelon.agent.gang.dial import EAGER, SMALL, until_next


@pytest.mark.parametrize("workers", [2, SMALL, SMALL + 1, 10_000])
def test_attempts_become_fewer(workers: int) -> None:
    first, later = until_next(0.0, workers), until_next(EAGER, workers)
    assert first < later


def test_a_large_gang_asks_less_often() -> None:
    assert until_next(0.0, SMALL + 1) > until_next(0.0, SMALL)
