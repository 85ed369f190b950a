"""What is asked of the cluster to tell why a run does not run, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.kubernetes.small import RUNNING, WAITING, job, pod
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.follow.troubles import find_troubles, out_of_touch
from echelon.engines.kubernetes.pods import Pod
from echelon.errors import Unreachable


@pytest.fixture
def api(access: Access) -> Api:
    return Api(access, "ours", patience=0.1)


def cut_off(*, leaves: bool) -> Pod:
    """A pod on a node that does not respond, deleted or not."""
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    more: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:05:00Z"} if leaves else {}
    return pod(1, state=RUNNING, status={"conditions": conditions}, **more)


def test_a_run_whose_workers_run_costs_nothing(api: Api, stand_in: StandIn) -> None:
    pods = [pod(0, state=RUNNING), pod(1, state=RUNNING)]
    assert find_troubles(api, [job(workers=2)], pods) == []
    assert find_troubles(api, [], []) == []
    assert stand_in.seen == []


def test_who_may_not_look_at_events_is_told_what_the_pods_say(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(
        refuses(
            403, "Forbidden", 'events is forbidden: User "ann" cannot list resource "events" in API group ""'
        )
    )
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    (trouble,) = find_troubles(api, [job(workers=1)], [pod(0, state=waiting, status={"phase": "Pending"})])
    assert "image" in trouble.sentence


def test_nodes_are_looked_at_only_for_a_worker_that_finds_none(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, {"kind": "EventList", "metadata": {}, "items": []}))
    find_troubles(api, [job(workers=1)], [pod(0, state=WAITING, status={"phase": "Pending"})])
    assert not any("/nodes" in path for path in stand_in.paths())


@pytest.mark.parametrize("allowed", [True, False])
def test_a_pod_that_stays_on_a_dead_node_is_told_where_it_cannot_be_freed(
    api: Api, stand_in: StandIn, allowed: bool
) -> None:
    review = {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}
    events = {"kind": "EventList", "metadata": {}, "items": []}
    stand_in.answer_with(says(201, review), says(200, events))
    found = find_troubles(api, [job(workers=1)], [cut_off(leaves=True)])
    told = [each for each in found if "is not replaced" in each.sentence]
    assert bool(told) is not allowed
    assert all("out-of-service" in each.hint for each in told)
    assert {seen.method for seen in stand_in.seen} <= {"GET", "POST"}, "a review, and nothing that changes"


def test_a_cluster_that_does_not_respond_says_that_the_run_goes_on() -> None:
    trouble = out_of_touch(Unreachable("nobody answers", hint="x"))
    assert "nobody answers" in trouble.sentence
    assert "goes on" in trouble.hint
