"""What is asked of the cluster to tell why a run does not run, and what is not."""

from __future__ import annotations

import json

import pytest
from tests.engines.kubernetes.small import RUNNING, WAITING, job, pod
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

from echelon.engines.kubernetes.client.access import Access
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.follow.troubles import find_troubles, free_places, out_of_touch
from echelon.errors import Unreachable

NOW = 1_800_000_000.0
NO_RIGHT = refuses(
    403,
    "Forbidden",
    'pods "p" is forbidden: User "ann" cannot patch resource "pods/status" in API group ""',
)


@pytest.fixture
def api(access: Access) -> Api:
    return Api(access, "ours", patience=0.1)


def cut_off(*, leaves: bool) -> Object:
    """A pod on a node that is not heard of, sent away or not."""
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    more = {"deletionTimestamp": "2026-01-01T00:05:00Z"} if leaves else {}
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


def test_a_place_on_a_dead_node_is_freed(api: Api, stand_in: StandIn) -> None:
    assert free_places(api, [cut_off(leaves=True)], NOW) == []
    (asked,) = stand_in.seen
    assert (asked.method, asked.path.partition("?")[0]) == (
        "PATCH",
        "/api/v1/namespaces/ours/pods/demo-1-abcde/status",
    )
    assert json.loads(asked.body) == {"status": {"phase": "Failed"}}


@pytest.mark.parametrize("found", [cut_off(leaves=False), pod(1, state=RUNNING)])
def test_no_other_place_is_freed(api: Api, stand_in: StandIn, found: Object) -> None:
    assert free_places(api, [found], NOW) == []
    assert free_places(api, [cut_off(leaves=True)], 0.0) == []  # its node still has time to answer
    assert stand_in.seen == []


def test_without_the_right_what_helps_is_told(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(NO_RIGHT)
    (trouble,) = free_places(api, [cut_off(leaves=True)], NOW)
    assert "worker 1 is not replaced" in trouble.sentence
    assert "out-of-service" in trouble.hint


def test_a_pod_that_went_meanwhile_is_no_trouble(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(refuses(404, "NotFound", "no such pod"))
    assert free_places(api, [cut_off(leaves=True)], NOW) == []


def test_a_server_that_is_away_is_no_reason_to_fail(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(503, {}))
    assert free_places(api, [cut_off(leaves=True)], NOW) == []


def test_hearing_nothing_says_that_the_run_goes_on() -> None:
    trouble = out_of_touch(Unreachable("nobody answers", hint="x"))
    assert "nobody answers" in trouble.sentence
    assert "goes on" in trouble.hint
