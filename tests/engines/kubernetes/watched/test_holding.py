"""A job of Kubeflow's that Kueue manages is stopped through Kueue."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.watched.holding import hold_back
from echelon.errors import Denied

SERVED = {
    "kind": "APIResourceList",
    "resources": [{"name": "workloads", "kind": "Workload", "namespaced": True}],
}


def job(**labels: str) -> dict[str, Any]:
    return {"kind": "PyTorchJob", "metadata": {"name": "mnist", "uid": "1", "labels": labels}}


def workload(name: str, uid: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "ownerReferences": [{"kind": "PyTorchJob", "uid": uid}]}}


IN_QUEUE = job(**{"kueue.x-k8s.io/queue-name": "team"})
LISTED = {"kind": "List", "metadata": {}, "items": [workload("other", "2"), workload("mine", "1")]}


def test_its_workload_is_deactivated_and_no_other(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, SERVED), says(200, LISTED), says(200, workload("mine", "1")))
    hold_back(api, IN_QUEUE)
    (order,) = (seen for seen in stand_in.seen if seen.method == "PATCH")
    assert order.path.partition("?")[0].endswith("/workloads/mine")
    assert json.loads(order.body) == {"spec": {"active": False}, "metadata": {"uid": "mine"}}


def test_a_job_in_no_queue_costs_no_request(api: Api, stand_in: StandIn) -> None:
    hold_back(api, job())
    assert not stand_in.seen


def test_without_kueue_there_is_nothing_to_tell(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(refuses(404, "NotFound", "the server could not find the requested resource"))
    hold_back(api, IN_QUEUE)


def test_without_the_right_it_is_refused_with_what_helps(api: Api, stand_in: StandIn) -> None:
    said = 'workloads.kueue.x-k8s.io "mine" is forbidden: User "ann" cannot patch resource "workloads"'
    stand_in.answer_with(says(200, SERVED), says(200, LISTED), refuses(403, "Forbidden", said))
    with pytest.raises(Denied, match="Kueue would start it again") as caught:
        hold_back(api, IN_QUEUE)
    assert "kubectl delete pytorchjob mnist" in caught.value.hint
