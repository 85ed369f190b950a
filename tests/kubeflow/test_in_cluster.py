"""A manual's YAML in a real cluster, without any operator: its ConfigMap is made, its pods are ours."""

from __future__ import annotations

import pytest
from tests.faults.kubernetes.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MANUAL = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: mnist-src
data:
  train.py: |
    import os, sys
    from pathlib import Path
    names = ("RANK", "WORLD_SIZE", "PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE", "TEAM", "SECRET")
    print(*(os.environ[name] for name in names), *sys.argv[1:], Path.cwd(), flush=True)
    Path(os.environ["ECHELON_OUTPUT"], "model.pt").write_text("trained")
---
apiVersion: v1
kind: Secret
metadata:
  name: token
stringData:
  key: hidden
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: mnist
spec:
  runPolicy:
    cleanPodPolicy: None
  pytorchReplicaSpecs:
    Master: &replica
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata:
          annotations:
            sidecar.istio.io/inject: "false"
        spec:
          containers:
            - name: pytorch
              image: IMAGE
              workingDir: /opt/mnist/src
              command: [python3, train.py]
              args: ["--rank=$(RANK)", "--team=$(TEAM)"]
              env:
                - {name: TEAM, value: vision}
                - {name: SECRET, valueFrom: {secretKeyRef: {name: token, key: key}}}
              volumeMounts:
                - {name: src, mountPath: /opt/mnist/src}
              resources: {limits: {cpu: 100m, memory: 128Mi}}
          volumes:
            - name: src
              configMap: {name: mnist-src, defaultMode: 0755}
    Worker: *replica
"""


@pytest.mark.core
def test_a_manuals_yaml_runs_without_an_operator(terminal: Terminal) -> None:
    terminal.write("job.yaml", MANUAL.replace("IMAGE", terminal.image))
    preview = terminal.call("run", "-f", "job.yaml", "--dry-run")
    assert preview.returncode == 0, preview.stderr
    assert "ConfigMap mnist-src: would be created" in preview.stderr
    assert "mnist-src" not in terminal.kubectl("get", "configmaps", "-o", "name")

    command = terminal.start("run", "-f", "job.yaml")
    assert command.wait() == 0, command
    assert "spec.runPolicy.cleanPodPolicy: the pods end with the run" in command.said
    assert "ConfigMap mnist-src: created" in command.said
    assert sorted(line for line in command.lines if "vision" in line) == [
        f"[{rank}] {rank} 2 {rank} 2 auto vision hidden --rank={rank} --team=vision /opt/mnist/src"
        for rank in (0, 1)
    ]
    label = "training.kubeflow.org"
    for replica_type, role in (("master", "master"), ("worker", None)):
        chosen = f"{label}/job-name=mnist,{label}/replica-type={replica_type},{label}/replica-index=0"
        (pod,) = terminal.kubectl.items("pods", "-l", chosen)
        assert pod["metadata"]["labels"].get(f"{label}/job-role") == role
    conditions = terminal.status("mnist")["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [
        ("Created", "True"),
        ("Running", "False"),
        ("Succeeded", "True"),
    ]
    assert terminal.read("mnist", "model.pt") == "trained"
    done = terminal.call("rm", "mnist")
    assert done.returncode == 0, done.stderr
    assert "mnist-src" in terminal.kubectl("get", "configmaps", "-o", "name"), "it is the user's"
