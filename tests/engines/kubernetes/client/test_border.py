"""Which objects of the API server are let in; `test_hostile_objects` garbles every field of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from echelon.engines.kubernetes.client.border import Damaged, admit, decode
from echelon.engines.kubernetes.shapes import Node


def test_an_object_without_a_name_is_none() -> None:
    assert admit("Pod", {"metadata": {"uid": "7"}}) is None
    assert admit("Pod", {"metadata": {"name": "a"}}) == {
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


def test_the_answer_to_who_am_i_has_no_name() -> None:
    answer = {"metadata": {"creationTimestamp": None}, "status": {"userInfo": {"username": "ann"}}}
    assert admit("SelfSubjectReview", answer) == answer
