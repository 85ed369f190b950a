"""Real torchrun in pods, as manuals call it: a PyTorchJob and a TrainJob without any controller, and the same
TrainJob under Kubeflow's Trainer. The image has PyPI's torch: torchrun wants libuv."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from tests.faults.kubernetes.terminal import Terminal

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
PYTORCH_JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: elastic}
spec:
  nprocPerNode: "2"
  elasticPolicy: {rdzvBackend: c10d}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: IMAGE
              command: [sh, -c]
              args:
                - >-
                  torchrun --rdzv_id ${PET_RDZV_ID} --rdzv_backend ${PET_RDZV_BACKEND}
                  --rdzv_endpoint ${PET_RDZV_ENDPOINT} --nnodes ${PET_NNODES}
                  --nproc_per_node ${PET_NPROC_PER_NODE} /opt/src/train.py
              env: [{name: OMP_NUM_THREADS, value: "1"}]
              volumeMounts: [{name: src, mountPath: /opt/src}]
          volumes: [{name: src, configMap: {name: train-src}}]
"""
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata:
  name: torch-pypi
  labels: {trainer.kubeflow.org/framework: torch}
spec:
  mlPolicy:
    numNodes: 1
    torch: {numProcPerNode: 2}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata:
              labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}
            spec:
              backoffLimit: 0
              template:
                spec:
                  restartPolicy: Never
                  containers:
                    - name: node
                      image: IMAGE
                      env: [{name: OMP_NUM_THREADS, value: "1"}]
                      volumeMounts: [{name: src, mountPath: /opt/src}]
                  volumes: [{name: src, configMap: {name: train-src}}]
"""
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: trained}
spec:
  runtimeRef: {name: torch-pypi, kind: TrainingRuntime}
  trainer:
    numNodes: 2
    command: [torchrun, /opt/src/train.py]
"""
SAID = [f"rank {rank} of 4 node {rank // 2} sum 10" for rank in range(4)]


def told(output: str) -> list[str]:
    """What the ranks said, without the prefix of their worker; two ranks write to each worker's output."""
    return sorted("rank " + line.partition("rank ")[2] for line in output.splitlines() if "rank " in line)


@pytest.fixture
def pypi(image: Callable[[str], str]) -> str:
    return image("torch-pypi")


def test_a_shell_that_calls_torchrun(terminal: Terminal, pypi: str) -> None:
    """Which pod is node 0, their order of arrival says."""
    terminal.write("job.yaml", "---\n".join((SOURCE, PYTORCH_JOB.replace("IMAGE", pypi))))
    done = terminal.call("run", "-f", "job.yaml", patience=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert told(done.stdout) == SAID


def test_a_train_job_without_a_controller(terminal: Terminal, pypi: str) -> None:
    terminal.write("job.yaml", "---\n".join((SOURCE, RUNTIME.replace("IMAGE", pypi), TRAIN_JOB)))
    done = terminal.call("run", "-f", "job.yaml", patience=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert told(done.stdout) == SAID


def test_a_train_job_under_the_trainer(trainer: None, terminal: Terminal, pypi: str) -> None:
    for text in (SOURCE, RUNTIME.replace("IMAGE", pypi), TRAIN_JOB):
        terminal.kubectl.create(yaml.safe_load(text))
    address = f"k8s://{terminal.kubectl.namespace}/trainjob/trained"
    waited = terminal.call("wait", address, patience=300)
    logs = terminal.call("logs", address)
    assert waited.returncode == 0, waited.stderr + logs.stdout[-3000:]
    assert told(logs.stdout) == SAID
