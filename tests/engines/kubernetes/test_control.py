"""Orders to a run: its leader may not listen yet."""

from __future__ import annotations

import json

import pytest
from tests.engines.kubernetes.clock import Clock
from tests.engines.kubernetes.small import RUNNING, ended, pod, stored

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


@pytest.mark.parametrize(
    ("leader", "told"),
    [
        (True, ["demo-0-abcde"]),
        (False, ["demo-0-abcde", "demo-0-abcde", "demo-1-abcde"]),  # it does not answer: each by itself
        (None, ["demo-1-abcde"]),  # it is gone
    ],
)
def test_a_client_that_fetches_is_known_to_the_gang_whether_its_leader_is_there_or_not(
    monkeypatch: pytest.MonkeyPatch, leader: bool | None, told: list[str]
) -> None:
    seconds: dict[str, list[float]] = {}

    def order(_api: object, _record: object, name: str, *words: str, **_: object) -> bool:
        seconds.setdefault(name, []).append(json.loads(words[-1])["seconds"])
        return name != "demo-0-abcde" or bool(leader)

    monkeypatch.setattr(control, "_order", order)
    first = pod(0, state=RUNNING if leader is not None else ended(1), status={"phase": "Running"})
    if leader is None:
        first["status"]["phase"] = "Failed"
    pods = [first, pod(1, state=RUNNING)]
    with control.attending(None, stored().run, pods) as attend:  # type: ignore[arg-type]
        attend()
        attend()  # not so soon again
    assert sorted(name for name, each in seconds.items() for _ in each) == sorted(2 * told)
    assert {tuple(each)[-1] for each in seconds.values()} == {0.0}, "and when it is done"
