"""Orders to a run: its leader may not listen yet."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from tests.conftest import wait_until
from tests.engines.kubernetes.clock import Clock
from tests.engines.kubernetes.small import RUNNING, ended, pod, stored

from echelon.engines.kubernetes import control
from echelon.engines.machine import process_name
from echelon.errors import Denied


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


def test_a_client_that_fetches_says_so_to_every_worker_and_the_keeper_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that do not answer, and the right that is lacking, keep no other one from being told."""
    told: dict[str, list[dict[str, object]]] = {}

    def order(_api: object, _record: object, name: str, word: str, details: str, **_: object) -> bool:
        told.setdefault(name, []).append({"order": word, **json.loads(details)})
        if name.startswith("demo-1"):
            raise Denied("no")
        return not name.startswith("demo-0")

    monkeypatch.setattr(control, "_order", order)
    monkeypatch.setattr(control, "_AT_WORK", 0.03)
    gone = pod(3, state=ended(0), status={"phase": "Succeeded"})
    pods = [*(pod(worker, state=RUNNING) for worker in range(3)), gone]
    with control.at_work(None, stored().run, pods, "demo-keeper"):  # type: ignore[arg-type]
        wait_until(lambda: all(len(each) > 1 for name, each in told.items() if "-1-" not in name), "more")
        wait_until(lambda: len(told) == 4, "all")
    assert set(told) == {"demo-0-abcde", "demo-1-abcde", "demo-2-abcde", "demo-keeper"}
    assert told["demo-keeper"][0] == {"order": "fetch", "client": process_name(), "seconds": 0.03}
    assert len(told["demo-1-abcde"]) == 1


def test_those_that_hold_for_a_short_time_are_told_before_anything_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client may stand still right after that."""
    told: list[str] = []

    def order(_api: object, _record: object, name: str, *_: object, **__: object) -> bool:
        time.sleep(0.2)
        told.append(name)
        return True

    monkeypatch.setattr(control, "_order", order)
    run = stored().run
    short = replace(run, job=replace(run.job, pod=replace(run.job.pod, linger=20.0)))
    pods = [pod(worker, state=RUNNING) for worker in range(10)]
    with control.at_work(None, short, pods):  # type: ignore[arg-type]
        assert len(told) == 10
