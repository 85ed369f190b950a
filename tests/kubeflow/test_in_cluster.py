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


def test_a_run_that_is_refused_since_its_name_is_in_use_has_changed_nothing(terminal: Terminal) -> None:
    terminal.write("job.yaml", MANUAL.replace("IMAGE", terminal.image))
    started = terminal.call("run", "-d", "-f", "job.yaml")
    assert started.returncode == 0, started.stderr

    def content() -> list[object]:
        found = [terminal.kubectl.find(*each) for each in (("configmap", "mnist-src"), ("secret", "token"))]
        return [each["data"] if each is not None else None for each in found]

    before = content()
    other = MANUAL.replace("IMAGE", terminal.image).replace("trained", "spoiled").replace("hidden", "shown")
    terminal.write("other.yaml", f"{other}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: more}}\n")
    refused = terminal.call("run", "-f", "other.yaml")
    assert refused.returncode == 112, refused.stderr
    assert content() == before
    assert terminal.kubectl.find("secret", "more") is None
    waited = terminal.call("wait", "mnist")
    assert waited.returncode == 0, waited.stderr
    replaced = terminal.call("run", "--replace", "-f", "other.yaml")
    assert replaced.returncode == 0, replaced.stderr
    assert "ConfigMap mnist-src: its content is replaced" in replaced.stderr
    assert terminal.read("mnist", "model.pt") == "spoiled"
    assert terminal.kubectl.find("secret", "more") is not None


RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mine}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            spec: {template: {spec: {containers: [{name: node, image: IMAGE}]}}}
"""
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: patched}
spec:
  runtimeRef: {name: mine, kind: TrainingRuntime}
  trainer: {numNodes: 2, command: [python3, /opt/mnist/src/train.py], env: [{name: TEAM, value: a}]}
  runtimePatches:
    - manager: me
      trainingRuntimeSpec:
        template:
          spec:
            replicatedJobs:
              - name: node
                template:
                  spec:
                    template:
                      spec:
                        volumes: [{name: src, configMap: {name: mnist-src}}]
                        containers:
                          - {name: node, volumeMounts: [{name: src, mountPath: /opt/mnist/src}]}
"""
LAUNCHER = """\
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: hosts}
spec:
  slotsPerWorker: 2
  mpiReplicaSpecs:
    Launcher:
      template: &pod
        spec:
          securityContext: {runAsUser: 1234}
          containers:
            - {name: a, image: IMAGE, command: [sh, -c, "/etc/mpi/discover_hosts.sh; cat /etc/mpi/hostfile"]}
    Worker: {replicas: 2, template: *pod}
"""


def test_a_job_its_runtime_and_its_config_map_in_files_of_their_own(terminal: Terminal) -> None:
    """The script comes with a volume of `runtimePatches`; no kind of Trainer's is in the cluster."""
    config = MANUAL.partition("---")[0].replace('"SECRET"', '"TEAM"')
    for name, text in (("config", config), ("job", TRAIN_JOB), ("runtime", RUNTIME)):
        terminal.write(f"{name}.yaml", text.replace("IMAGE", terminal.image))
    command = terminal.start("run", "-f", "config.yaml", "-f", "job.yaml", "-f", "runtime.yaml")
    assert command.wait() == 0, command
    assert len([line for line in command.lines if " auto a " in line]) == 2
    chosen = "jobset.sigs.k8s.io/jobset-name=patched,jobset.sigs.k8s.io/replicatedjob-name=node"
    assert len(terminal.kubectl.items("pods", "-l", chosen)) == 2
    assert [each["type"] for each in terminal.status("patched")["conditions"]] == ["Complete"]


def test_a_launcher_finds_its_hosts_in_etc_mpi_whatever_its_user(terminal: Terminal) -> None:
    terminal.write("job.yaml", LAUNCHER.replace("IMAGE", terminal.image))
    command = terminal.start("run", "-f", "job.yaml")
    assert command.wait() == 0, command
    lines = [line.partition("] ")[2] or line for line in command.lines]
    assert lines == ["worker-1:2", "worker-2:2", "worker-1 slots=2", "worker-2 slots=2"]
