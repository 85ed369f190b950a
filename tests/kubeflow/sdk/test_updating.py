"""What of a job can be changed, and what is refused by its path."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from echelon.errors import InvalidJob
from echelon.kubeflow.sdk.shape import Shape, as_document
from echelon.kubeflow.sdk.updating import find_change

CURRENT: dict[str, Any] = {
    "kind": "PyTorchJob",
    "metadata": {"name": "a", "labels": {"team": "x"}, "creationTimestamp": 1},
    "spec": {
        "runPolicy": {"backoffLimit": 0, "suspend": False},
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch"}]}}}
        },
    },
    "status": {"conditions": []},
}


def test_a_job_is_suspended_and_resumed() -> None:
    job = Shape(deepcopy(CURRENT))
    assert find_change(CURRENT, as_document(job)) is None
    job.spec.run_policy.suspend = True
    suspended = as_document(job)
    assert find_change(CURRENT, suspended) == "suspend"
    assert find_change(suspended, {"spec": {"runPolicy": {"suspend": False}}}) == "resume"


def test_what_a_shown_template_lacks_is_no_change() -> None:
    given = deepcopy(CURRENT)
    given["metadata"] |= {"creationTimestamp": 7, "resourceVersion": "3"}
    given["status"] = None
    pod = given["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [{"name": "v"}]
    pod["containers"][0]["ports"] = [{"containerPort": 1}]
    assert find_change(CURRENT, given) is None


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 2}}}}, "Master.replicas"),
        ({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}, "pytorchReplicaSpecs.Worker"),
        ({"spec": {"runPolicy": {"suspend": True, "activeDeadlineSeconds": 9}}}, "activeDeadlineSeconds"),
        ({"spec": {"runPolicy": {"suspend": "yes"}}}, "runPolicy.suspend"),
        ({"metadata": {"labels": {"team": "y"}}}, "metadata.labels.team"),
        ({"kind": "TFJob"}, "kind"),
        ("a", "job"),
    ],
)
def test_all_else_is_refused_by_its_path(given: Any, path: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        find_change(CURRENT, given)
    assert refused.value.field.endswith(path)
