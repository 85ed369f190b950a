"""Orders to a run: its leader may not listen yet."""

from __future__ import annotations

import pytest
from tests.engines.kubernetes.clock import Clock
from tests.engines.kubernetes.small import RUNNING, pod, stored

from echelon.engines.kubernetes import control


@pytest.mark.parametrize(("refusals", "reached"), [(2, True), (10**6, False)])
def test_a_leader_that_does_not_take_orders_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, refusals: int, reached: bool
) -> None:
    """Its container runs before its agent listens; one that never does is not waited for long."""
    asked: list[str] = []

    def answer(*order: object) -> bool:
        asked.append(str(order[-1]))
        return len(asked) > refusals

    monkeypatch.setattr(control, "jobs_of", lambda *_: [])
    monkeypatch.setattr(control, "pods_of", lambda *_: [pod(0, state=RUNNING)])
    monkeypatch.setattr(control, "order_leader", answer)
    monkeypatch.setattr(control, "time", Clock())
    assert control.reach_leader(None, stored(), "stop") == reached  # type: ignore[arg-type]
    assert len(asked) > 2
