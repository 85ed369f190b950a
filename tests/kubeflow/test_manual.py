"""A manual's PyTorchJob, in all three ways: without an operator, under the real one, and on this machine. It
trains, and the model that it writes to its claim comes home.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.faults.kubernetes.terminal import Terminal

Call = Callable[..., subprocess.CompletedProcess[str]]

TRAIN = """\
import argparse, os
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--backend")
parser.add_argument("--dir", default="/data")
options = parser.parse_args()
dist.init_process_group(options.backend)
weight = torch.full((3,), float(dist.get_rank()))
dist.all_reduce(weight)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {weight.tolist()}", flush=True)
if dist.get_rank() == 0:
    torch.save(weight, os.path.join(options.dir, "mnist_cnn.pt"))
dist.barrier()
"""
SAID = [f"rank {rank} of 3: [3.0, 3.0, 3.0]" for rank in range(3)]

JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: mnist
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template: &pod
        spec:
          containers:
            - name: pytorch
              image: IMAGE
              imagePullPolicy: IfNotPresent
              command: [python3, /opt/mnist/train.py]
              args: [--backend, gloo]
              volumeMounts:
                - {name: src, mountPath: /opt/mnist}
                - {name: data, mountPath: /data}
          volumes:
            - name: src
              configMap: {name: mnist-src}
            - name: data
              persistentVolumeClaim: {claimName: mnist-data}
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template: *pod
"""
CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: mnist-data}
spec:
  storageClassName: shared
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Mi}}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: dashboard}
spec: {selector: {app: none}, ports: [{port: 80}]}
"""
VOLUME = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: VOLUME}
spec:
  storageClassName: none
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /mnt/none}
"""
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\nstringData: {key: hidden}\n"


def source_map() -> str:
    lines = "".join(f"    {line}\n" for line in TRAIN.splitlines())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: mnist-src}}\ndata:\n  train.py: |\n{lines}"


def manual(image: str) -> str:
    return "---\n".join([CLAIM, source_map(), JOB.replace("IMAGE", image)])


def is_model(path: Path) -> bool:
    return path.read_bytes()[:2] == b"PK"  # as torch writes one


@pytest.mark.slow
def test_on_this_machine(cli: Call) -> None:
    """The source and the claim are folders; the image is not used, and that is said."""
    Path("job.yaml").write_text(manual("docker.io/my/torch:2"))
    Path("src").mkdir()
    Path("src/train.py").write_text(TRAIN)
    Path("data").mkdir()
    maps = ("--map", "/opt/mnist=./src", "--map", "/data=./data")
    words = ("--", "--backend", "gloo", "--dir", "/data")
    done = cli("run", "-f", "job.yaml", "--on", "local", *maps, *words, patience=240)
    assert done.returncode == 0, done.stderr
    assert sorted(line.partition("] ")[2] for line in done.stdout.splitlines() if "of 3" in line) == SAID
    assert "image docker.io/my/torch:2 is not used" in done.stderr
    assert is_model(Path("data/mnist_cnn.pt"))


def run_in_cluster(terminal: Terminal, *words: str) -> None:
    command = terminal.start("run", "-f", "job.yaml", *words)
    assert command.wait() == 0, command
    assert sorted(line.partition("] ")[2] for line in command.lines if "of 3" in line) == SAID
    copied = terminal.call("cp", "pvc:mnist-data/mnist_cnn.pt", "home.pt", "--image", terminal.image)
    assert copied.returncode == 0, copied.stderr
    assert is_model(terminal.folder / "home.pt")
    (terminal.folder / "home.pt").unlink()
    assert terminal.call("rm", "mnist").returncode == 0
    assert terminal.kubectl.find("persistentvolumeclaim", "mnist-data"), "it is the user's"
    terminal.kubectl("delete", "persistentvolumeclaim", "mnist-data", "--wait=true")


@pytest.mark.cluster
@pytest.mark.slow
def test_without_an_operator(terminal: Terminal, image: Callable[[str], str]) -> None:
    terminal.write("job.yaml", manual(image("torch")))
    run_in_cluster(terminal)


@pytest.mark.cluster
@pytest.mark.slow
def test_under_the_operator(operator: None, terminal: Terminal, image: Callable[[str], str]) -> None:
    terminal.write("job.yaml", manual(image("torch")))
    run_in_cluster(terminal, "--as", "pytorchjob", "--replace")


@pytest.fixture
def elsewhere(namespace: Kubectl) -> Iterator[str]:
    """A name for a namespace and a volume that only the file makes; both go with the test."""
    name = f"{namespace.namespace}-manual"
    yield name
    for kind in ("namespace", "persistentvolume"):
        namespace("delete", kind, name, "--ignore-not-found", "--wait=false")


@pytest.mark.cluster
@pytest.mark.slow
def test_every_document_of_a_manual_is_made_where_it_is_absent_and_kept(
    terminal: Terminal, elsewhere: str
) -> None:
    job = JOB.replace("IMAGE", terminal.image).replace("/opt/mnist/train.py", "-c, print(1)")
    job = job.replace("name: mnist\n", f"name: mnist\n  namespace: {elsewhere}\n")
    space = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {elsewhere}}}\n"
    volume = VOLUME.replace("VOLUME", elsewhere)
    documents = [volume, CLAIM, source_map(), SECRET, SERVICE, job, space]
    terminal.write("job.yaml", "---\n".join(documents))
    there = terminal.kubectl.within(elsewhere)
    preview = terminal.call("run", "-f", "job.yaml", "--dry-run")
    assert preview.returncode == 0, preview.stderr
    named = [
        f"Namespace {elsewhere}",
        f"PersistentVolume {elsewhere}",
        "PersistentVolumeClaim mnist-data",
        "ConfigMap mnist-src",
        "Secret token",
        "Service dashboard",
    ]
    assert all(f"{each}: would be created" in preview.stderr for each in named), preview.stderr
    assert terminal.kubectl.find("namespace", elsewhere) is None

    command = terminal.start("run", "-f", "job.yaml")
    assert command.wait() == 0, command
    assert all(f"{each}: created" in command.said for each in named), command
    assert "hidden" not in command.said
    again = terminal.call("run", "-f", "job.yaml", "--dry-run", "--name", "other")
    assert f"Namespace {elsewhere}: is there already, and stays as it is" in again.stderr, again.stderr
    done = terminal.call("rm", f"k8s://{elsewhere}/mnist")
    assert done.returncode == 0, done.stderr
    for each in named[2:]:
        kind, name = each.split()
        assert there.find(kind.lower(), name), each
