"""Which quotas can never let a run in."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.engines.kubernetes.prerequisites.quotas import beyond_quota, without_limits
from echelon.errors import Unplaceable
from echelon.model.meaning import to_job
from echelon.model.settings import RoleSettings, Settings


def job(**said: Any) -> Any:
    return to_job(Settings(script="train.py", **said), name="fm")


def quota(hard: dict[str, object], **spec: object) -> dict[str, Any]:
    return {"metadata": {"name": "small"}, "spec": {"hard": hard, **spec}}


@pytest.mark.parametrize(
    ("hard", "said"),
    [
        ({"pods": "1"}, {"workers": 2}),
        ({"count/pods": 2}, {"workers": 2, "roles": {"ps": 1}}),
        ({"requests.cpu": "3"}, {"workers": 2, "cpus": 2}),
        ({"cpu": "1500m"}, {"workers": 2, "cpus": "800m"}),
        ({"requests.memory": "3Gi"}, {"workers": 4, "memory": "1Gi"}),
        ({"limits.memory": "3Gi"}, {"workers": 2, "memory": "1Gi:2Gi"}),
        ({"requests.nvidia.com/gpu": "7"}, {"workers": 2, "gpus": 4}),
        ({"requests.nvidia.com/gpu": "0"}, {"roles": {"chief": RoleSettings(gpus=1)}}),
        ({"requests.storage": "1Gi"}, {"output": "new:2Gi"}),
        ({"count/jobs.batch": "1"}, {"roles": {"ps": 1}}),
        ({"requests.nvidia.com/gpu": "7"}, {"total_gpus": "8"}),
        ({"requests.nvidia.com/gpu": "4"}, {"total_gpus": "5..8", "gpus": 2}),
        ({"pods": "3"}, {"total_gpus": "8", "gpus": 2}),
        ({"requests.cpu": "31"}, {"total_gpus": "8", "cpus": "4/gpu"}),
        ({"requests.memory": "31Gi"}, {"total_gpus": "8..16", "memory": "4Gi/gpu"}),
    ],
)
def test_a_quota_that_can_never_hold_the_whole_run(hard: dict[str, object], said: dict[str, Any]) -> None:
    found = beyond_quota(job(**said), quota(hard))
    assert isinstance(found, Unplaceable)
    assert "small" in found.message
    assert str(next(iter(hard.values()))) in found.message
    # Of some pods only: whether these are among them is not known.
    assert beyond_quota(job(**said), quota(hard, scopes=["BestEffort"])) is None


@pytest.mark.parametrize(
    ("hard", "said"),
    [
        ({"pods": "2", "requests.cpu": "4"}, {"workers": 2, "cpus": 2}),
        ({"requests.cpu": "1"}, {"workers": 9}),
        ({"services": "0"}, {}),
        ({"limits.cpu": "1"}, {"workers": 2, "cpus": 2}),
        ({}, {"gpus": 8}),
        ({"pods": "no amount"}, {}),
        ({"pods": "1", "requests.nvidia.com/gpu": "4"}, {"total_gpus": "4..8"}),
    ],
)
def test_a_quota_that_can_hold_it_when_others_have_ended(
    hard: dict[str, object], said: dict[str, Any]
) -> None:
    assert beyond_quota(job(**said), quota(hard)) is None


def test_the_numbers_are_said() -> None:
    found = beyond_quota(job(workers=3, memory="2Gi"), quota({"requests.memory": "4Gi"}))
    assert found is not None
    assert found.message == "quota small allows 4Gi memory in all, and the run's 3 workers need 6Gi"
    assert "kubectl describe quota small" in found.hint
    found = beyond_quota(job(total_gpus="6..8"), quota({"requests.nvidia.com/gpu": "4"}))
    assert found is not None
    assert found.message == "quota small allows 4 nvidia.com/gpu in all, and the run's workers need 6"


DEFAULTS = {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}}


@pytest.mark.parametrize(
    ("said", "ranges", "unsaid"),
    [
        ({}, [], "cpu, memory"),
        ({}, [DEFAULTS], "memory"),
        ({"memory": "1Gi", "cpus": "1:2"}, [], "memory"),
        ({"total_gpus": "4", "memory": "1Gi/gpu"}, [DEFAULTS], "memory"),
        ({"memory": "1Gi:1Gi", "roles": {"ps": RoleSettings(memory="1Gi")}}, [DEFAULTS], "memory"),
        ({"memory": "1Gi:2Gi", "cpus": "1:2"}, [], None),
        ({"memory": "1Gi:2Gi"}, [DEFAULTS], None),
        ({"template": {"metadata": {"labels": {"team": "vision"}}}}, [], None),
    ],
)
def test_a_quota_that_asks_for_limits(said: dict[str, Any], ranges: list[Any], unsaid: str | None) -> None:
    asks = quota({"limits.cpu": "64", "limits.memory": "64Gi"})
    found = without_limits(job(**said), [quota({"requests.cpu": "64"}), asks], ranges)
    if unsaid is None:
        assert found is None
    else:
        assert found is not None
        assert found.message == f"quota small lets in only pods that have limits: {unsaid}"
        assert "--memory 8Gi:8Gi" in found.hint
