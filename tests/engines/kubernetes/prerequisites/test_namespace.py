"""What a job names, and what is read of it before anything is made."""

from __future__ import annotations

from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from tests.engines.kubernetes.stand_in import Answer, StandIn, refuses, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.prerequisites import namespace
from echelon.engines.kubernetes.prerequisites.asked import Asked
from echelon.engines.kubernetes.prerequisites.namespace import objects_named
from echelon.errors import Unavailable, Unplaceable
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.settings import Settings


def job(**said: Any) -> Any:
    return to_job(Settings(script="train.py", **said), name="fm")


def check(api: Api, job: Job) -> bool:
    return namespace.check(api, job, Asked(api))


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
    own = {"label": {"kueue.x-k8s.io/priority-class": "early"}}
    (of_kueue,) = objects_named(job(**own, local_queue="team"))
    assert (of_kueue.name, of_kueue.words) == ("early", "WorkloadPriorityClass of Kueue's")
    assert not list(objects_named(job(**own))), "without Kueue it is a label like any other"


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


def test_what_the_submission_brings_along_is_not_missing(api: Api, stand_in: StandIn) -> None:
    kinds = dict.fromkeys(("secrets", "serviceaccounts", "priorityclasses"), GONE)
    answers(stand_in, {"resourcequotas": NO_QUOTA, **kinds})
    coming = {("Secret", "keys"), ("ServiceAccount", "trainer"), ("ConfigMap", "high")}
    with pytest.raises(Unavailable) as caught:
        namespace.check(api, job(**NAMED), Asked(api), coming)
    assert caught.value.message == "--priority-class: priority class high does not exist"


@pytest.mark.parametrize("allowed", [True, False])
def test_what_may_not_be_read_is_unknown_not_missing(api: Api, stand_in: StandIn, allowed: bool) -> None:
    kinds = ("resourcequotas", "secrets", "serviceaccounts", "priorityclasses")
    answers(stand_in, dict.fromkeys(kinds, FORBIDDEN), allowed=allowed)
    assert check(api, job(**NAMED)) is allowed


def test_an_ordinary_job_asks_only_what_every_job_does(api: Api, stand_in: StandIn) -> None:
    empty = says(200, {"kind": "List", "metadata": {}, "items": []})
    kinds = ("resourcequotas", "nodes", "pods", "configmaps", "jobs")
    answers(stand_in, dict.fromkeys(kinds, empty))
    asked = Asked(api)
    asked.seen()
    asked.who()
    before = len(stand_in.seen)
    assert namespace.check(api, job(), asked)
    assert len(stand_in.seen) == before


LIMITED = says(
    200,
    {
        "kind": "ResourceQuotaList",
        "metadata": {},
        "items": [{"metadata": {"name": "team"}, "spec": {"hard": {"limits.memory": "64Gi"}}}],
    },
)
NO_RANGE = says(200, {"kind": "LimitRangeList", "metadata": {}, "items": []})


def test_a_quota_that_asks_for_limits_is_known_before_anything_is_made(api: Api, stand_in: StandIn) -> None:
    answers(stand_in, {"resourcequotas": LIMITED, "limitranges": NO_RANGE})
    with pytest.raises(Unplaceable, match="quota team lets in only pods that have limits: memory"):
        check(api, job())
    assert check(api, job(memory="1Gi:2Gi"))


def test_whether_limits_are_filled_in_may_be_unknown(api: Api, stand_in: StandIn) -> None:
    answers(stand_in, {"resourcequotas": LIMITED, "limitranges": FORBIDDEN})
    assert check(api, job())
