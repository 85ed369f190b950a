"""Why a job of Kubeflow's waits: its controller is silent, or refuses it, or Kueue has not admitted it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.engines.kubernetes.stand_in import StandIn, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.watched.kinds import parse_address
from echelon.engines.kubernetes.watched.state import see
from echelon.engines.kubernetes.watched.waiting import find_waiting

QUEUE = {"kueue.x-k8s.io/queue-name": "team"}


def job(*, status: dict[str, Any] | None = None, **about: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "mnist", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", **about},
        "spec": {"suspend": bool(about), "trainer": {"numNodes": 2}},
        "status": status or {},
    }


def listed(*items: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "List", "metadata": {}, "items": items}).encode()


def why(api: Api, wanted: dict[str, Any]) -> tuple[str, str] | None:
    found = find_waiting(api, see(parse_address("trainjob/mnist"), wanted, []))
    return None if found is None else (found.kind, found.sentence)


def test_a_job_that_no_controller_has_noticed(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, listed()))
    kind, sentence = why(api, job()) or ("", "")
    assert kind == "silent"
    assert sentence.startswith("no controller has acted on the job")


def test_a_job_that_its_controller_refuses_says_why(api: Api, stand_in: StandIn) -> None:
    said = [
        {"metadata": {"name": "a"}, "message": "old", "lastTimestamp": "2026-01-01T00:00:01Z"},
        {"metadata": {"name": "b"}, "message": "no such\nruntime.", "lastTimestamp": "2026-01-01T00:00:02Z"},
    ]
    stand_in.answer_with(says(200, listed(*reversed(said))))
    assert why(api, job()) == ("refused", "no such runtime")


@pytest.mark.parametrize(
    "status", [{"jobsStatus": [{"name": "node"}]}, {"conditions": [{"type": "Created"}]}]
)
def test_a_job_that_was_noticed_waits_for_its_pods(
    api: Api, stand_in: StandIn, status: dict[str, Any]
) -> None:
    """Trainer's conditions come with the end: a TrainJob at work has none."""
    assert why(api, job(status=status)) is None
    assert not stand_in.seen


def test_a_job_in_a_queue_of_kueues_says_what_kueue_says(api: Api, stand_in: StandIn) -> None:
    reserved = {"type": "QuotaReserved", "status": "False", "message": "insufficient unused quota"}
    about = {"name": "trainjob-mnist", "ownerReferences": [{"kind": "TrainJob", "uid": "1"}]}
    served = {"name": "workloads", "kind": "Workload", "namespaced": True}
    kinds = {"kind": "APIResourceList", "resources": [served]}
    workload = {"metadata": about, "status": {"conditions": [reserved]}}
    stand_in.answer_with(says(200, json.dumps(kinds).encode()), says(200, listed(workload)))
    assert why(api, job(labels=QUEUE)) == (
        "queue",
        "queued in Kueue's queue team: insufficient unused quota",
    )
