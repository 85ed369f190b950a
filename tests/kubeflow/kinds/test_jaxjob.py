"""JAXJobs in the style of manuals, as jobs of echelon's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.frameworks.wiring import environments

from echelon.errors import InvalidJob
from echelon.kubeflow import Manifest
from echelon.kubeflow.labels import with_labels
from echelon.model.job import Job
from echelon.model.meaning import to_job

Read = Callable[[str], Manifest]
JobOf = Callable[[str], Job]

SIMPLE = """
    apiVersion: kubeflow.org/v1
    kind: JAXJob
    metadata: {name: simple}
    spec:
      runPolicy: {activeDeadlineSeconds: 600}
      jaxReplicaSpecs:
        Worker:
          replicas: 3
          restartPolicy: Never
          template:
            spec:
              containers:
                - name: jax
                  image: my/jax:0.10
                  command: [python3, train.py, "--id=$(PROCESS_ID)"]
                  resources: {limits: {nvidia.com/gpu: 2}}
"""


def test_every_pod_is_a_process_of_jax(job_of: JobOf, tmp_path: Path) -> None:
    job = job_of(SIMPLE)
    assert (job.framework, job.workers, job.procs, job.resources.gpus, job.timeout) == ("jax", 3, 1, 2, 600)
    assert job.command == ("sh", "-c", 'exec python3 train.py --id="${PROCESS_ID}"')
    for number, env in enumerate(environments(job, tmp_path)):
        assert (env["NUM_PROCESSES"], env["PROCESS_ID"]) == ("3", str(number))
        assert (env["COORDINATOR_ADDRESS"], env["COORDINATOR_PORT"]) == ("10.0.0.1", "1")
        assert env["JAX_LOCAL_DEVICE_IDS"] == "0,1"


def test_its_pods_have_kubeflows_labels(read: Read) -> None:
    manifest = read(SIMPLE)
    job = with_labels(to_job(manifest.settings, name="x"), manifest.document)
    labels = job.pod.template["metadata"]["labels"]
    assert labels["training.kubeflow.org/operator-name"] == "jaxjob-controller"
    assert labels["training.kubeflow.org/replica-type"] == "worker"


def test_what_it_does_not_have_is_refused(read: Read) -> None:
    with pytest.raises(InvalidJob, match=r"jaxReplicaSpecs.Master: 'Master' is not a replica type .*Worker"):
        read(SIMPLE.replace("Worker:", "Master:"))
    with pytest.raises(InvalidJob, match="has no container named jax"):
        read(SIMPLE.replace("name: jax\n", "name: main\n"))
