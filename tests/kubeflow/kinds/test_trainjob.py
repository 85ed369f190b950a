"""TrainJobs with their runtime, beside them or elsewhere, as jobs of echelon's."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.frameworks.wiring import environments

from echelon.errors import InvalidJob
from echelon.kubeflow import Manifest, Outside, read_manifest
from echelon.model.job import Job
from echelon.model.meaning import to_job

Read = Callable[[str], Manifest]
JobOf = Callable[[str], Job]

RUNTIME = """
    apiVersion: trainer.kubeflow.org/v1alpha1
    kind: ClusterTrainingRuntime
    metadata: {name: torch-distributed}
    spec:
      mlPolicy:
        numNodes: 1
        torch: {numProcPerNode: auto}
      template:
        spec:
          replicatedJobs:
            - name: node
              template:
                metadata:
                  labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}
                spec:
                  template:
                    spec:
                      containers:
                        - name: node
                          image: pytorch/pytorch:2.9.1
                          env: [{name: A, value: runtime}, {name: B, value: runtime}]
"""
JOB = """
    apiVersion: trainer.kubeflow.org/v1alpha1
    kind: TrainJob
    metadata: {name: mnist}
    spec:
      runtimeRef: {name: torch-distributed}
      trainer:
        numNodes: 3
        image: my/torch:2
        command: [torchrun, train.py]
        args: [--lr, "0.1"]
        env: [{name: B, value: job}]
        resourcesPerNode: {requests: {cpu: 2}}
"""


def joined(*texts: str) -> str:
    return "\n---\n".join(textwrap.dedent(text) for text in texts)


def test_the_job_changes_its_runtimes_template(job_of: JobOf, tmp_path: Path) -> None:
    job = job_of(joined(RUNTIME, JOB))
    assert (job.name, job.framework, job.workers, job.procs) == ("mnist", "torchrun", 3, 1)
    assert (job.command, job.args) == (("torchrun", "train.py"), ("--lr", "0.1"))
    assert job.env == {"A": "runtime", "B": "job", "PET_NPROC_PER_NODE": "auto"}
    assert job.pod.image == "my/torch:2"
    assert job.resources.cpus is not None
    assert job.resources.cpus.request == 2
    for number, env in enumerate(environments(job, tmp_path)):
        assert (env["PET_NNODES"], env["PET_NODE_RANK"]) == ("3", str(number))


def test_the_runtime_decides_what_the_job_leaves_open(read: Read) -> None:
    small = JOB.replace("numNodes: 3", "").replace("image: my/torch:2", "")
    settings = read(joined(RUNTIME.replace("auto", "2"), small)).settings
    assert (settings.workers, settings.procs, settings.image) == (1, 2, "pytorch/pytorch:2.9.1")


def test_a_runtime_is_no_object_that_the_run_needs(read: Read) -> None:
    assert read(joined(JOB, RUNTIME)).objects == ()


def test_the_runtime_may_be_elsewhere(tmp_path: Path) -> None:
    asked = []

    def find(kind: str, name: str) -> Mapping[str, Any]:
        asked.append((kind, name))
        found: Mapping[str, Any] = yaml.safe_load(RUNTIME)
        return found

    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    manifest = read_manifest(file, Outside(find_runtime=find))
    assert manifest is not None
    assert asked == [("ClusterTrainingRuntime", "torch-distributed")]
    assert to_job(manifest.settings, name="x").workers == 3


def test_a_runtime_that_is_nowhere_is_named(read: Read) -> None:
    with pytest.raises(
        InvalidJob, match=r"job.yaml:6: spec.runtimeRef.name: 'torch-distributed' is no Cluster"
    ):
        read(JOB)


def test_what_is_not_honoured_is_listed(read: Read) -> None:
    more = "initializer: {dataset: {storageUri: 's3://x'}}\n      suspend: true\n      trainer:"
    assert read(joined(RUNTIME, JOB.replace("trainer:\n", f"{more}\n", 1))).notes == (
        "spec.initializer: nothing is downloaded before the start",
        "spec.suspend: the run starts as soon as there is room",
    )


def test_a_runtime_for_another_framework_is_refused(read: Read) -> None:
    with pytest.raises(InvalidJob, match=r"spec.mlPolicy.mpi: 'mpi' is no policy that echelon can follow"):
        read(joined(RUNTIME.replace("torch: {numProcPerNode: auto}", "mpi: {}"), JOB))
