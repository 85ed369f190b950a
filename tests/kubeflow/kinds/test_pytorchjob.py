"""PyTorchJobs in the style of manuals, as jobs of echelon's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.frameworks.wiring import environments

from echelon.kubeflow import Manifest, Outside, read_manifest
from echelon.model.job import Job
from echelon.model.pods.pod import Mount
from echelon.model.resources import Amount, Resources

Read = Callable[[str], Manifest]
JobOf = Callable[[str], Job]

MNIST = """
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata:
      name: mnist
      namespace: training
      labels: {team: vision}
    spec:
      runPolicy:
        activeDeadlineSeconds: 3600
        ttlSecondsAfterFinished: 600
        backoffLimit: 3
      pytorchReplicaSpecs:
        Master:
          replicas: 1
          restartPolicy: OnFailure
          template: &pod
            metadata:
              annotations: {sidecar.istio.io/inject: "false"}
            spec:
              containers:
                - name: pytorch
                  image: docker.io/my/torch:2.9
                  command: [python, /opt/mnist/src/mnist.py]
                  args: ["--epochs", "3", "--data=$(DATA)/train"]
                  env:
                    - {name: DATA, value: /data}
                    - {name: LIST, value: "$(DATA)/list, not $(RANK), $$(DATA)"}
                  resources:
                    requests: {cpu: 500m}
                    limits: {cpu: 2, memory: 4Gi, nvidia.com/gpu: 1}
                  volumeMounts:
                    - {name: data, mountPath: /data, subPath: mnist, readOnly: true}
                    - {name: scripts, mountPath: /opt/mnist/src}
                    - {name: dshm, mountPath: /dev/shm}
              volumes:
                - name: data
                  persistentVolumeClaim: {claimName: mnist-data}
                - name: scripts
                  configMap: {name: mnist-src, defaultMode: 0755}
                - name: dshm
                  emptyDir: {medium: Memory, sizeLimit: 2Gi}
        Worker:
          replicas: 4
          restartPolicy: OnFailure
          template: *pod
"""


def test_a_master_and_four_workers_are_five_workers(job_of: JobOf) -> None:
    job = job_of(MNIST)
    assert (job.name, job.framework, job.workers, job.procs, job.roles) == ("mnist", "torchrun", 5, 1, ())
    assert job.command == ("python", "/opt/mnist/src/mnist.py")
    assert job.args == ("--epochs", "3", "--data=/data/train")
    assert (job.restarts, job.timeout, job.pod.ttl) == (3, 3600, 600)
    assert job.pod.image == "docker.io/my/torch:2.9"
    assert job.pod.labels == {"team": "vision"}
    assert job.resources == Resources(
        gpus=1, cpus=Amount(request=0.5, limit=2), memory=Amount(request=4 * 2**30, limit=4 * 2**30)
    )


def test_variables_are_filled_in_as_kubernetes_does(job_of: JobOf) -> None:
    """Of variables, only those before count, and the operator's come last; a doubled dollar sign is one."""
    assert job_of(MNIST).env == {
        "DATA": "/data",
        "LIST": "/data/list, not $(RANK), $(DATA)",
        "PET_NPROC_PER_NODE": "auto",
    }


def test_volumes_are_mounts_where_a_mount_can_say_it(job_of: JobOf) -> None:
    job = job_of(MNIST)
    assert job.pod.mounts == (Mount(kind="pvc", source="mnist-data/mnist", path="/data", read_only=True),)
    assert job.pod.shm == 2 * 2**30
    assert job.pod.template == {
        "spec": {
            "containers": [
                {"name": "worker", "volumeMounts": [{"name": "scripts", "mountPath": "/opt/mnist/src"}]}
            ],
            "volumes": [{"name": "scripts", "configMap": {"name": "mnist-src", "defaultMode": 0o755}}],
        }
    }


def test_nothing_is_left_to_say_of_a_manifest_that_is_honoured(read: Read) -> None:
    assert read(MNIST).notes == ()


def test_the_namespace_is_the_manifests(read: Read) -> None:
    assert read(MNIST).settings.namespace == "training"


DIFFERENT = """
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata: {name: differ}
    spec:
      nprocPerNode: "2"
      pytorchReplicaSpecs:
        master:
          template:
            spec:
              containers:
                - name: pytorch
                  image: my/torch:1
                  command: [bash, -c]
                  args: ["torchrun --rdzv_id ${PET_RDZV_ID} --nnodes $PET_NNODES train.py"]
                  env: [{name: ROLE, value: master}]
        worker:
          replicas: 2
          template:
            spec:
              nodeSelector: {disk: ssd}
              containers:
                - name: pytorch
                  image: my/torch:2
                  command: [torchrun, train.py]
"""


def test_a_master_that_differs_is_a_chief(job_of: JobOf, tmp_path: Path) -> None:
    job = job_of(DIFFERENT)
    (chief,) = job.roles
    assert (chief.name, chief.workers, chief.image, chief.env) == (
        "chief",
        1,
        "my/torch:1",
        {"ROLE": "master"},
    )
    assert chief.command == ("bash", "-c")
    assert job.command == ("torchrun", "train.py")
    assert job.pod.template == {"spec": {"nodeSelector": {"disk": "ssd"}}}
    assert chief.template, "an empty template would mean the workers'"
    assert "spec" not in chief.template


def test_every_variable_of_torchrun_is_there(job_of: JobOf, tmp_path: Path) -> None:
    """As under Kubeflow's controller: RANK is the pod's, WORLD_SIZE counts processes."""
    found = environments(job_of(DIFFERENT), tmp_path)
    assert [env["RANK"] for env in found] == [env["PET_NODE_RANK"] for env in found] == ["0", "1", "2"]
    expected = {
        "MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "WORLD_SIZE": "6",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "2",
        "PYTHONUNBUFFERED": "1",
    }
    for env in found:
        assert {name: env[name] for name in expected} == expected
        assert env["MASTER_PORT"] == env["PET_MASTER_PORT"]
        assert env["PET_RDZV_ENDPOINT"] == f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"


ELASTIC = """
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata: {name: elastic}
    spec:
      elasticPolicy:
        rdzvBackend: c10d
        minReplicas: 1
        maxReplicas: 3
        maxRestarts: 100
        rdzvConf: [{key: timeout, value: "60"}, {key: join_timeout, value: "30"}]
        metrics: [{type: Resource}]
      pytorchReplicaSpecs:
        Worker:
          replicas: 2
          restartPolicy: Never
          template:
            spec:
              containers:
                - name: pytorch
                  image: my/torch:2
                  command: [torchrun, --rdzv_id, $(PET_RDZV_ID), train.py]
"""


def test_an_elastic_job_keeps_its_size_and_has_its_rendezvous(
    read: Read, job_of: JobOf, tmp_path: Path
) -> None:
    assert read(ELASTIC).notes == (
        "spec.elasticPolicy: the run keeps its 2 workers: sizes are not elastic",
        "spec.elasticPolicy.metrics: sizes are not elastic",
    )
    job = job_of(ELASTIC)
    assert job.command == ("sh", "-c", 'exec torchrun --rdzv_id "${PET_RDZV_ID}" train.py')
    for env in environments(job, tmp_path):
        assert env["PET_RDZV_ID"] == "elastic"
        assert env["PET_RDZV_BACKEND"] == "c10d"
        assert env["PET_RDZV_CONF"] == "timeout=60,join_timeout=30"
        assert env["PET_MAX_RESTARTS"] == "100"
        assert env["PET_NNODES"] == "2"


def test_what_is_not_honoured_is_listed_with_its_path(read: Read) -> None:
    manifest = read(
        """
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata:
          name: listed
          labels: {kueue.x-k8s.io/queue-name: gpus}
        spec:
          runPolicy: {cleanPodPolicy: None, suspend: true, schedulingPolicy: {minAvailable: 2, queue: q}}
          pytorchReplicaSpecs:
            Worker:
              template:
                spec:
                  terminationGracePeriodSeconds: 120
                  affinity: {nodeAffinity: {}}
                  containers:
                    - name: pytorch
                      image: my/torch:2
                      imagePullPolicy: Never
                      command: [python, train.py]
                      securityContext: {privileged: true}
        """
    )
    paths = {note.partition(": ")[0] for note in manifest.notes}
    pod = "spec.pytorchReplicaSpecs.Worker.template.spec"
    assert paths == {
        f"{pod}.affinity.nodeAffinity",
        f"{pod}.containers[0].imagePullPolicy",
        f"{pod}.containers[0].securityContext.privileged",
        "metadata.labels.kueue.x-k8s.io/queue-name",
        "restartPolicy",
        "spec.runPolicy.cleanPodPolicy",
        "spec.runPolicy.schedulingPolicy.minAvailable",
        "spec.runPolicy.schedulingPolicy.queue",
        "spec.runPolicy.suspend",
    }


def test_all_else_goes_through_in_the_pod_template(job_of: JobOf) -> None:
    job = job_of(
        """
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata: {generateName: through-}
        spec:
          pytorchReplicaSpecs:
            Worker:
              restartPolicy: Never
              template:
                metadata: {labels: {app: mnist}}
                spec:
                  hostNetwork: true
                  tolerations: [{key: gpu, operator: Exists}]
                  initContainers:
                    - {name: fetch, image: busybox, volumeMounts: [{name: work, mountPath: /w}]}
                  containers:
                    - {name: side, image: my/side:1}
                    - name: pytorch
                      image: my/torch
                      workingDir: /app
                      command: [python, train.py, --token, $(TOKEN)]
                      env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}]
                      volumeMounts: [{name: work, mountPath: /work}]
                  volumes: [{name: work, emptyDir: {}}]
        """
    )
    assert job.name == "unnamed"
    assert job.pod.pull == "always", "no tag means latest, which Kubernetes always pulls"
    assert job.command == ("sh", "-c", 'exec python train.py --token "${TOKEN}"')
    spec = job.pod.template["spec"]
    assert job.pod.template["metadata"] == {"labels": {"app": "mnist"}}
    assert (spec["hostNetwork"], spec["tolerations"]) == (True, [{"key": "gpu", "operator": "Exists"}])
    worker, side = spec["containers"]
    assert (worker["name"], worker["workingDir"], side["name"]) == ("worker", "/app", "side")
    assert worker["env"] == [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    # The pods of echelon have a volume of that name.
    assert spec["volumes"] == [{"name": "their-work", "emptyDir": {}}]
    assert worker["volumeMounts"] == [{"name": "their-work", "mountPath": "/work"}]
    assert spec["initContainers"][0]["volumeMounts"] == [{"name": "their-work", "mountPath": "/w"}]


@pytest.mark.parametrize(("given", "procs", "says"), [("auto", 1, "auto"), ("gpu", 1, "gpu"), (4, 4, "4")])
def test_processes_per_node(job_of: JobOf, tmp_path: Path, given: object, procs: int, says: str) -> None:
    job = job_of(MNIST.replace("runPolicy:", f"nprocPerNode: {given}\n      runPolicy:"))
    assert job.procs == procs
    for env in environments(job, tmp_path):
        assert (env["PET_NPROC_PER_NODE"], env["WORLD_SIZE"]) == (says, str(5 * procs))


ARGS_ALONE = """
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata: {name: args}
    spec:
      pytorchReplicaSpecs:
        Master:
          restartPolicy: Never
          template: &pod
            spec:
              containers: [{name: pytorch, image: my/mnist, args: [--backend, gloo]}]
        Worker:
          replicas: 3
          template: *pod
"""


@pytest.mark.parametrize(
    ("args", "command", "left"),
    [
        (", args: [--backend, gloo]", ("python", "/opt/mnist.py"), ("--backend", "gloo")),
        ("", ("python", "/opt/mnist.py"), ("--epochs", "1")),
    ],
)
def test_without_a_command_the_image_decides(
    tmp_path: Path, args: str, command: tuple[str, ...], left: tuple[str, ...]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(ARGS_ALONE.replace(", args: [--backend, gloo]", args))
    asked = []

    def start(image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        asked.append(image)
        return ("python", "/opt/mnist.py"), ("--epochs", "1")

    manifest = read_manifest(file, Outside(find_start=start))
    assert manifest is not None
    assert (manifest.settings.command, manifest.settings.args) == (command, left)
    assert set(asked) == {"my/mnist"}


def test_yamls_merge_keys_are_read_as_kubernetes_does(job_of: JobOf) -> None:
    text = MNIST.replace(
        "replicas: 4\n          restartPolicy: OnFailure\n          template: *pod", "<<: *master"
    )
    text = text.replace("Master:\n", "Master: &master\n").replace(
        "<<: *master", "<<: *master\n          replicas: 2"
    )
    assert job_of(text).workers == 3


def test_variables_and_volumes_of_every_kind(job_of: JobOf) -> None:
    job = job_of(
        """
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata: {name: kinds}
        spec:
          pytorchReplicaSpecs:
            Worker:
              replicas: 2
              restartPolicy: Never
              template:
                spec:
                  nodeSelector: {disk: ssd}
                  containers:
                    - name: pytorch
                      image: my/torch:2
                      command: [python, train.py, --token=$(TOKEN)]
                      envFrom: [{secretRef: {name: tokens}}, {configMapRef: {name: options}}]
                      volumeMounts:
                        - {name: host, mountPath: /host}
                        - {name: keys, mountPath: /keys}
                        - {name: scratch, mountPath: /scratch}
                        - {name: options, mountPath: /options}
                  volumes:
                    - {name: host, hostPath: {path: /mnt/host}}
                    - {name: keys, secret: {secretName: keys}}
                    - {name: scratch, emptyDir: {}}
                    - {name: options, configMap: {name: options}}
        """
    )
    assert [(each.kind, each.source, each.path) for each in job.pod.mounts] == [
        ("hostPath", "/mnt/host", "/host"),
        ("secret", "keys", "/keys"),
        ("emptydir", "", "/scratch"),
        ("configmap", "options", "/options"),
    ]
    assert job.command == ("sh", "-c", 'exec python train.py --token="${TOKEN}"'), "known in the pod alone"
    spec = job.pod.template["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["containers"][0]["envFrom"] == [
        {"secretRef": {"name": "tokens"}},
        {"configMapRef": {"name": "options"}},
    ]
