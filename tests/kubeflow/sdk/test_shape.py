"""Documents with the attributes of Kubeflow's models, and models as documents."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from echelon.kubeflow.sdk.shape import Shape, as_document

JOB = {
    "kind": "PyTorchJob",
    "metadata": {"name": "a", "creationTimestamp": 1, "labels": {"some.key/aB": "x"}},
    "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}}},
    "status": {"conditions": [{"type": "Created", "lastTransitionTime": 2}]},
}


def test_fields_are_attributes_in_snake_case() -> None:
    job = Shape(JOB)
    assert job.metadata.creation_timestamp == 1
    assert job.metadata.labels == {"some.key/aB": "x"}
    assert job.spec.pytorch_replica_specs["Master"].replicas == 1
    assert job.status.conditions[0].last_transition_time == 2
    assert job.status.completion_time is None
    with pytest.raises(AttributeError):
        _ = job._unknown


def test_as_a_dict_in_snake_case() -> None:
    found = Shape(JOB).to_dict()
    assert found["spec"]["pytorch_replica_specs"]["Master"] == {"replicas": 1}
    assert found["status"]["conditions"][0]["last_transition_time"] == 2
    assert found["metadata"]["labels"] == {"some.key/aB": "x"}


def test_a_model_is_a_document_without_what_it_leaves_open() -> None:
    """Kubernetes' and Kubeflow's models name their fields in `attribute_map`."""
    claim = SimpleNamespace(
        attribute_map={"claim_name": "claimName", "read_only": "readOnly"}, claim_name="c"
    )
    volume = SimpleNamespace(
        attribute_map={"name": "name", "persistent_volume_claim": "persistentVolumeClaim"},
        name="v",
        persistent_volume_claim=claim,
    )
    assert as_document([volume]) == [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    assert as_document(Shape(JOB)) == JOB


def test_fields_that_are_set_change_the_document() -> None:
    job = Shape({"metadata": {"labels": {"a": "b"}}, "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1}}}})
    job.metadata.labels["c"] = "d"
    job.spec.tf_replica_specs["Worker"].replicas = 3
    job.spec.run_policy = Shape({"backoffLimit": 2})
    job.spec.run_policy.ttl_seconds_after_finished = 60
    assert as_document(job) == {
        "metadata": {"labels": {"a": "b", "c": "d"}},
        "spec": {
            "tfReplicaSpecs": {"Worker": {"replicas": 3}},
            "runPolicy": {"backoffLimit": 2, "ttlSecondsAfterFinished": 60},
        },
    }
