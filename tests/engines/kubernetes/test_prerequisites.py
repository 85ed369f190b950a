"""What a job names, and which quota can never hold it."""

from __future__ import annotations

from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from tests.engines.kubernetes.stand_in import Answer, StandIn, refuses, says

from echelon.engines.kubernetes.client.access import Access
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.prerequisites import beyond_quota, check, objects_named
from echelon.errors import Unavailable, Unplaceable
from echelon.model.settings import RoleSettings, Settings, to_job


def job(**said: Any) -> Any:
    return to_job(Settings(script="train.py", **said), name="fm")


def quota(hard: dict[str, object], **spec: object) -> dict[str, Any]:
    return {"metadata": {"name": "small"}, "spec": {"hard": hard, **spec}}


def test_every_object_that_a_job_names() -> None:
    found = objects_named(
        job(
            mount=[
                "pvc:data/x:/data",
                "pvc:data:/all",
                "configmap:conf:/conf",
                "secret:keys:/keys",
                "emptydir::/e",
            ],
            code="pvc:work/project",
            code_volume="pvc:shelf",
            output="pvc:out",
            pull_secret=["pull"],
            service_account="trainer",
            priority_class="high",
        )
    )
    assert [(each.kind, each.name, each.flag) for each in found] == [
        ("PersistentVolumeClaim", "data", "--mount"),
        ("PersistentVolumeClaim", "work", "--code"),
        ("PersistentVolumeClaim", "shelf", "--code-volume"),
        ("PersistentVolumeClaim", "out", "--output"),
        ("ConfigMap", "conf", "--mount"),
        ("Secret", "keys", "--mount"),
        ("Secret", "pull", "--pull-secret"),
        ("ServiceAccount", "trainer", "--service-account"),
        ("PriorityClass", "high", "--priority-class"),
    ]
    assert [each.kind for each in objects_named(job(output="new:1Gi:fast"))] == ["StorageClass"]
    assert not list(objects_named(job()))


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
        ({"requests.cpu": "31"}, {"total_gpus": "8", "cpus_per_gpu": 4}),
        ({"requests.memory": "31Gi"}, {"total_gpus": "8..16", "memory_per_gpu": "4Gi"}),
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


# What is read, and what may not be

FORBIDDEN = refuses(403, "Forbidden", "it is forbidden")
GONE = refuses(404, "NotFound", "it is not found")
NO_QUOTA = says(200, {"kind": "ResourceQuotaList", "metadata": {}, "items": []})
NAMED = {"mount": ["secret:keys:/keys"], "service_account": "trainer", "priority_class": "high"}


def answers(stand_in: StandIn, by_kind: Mapping[str, Answer], *, allowed: bool = True) -> None:
    """Answer by the kind of object that a path names: requests come in any order."""
    review = says(201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}})

    def answer(handler: BaseHTTPRequestHandler) -> None:
        found = [made for kind, made in by_kind.items() if f"/{kind}" in handler.path]
        (found[0] if found else review)(handler)

    stand_in.answer_with(answer)


@pytest.fixture
def api(access: Access) -> Api:
    return Api(access, "ours", patience=0.1)


def test_what_is_missing_is_told_together(api: Api, stand_in: StandIn) -> None:
    kinds = dict.fromkeys(("secrets", "serviceaccounts", "priorityclasses"), GONE)
    answers(stand_in, {"resourcequotas": NO_QUOTA, **kinds})
    with pytest.raises(Unavailable) as caught:
        check(api, job(**NAMED))
    for words in ("Secret keys", "service account trainer", "priority class high"):
        assert f"{words} does not exist" in caught.value.message
    (secret,) = (seen for seen in stand_in.seen if "/secrets/keys" in seen.path)
    assert "PartialObjectMetadata" in secret.headers["accept"]  # its content stays where it is


@pytest.mark.parametrize("allowed", [True, False])
def test_what_may_not_be_read_is_unknown_not_missing(api: Api, stand_in: StandIn, allowed: bool) -> None:
    kinds = ("resourcequotas", "secrets", "serviceaccounts", "priorityclasses")
    answers(stand_in, dict.fromkeys(kinds, FORBIDDEN), allowed=allowed)
    assert check(api, job(**NAMED)) is allowed


def test_an_ordinary_job_costs_two_reads(api: Api, stand_in: StandIn) -> None:
    answers(stand_in, {"resourcequotas": NO_QUOTA})
    assert check(api, job())
    assert len(stand_in.seen) == 2
