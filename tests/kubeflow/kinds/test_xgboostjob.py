"""XGBoostJobs in the style of manuals, as jobs of echelon's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.frameworks.wiring import environments

from echelon.kubeflow import Manifest
from echelon.kubeflow.labels import with_labels
from echelon.model.job import Job
from echelon.model.meaning import to_job

Read = Callable[[str], Manifest]
JobOf = Callable[[str], Job]

POD = """
          restartPolicy: Never
          template:
            spec:
              containers:
                - name: xgboost
                  image: my/xgboost:3
                  command: [python3, train.py]
"""
TREES = f"""
    apiVersion: kubeflow.org/v1
    kind: XGBoostJob
    metadata: {{name: trees}}
    spec:
      xgbReplicaSpecs:
        Master:
          replicas: 1{POD}
        Worker:
          replicas: 2{POD}
"""


def test_master_and_workers_are_one_gang(job_of: JobOf, tmp_path: Path) -> None:
    job = job_of(TREES)
    assert (job.framework, job.workers, job.procs, job.roles) == ("xgboost", 3, 1, ())
    for number, env in enumerate(environments(job, tmp_path)):
        assert (env["RANK"], env["WORLD_SIZE"], env["DMLC_TASK_ID"]) == (str(number), "3", str(number))
        assert (env["MASTER_ADDR"], env["DMLC_TRACKER_URI"]) == ("10.0.0.1", "10.0.0.1")


def test_a_master_that_differs_is_the_chief(job_of: JobOf, tmp_path: Path) -> None:
    job = job_of(TREES.replace("[python3, train.py]", "[python3, lead.py]", 1))
    assert [(role.name, role.command) for role in job.roles] == [("chief", ("python3", "lead.py"))]
    assert [env["DMLC_TASK_ID"] for env in environments(job, tmp_path)] == ["0", "1", "2"]


def test_its_pods_have_kubeflows_labels(read: Read) -> None:
    manifest = read(TREES)
    job = with_labels(to_job(manifest.settings, name="x"), manifest.document)
    (master,) = job.roles
    of = "training.kubeflow.org/"
    labels = master.template["metadata"]["labels"]
    assert (labels[f"{of}operator-name"], labels[f"{of}job-role"]) == ("xgboostjob-controller", "master")
    assert job.pod.template["metadata"]["labels"][f"{of}replica-type"] == "worker"
