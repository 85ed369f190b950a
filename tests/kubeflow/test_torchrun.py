"""Real torchrun in pods, as manuals call it: a PyTorchJob and a TrainJob without any controller, and the same
TrainJob under Kubeflow's Trainer. The image has PyPI's torch: torchrun wants libuv."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
import yaml
from tests.faults.kubernetes.terminal import Terminal
from tests.kubeflow.calling_torchrun import calling_torchrun
from tests.kubeflow.kinds.test_trainjob import RUNTIME, joined

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SOURCE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: train-src}
data:
  train.py: |
    import os, sys, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    value = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(value)
    # One write a line: the ranks of a pod share a pipe.
    sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} node {os.environ['GROUP_RANK']} "
                     f"sum {value.item():g}\\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
"""
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: trained}
spec:
  runtimeRef: {name: torch-pypi, kind: TrainingRuntime}
  trainer:
    numNodes: 2
    numProcPerNode: 2
    command: [torchrun, /opt/src/train.py]
"""
SAID = [f"rank {rank} of 4 node {rank // 2} sum 10" for rank in range(4)]


def told(output: str) -> list[str]:
    """What the ranks said, without the prefix of their worker; two ranks write to each worker's output."""
    return sorted("rank " + line.partition("rank ")[2] for line in output.splitlines() if "rank " in line)


def runtime(image: str) -> str:
    """Trainer's runtime for the program above."""
    made = yaml.safe_load(textwrap.dedent(RUNTIME))
    made["kind"] = "TrainingRuntime"
    made["metadata"] = {"name": "torch-pypi", "labels": {"trainer.kubeflow.org/framework": "torch"}}
    made["spec"]["mlPolicy"]["torch"] = {}  # processes are the job's: releases since 2.2 know no other place
    job = made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["backoffLimit"] = 0
    container = {
        "name": "node",
        "image": image,
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [{"name": "src", "mountPath": "/opt/src"}],
    }
    job["template"]["spec"] = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "src", "configMap": {"name": "train-src"}}],
    }
    return str(yaml.safe_dump(made))


@pytest.fixture
def pypi(image: Callable[[str], str]) -> str:
    return image("torch-pypi")


def test_a_shell_that_calls_torchrun(terminal: Terminal, pypi: str) -> None:
    """Which pod is node 0, their order of arrival says."""
    volumes = {"/opt/src": "configMap: {name: train-src}"}
    job = calling_torchrun("/opt/src/train.py", pypi, procs=2, volumes=volumes)
    terminal.write("job.yaml", joined(SOURCE, job))
    done = terminal.call("run", "-f", "job.yaml", patience=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert told(done.stdout) == SAID


def test_a_train_job_without_a_controller(terminal: Terminal, pypi: str) -> None:
    terminal.write("job.yaml", joined(SOURCE, runtime(pypi), TRAIN_JOB))
    done = terminal.call("run", "-f", "job.yaml", patience=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert told(done.stdout) == SAID


def test_a_train_job_under_the_trainer(trainer: None, terminal: Terminal, pypi: str) -> None:
    for text in (SOURCE, runtime(pypi), TRAIN_JOB):
        terminal.kubectl.create(yaml.safe_load(text))
    address = f"k8s://{terminal.kubectl.namespace}/trainjob/trained"
    waited = terminal.call("wait", address, patience=300)
    logs = terminal.call("logs", address)
    assert waited.returncode == 0, waited.stderr + logs.stdout[-3000:]
    assert told(logs.stdout) == SAID
