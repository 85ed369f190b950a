"""TFJobs in the style of manuals, as jobs of echelon's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.frameworks.wiring import environments

from echelon.kubeflow import Manifest
from echelon.model.job import Job

Read = Callable[[str], Manifest]
JobOf = Callable[[str], Job]

POD = """
          restartPolicy: Never
          template:
            spec:
              containers:
                - name: tensorflow
                  image: my/tf:2.19
                  command: [python, /app/dist_mnist.py]
"""
DIST_MNIST = f"""
    apiVersion: kubeflow.org/v1
    kind: TFJob
    metadata: {{name: dist-mnist}}
    spec:
      tfReplicaSpecs:
        PS:
          replicas: 2{POD}
        Worker:
          replicas: 3{POD}
"""


def test_parameter_servers_are_a_role(job_of: JobOf, tmp_path: Path) -> None:
    job = job_of(DIST_MNIST)
    assert (job.framework, job.workers, job.procs) == ("tensorflow", 3, 1)
    (ps,) = job.roles
    assert (ps.name, ps.workers, ps.command, ps.image) == ("ps", 2, (), None)
    configs = [json.loads(env["TF_CONFIG"]) for env in environments(job, tmp_path)]
    assert {name: len(members) for name, members in configs[0]["cluster"].items()} == {"worker": 3, "ps": 2}
    assert {each["environment"] for each in configs} == {"cloud"}, "as Kubeflow's controller writes it"
    assert [(each["task"]["type"], each["task"]["index"]) for each in configs] == [
        ("worker", 0),
        ("worker", 1),
        ("worker", 2),
        ("ps", 0),
        ("ps", 1),
    ]


def test_a_master_is_the_chief(job_of: JobOf, tmp_path: Path) -> None:
    job = job_of(DIST_MNIST.replace("PS:\n          replicas: 2", "Master:\n          replicas: 1"))
    assert [role.name for role in job.roles] == ["chief"]
    configs = [json.loads(env["TF_CONFIG"]) for env in environments(job, tmp_path)]
    assert configs[0]["task"] == {"type": "chief", "index": 0}


def test_a_job_of_one_replica_needs_no_cluster(job_of: JobOf, tmp_path: Path) -> None:
    alone = DIST_MNIST.replace("PS:\n          replicas: 2", "Chief:\n          replicas: 1")
    job = job_of(alone.replace("replicas: 3", "replicas: 0"))
    assert (job.workers, job.roles) == (1, ())
    (env,) = environments(job, tmp_path)
    assert "TF_CONFIG" not in env


def test_what_is_not_honoured_is_listed(read: Read) -> None:
    more = "enableDynamicWorker: true\n      successPolicy: AllWorkers\n      tfReplicaSpecs:"
    assert read(DIST_MNIST.replace("tfReplicaSpecs:", more)).notes == (
        "spec.enableDynamicWorker: the run keeps its number of workers",
    )
