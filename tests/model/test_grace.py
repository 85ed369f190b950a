"""How long ranks in pods have to end: what the job asks for, or what its pods allow beyond."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from echelon.model.grace import grace_in_pods, termination_of
from echelon.model.job import Job
from echelon.model.pods.pod import PodOptions


def job(grace: float, template: dict[str, Any] | None = None, patch: dict[str, Any] | None = None) -> Job:
    return Job(
        name="fm", script="train.py", grace=grace, pod=PodOptions(template=template or {}, patch=patch or {})
    )


def pods(seconds: object) -> dict[str, Any]:
    return {"spec": {"terminationGracePeriodSeconds": seconds}}


def test_pods_get_what_the_ranks_get_and_the_agents_own_time() -> None:
    assert termination_of(job(10.0), "worker") == 30
    assert termination_of(job(90.5), "worker") == 111
    assert grace_in_pods(job(90.5)) == 90.5


def test_checkpoints_have_their_own_time_unless_they_are_on_a_volume() -> None:
    kept = Job(name="fm", script="train.py", grace=10.0, pod=PodOptions(checkpoints="ckpt"))
    assert termination_of(kept, "worker") == 130
    assert grace_in_pods(kept) == 10.0
    longer = replace(kept, pod=replace(kept.pod, patch=pods(150)))
    assert grace_in_pods(longer) == 30.0


@pytest.mark.parametrize(
    ("template", "patch", "grace"),
    [
        (None, pods(120), 100.0),
        (pods(120), None, 100.0),
        (pods(120), pods(60), 40.0),
        (None, pods(5), 10.0),  # a stop through the leader is not bound to it
        (None, pods(None), 10.0),
        (None, {"metadata": {"labels": {"a": "b"}}}, 10.0),
        (pods("long"), None, 10.0),
    ],
)
def test_a_longer_time_of_the_pods_is_the_ranks(
    template: dict[str, Any] | None, patch: dict[str, Any] | None, grace: float
) -> None:
    assert grace_in_pods(job(10.0, template, patch)) == grace
