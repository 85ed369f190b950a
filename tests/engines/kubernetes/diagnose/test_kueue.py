"""What Kueue says of a run that it has not admitted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes.diagnose.kueue import find_waiting, waits_in
from echelon.engines.kubernetes.shapes import Workload


def job(*, suspend: bool = True, queue: str = "team") -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {"metadata": {"name": "demo", "uid": "1", "labels": labels}, "spec": {"suspend": suspend}}


def workload(*conditions: dict[str, str], uid: str = "1") -> Workload:
    about = {"name": "job-demo-1", "ownerReferences": [{"kind": "Job", "uid": uid}]}
    (found,) = typed(Workload, [{"metadata": about, "status": {"conditions": list(conditions)}}])
    return found


def condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Pending", "message": message}


PENDING = condition(
    "QuotaReserved", "False", "couldn't assign flavors: insufficient unused quota for nvidia.com/gpu.\n"
)


@pytest.mark.parametrize(
    ("workloads", "reason"),
    [
        ([], "Kueue has not seen it yet"),
        ([workload(PENDING, uid="other")], "Kueue has not seen it yet"),
        ([workload()], "not decided yet"),
        ([workload(PENDING)], "couldn't assign flavors: insufficient unused quota for nvidia.com/gpu"),
        (
            [workload(condition("QuotaReserved", "True"), condition("Admitted", "False", "checks pending"))],
            "checks pending",
        ),
        (
            [workload(condition("Evicted", "True", "Preempted to accommodate another"), PENDING)],
            "Preempted to accommodate another",
        ),
    ],
)
def test_why_it_waits(workloads: list[Workload], reason: str) -> None:
    found = find_waiting([job()], workloads)
    assert found is not None
    assert (found.kind, found.sentence) == ("queue", f"queued in Kueue's queue team: {reason}")
    assert found.healable


def kubeflow_job(kind: str, *, suspend: bool = True) -> dict[str, Any]:
    return {**job(), "kind": kind, "spec": {"runPolicy": {"suspend": suspend}}}


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_a_job_of_kubeflows_waits_in_the_same_way(kind: str) -> None:
    found = find_waiting([kubeflow_job(kind)], [workload(PENDING)])
    assert found is not None
    assert "insufficient unused quota" in found.sentence
    assert found.hint == "kubectl describe localqueue team"
    assert waits_in([kubeflow_job(kind)]) == "team"
    assert find_waiting([kubeflow_job(kind, suspend=False)], [workload(PENDING)]) is None
    unseen = find_waiting([kubeflow_job(kind)], [])
    assert unseen is not None
    assert f"kubeflow.org/{kind.lower()}" in unseen.hint, "Kueue may not know the kind"


def test_what_kueue_has_admitted_or_is_not_its_own_waits_for_nothing() -> None:
    assert find_waiting([job(suspend=False)], [workload(PENDING)]) is None
    assert find_waiting([job(queue="")], [workload(PENDING)]) is None


def test_the_queue_in_which_a_run_waits() -> None:
    assert waits_in([job(suspend=False), job()]) == "team"
    assert waits_in([job(suspend=False)]) == waits_in([job(queue="")]) == waits_in([]) == ""
