"""Which objects of the API server are let in; `test_hostile_objects` garbles every field of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from echelon.engines.kubernetes.client.border import Damaged, admit, decode
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.shapes import Node


def test_an_object_without_a_name_is_none() -> None:
    assert admit("Job", {"metadata": {"uid": "7"}}) is None
    assert admit("Job", {"metadata": {"name": "a"}}) == {
        "metadata": {"name": "a", "uid": "a"},
        "spec": {},
        "status": {},
    }


def node(**more: Any) -> bytes:
    return json.dumps({"kind": "Node", "metadata": {"name": "a", "labels": {"pool": "x"}}, **more}).encode()


def test_what_is_not_there_or_null_has_its_default() -> None:
    bare = decode(node(), Node)
    assert (bare.metadata.name, bare.metadata.labels) == ("a", {"pool": "x"})
    empty: Any = {"taints": None, "unschedulable": None, "podCIDR": 7}
    ready = {"type": "Ready", "status": None, "reason": ["of no interest"]}
    assert decode(node(spec=empty, status=None), Node) == bare
    (found,) = decode(node(status={"conditions": [None, ready]}), Node).status.conditions
    assert (found.type, found.status) == ("Ready", "")


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"labels": {}}},
        {"metadata": {"name": 7}},
        {"metadata": {"name": "a", "labels": {"pool": 10**30}}},
        {"spec": {"unschedulable": "yes"}},
        {"spec": {"taints": [{"effect": "NoSchedule"}], "unschedulable": None}},
        {"status": []},
    ],
)
def test_a_field_of_another_type_or_a_missing_name_damages_the_object(more: dict[str, Any]) -> None:
    with pytest.raises(Damaged, match="its kind, Node, is: "):
        decode(node(**more), Node)


def test_a_pod_of_which_nothing_is_known_yet_has_its_defaults() -> None:
    nulls = {"containerStatuses": None, "conditions": [{"type": "Ready", "lastTransitionTime": None}]}
    volumes = [{"name": "x", "configMap": {"name": None}}]
    found = decode(
        json.dumps({"metadata": {"name": "a"}, "spec": {"volumes": volumes}, "status": nulls}).encode(), Pod
    )
    assert (found.metadata.uid, found.metadata.maker.kind, found.metadata.leaves) == ("a", "", False)
    assert (found.spec.containers, found.status.container_statuses) == ((), ())
    assert found.spec.volumes[0].persistent_volume_claim is None
    ready = found.status.condition("Ready")
    assert ready is not None
    assert (ready.status, ready.last_transition_time) == ("", None)
    assert found.status.condition("DisruptionTarget") is None


@pytest.mark.parametrize(
    "more",
    [
        {"status": {"containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": "1"}}}]}},
        {"status": {"containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": 2**31}}}]}},
        {"status": {"containerStatuses": [{"state": {}}]}},
        {"spec": {"containers": [{"name": "worker", "env": [{"value": "x"}]}]}},
        {"spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {}}]}},
        {"spec": {"nodeName": ["node-a"]}},
    ],
)
def test_a_pod_that_is_not_as_its_kind_is_damaged(more: dict[str, Any]) -> None:
    with pytest.raises(Damaged, match="its kind, Pod, is: "):
        decode(json.dumps({"metadata": {"name": "a"}, **more}).encode(), Pod)


def test_the_answer_to_who_am_i_has_no_name() -> None:
    answer = {"metadata": {"creationTimestamp": None}, "status": {"userInfo": {"username": "ann"}}}
    assert admit("SelfSubjectReview", answer) == answer
