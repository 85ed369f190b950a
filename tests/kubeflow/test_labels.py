"""Kubeflow's labels on the pods of a run that was its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.frameworks.wiring import environments

from echelon.kubeflow.documents import read_document
from echelon.kubeflow.labels import with_kind, with_labels
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.open_shape import OpenShape
from echelon.model.pods.pod import NOT_DOWNLOADED

PREFIX = "training.kubeflow.org/"
CONTAINERS = {"PyTorchJob": "pytorch", "TFJob": "tensorflow", "MPIJob": "mpi"}


def document(kind: str, counts: Mapping[str, int], version: str = "v1", **pod: object) -> dict[str, Any]:
    container = {"name": CONTAINERS[kind], "image": "my/image:1", "command": ["python", "train.py"]}
    spec = {"template": {"spec": {"containers": [container]}, **pod}}
    specs = {name: {"replicas": count, **spec} for name, count in counts.items()}
    field = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}[
        kind
    ]
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": kind,
        "metadata": {"name": "mnist"},
        "spec": {field: specs},
    }


def labels(job: Job) -> dict[str, dict[str, str]]:
    """Of every role, without the prefix."""
    templates = {role.name: role.template for role in job.roles} | {"worker": job.pod.template}
    return {
        name: {key.removeprefix(PREFIX): value for key, value in each["metadata"]["labels"].items()}
        for name, each in templates.items()
    }


def labelled(written: Mapping[str, Any], **more: Any) -> Job:
    job = replace(to_job(read_document(written).settings, name="x"), **more)
    return with_labels(job, written)


OPERATOR = {"operator-name": "pytorchjob-controller", "job-name": "mnist"}
MASTER = {**OPERATOR, "replica-type": "master", "replica-index": "0", "job-role": "master"}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"Master": 1}, {"worker": MASTER}),
        (
            {"Master": 1, "Worker": 1},
            {"chief": MASTER, "worker": {**OPERATOR, "replica-type": "worker", "replica-index": "0"}},
        ),
        ({"master": 1, "worker": 3}, {"chief": MASTER, "worker": {**OPERATOR, "replica-type": "worker"}}),
        ({"Worker": 3}, {"worker": {**OPERATOR, "replica-type": "worker"}}),
    ],
)
def test_a_master_and_workers(counts: Mapping[str, int], expected: dict[str, dict[str, str]]) -> None:
    assert labels(labelled(document("PyTorchJob", counts))) == expected


def test_a_master_that_gets_a_job_of_its_own_changes_nothing_else(tmp_path: Path) -> None:
    written = document("PyTorchJob", {"Master": 1, "Worker": 2})
    before, after = to_job(read_document(written).settings, name="x"), labelled(written)
    assert (before.workers, after.workers, [role.name for role in after.roles]) == (3, 2, ["chief"])
    variables = ("RANK", "WORLD_SIZE", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
    joined, split = (
        [[env[name] for name in variables] for env in environments(each, tmp_path)]
        for each in (before, after)
    )
    assert joined == split
    assert after.roles[0].resources == before.resources == after.resources


@pytest.mark.parametrize("more", ["queue", "shape"])
def test_workers_that_must_stay_one_job_have_what_all_of_them_share(more: str) -> None:
    written = document("PyTorchJob", {"Master": 1, "Worker": 2})
    job = to_job(read_document(written).settings, name="x")
    changes: dict[str, Any] = {"pod": replace(job.pod, queue="team")}
    if more == "shape":
        changes = {"shape": OpenShape(least=4, most=4), "workers": 1}
    assert labels(labelled(written, **changes)) == {"worker": OPERATOR}


def test_a_controller_of_kubeflows_labels_its_pods_itself() -> None:
    written = document("PyTorchJob", {"Master": 1, "Worker": 2})
    job = to_job(read_document(written).settings, name="x")
    native = replace(job, pod=replace(job.pod, job_kind="pytorchjob"))
    assert with_labels(native, written) == native


def test_a_job_remembers_what_was_not_downloaded_unless_its_own_controller_does_it() -> None:
    job = to_job(read_document(document("PyTorchJob", {"Worker": 1})).settings, name="x")
    native = replace(job, pod=replace(job.pod, job_kind="native"))
    found = [with_kind(each, "TrainJob", ["dataset hf://a"]).pod.annotations for each in (job, native)]
    assert [NOT_DOWNLOADED in each for each in found] == [True, False]


def test_labels_of_the_user_stay() -> None:
    job = labelled(document("PyTorchJob", {"Worker": 1}, metadata={"labels": {"team": "vision"}}))
    assert labels(job)["worker"]["team"] == "vision"


def test_roles_of_tensorflow() -> None:
    found = labels(labelled(document("TFJob", {"Chief": 1, "PS": 2, "Worker": 1})))
    assert {name: each["replica-type"] for name, each in found.items()} == {
        "chief": "chief",
        "ps": "ps",
        "worker": "worker",
    }
    assert [name for name, each in found.items() if "job-role" in each] == ["chief"]
    alone = labels(labelled(document("TFJob", {"Worker": 1})))["worker"]
    assert (alone["operator-name"], alone["job-role"]) == ("tfjob-controller", "master")
    assert "job-role" not in labels(labelled(document("TFJob", {"Worker": 2})))["worker"]


def test_both_operators_of_mpi() -> None:
    counts = {"Launcher": 1, "Worker": 2}
    first = labels(labelled(document("MPIJob", counts)))
    assert (first["launcher"]["replica-type"], first["worker"]["replica-type"]) == ("launcher", "worker")
    second = labels(labelled(document("MPIJob", counts, version="v2beta1")))
    assert {name: each["job-role"] for name, each in second.items()} == {
        "launcher": "launcher",
        "worker": "worker",
    }
    assert second["worker"]["operator-name"] == "mpi-operator"


def test_a_train_job_has_the_labels_of_its_job_set() -> None:
    job = Job(name="mnist", command=("python", "train.py"), framework="torchrun", workers=2)
    made = with_labels(job, {"kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1", "spec": {}})
    assert made.pod.template["metadata"]["labels"] == {
        "jobset.sigs.k8s.io/jobset-name": "mnist",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
    }
