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
from echelon.kubeflow.kinds import trainjob
from echelon.model.job import Job
from echelon.model.meaning import to_job
from testbed import modules

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
        InvalidJob, match=r"job.yaml:6: spec.runtimeRef.name: 'torch-distributed' is not a Cluster"
    ):
        read(JOB)


def test_what_is_not_honoured_is_listed(read: Read) -> None:
    more = "initializer: {dataset: {storageUri: 's3://x'}}\n      suspend: true\n      trainer:"
    assert read(joined(RUNTIME, JOB.replace("trainer:\n", f"{more}\n", 1))).notes == (
        "spec.initializer.dataset: s3://x is not downloaded; a volume at /workspace/dataset can hold it",
        "spec.suspend: the run starts as soon as there is room",
    )


def test_a_runtime_for_another_framework_is_refused(read: Read) -> None:
    with pytest.raises(InvalidJob, match=r"spec.mlPolicy.mpi: 'mpi' is not a policy that echelon can follow"):
        read(joined(RUNTIME.replace("torch: {numProcPerNode: auto}", "mpi: {}"), JOB))


@pytest.mark.parametrize(("policy", "name"), [("jax", "JAX_PROCESS_ID"), ("xgboost", "DMLC_TASK_ID")])
def test_policies_of_other_frameworks(job_of: JobOf, tmp_path: Path, policy: str, name: str) -> None:
    runtime = RUNTIME.replace("torch: {numProcPerNode: auto}", f"{policy}: {{}}")
    job = job_of(joined(runtime, JOB.replace('[--lr, "0.1"]', f'["--id=$({name})"]')))
    assert (job.framework, job.workers, job.procs) == (policy, 3, 1)
    assert job.command[:2] == ("sh", "-c"), "it is filled in when a worker starts"
    assert [env[name] for env in environments(job, tmp_path)] == ["0", "1", "2"]
    assert "PET_NPROC_PER_NODE" not in job.env


PATCH = """
        volumes: [{name: data, persistentVolumeClaim: {claimName: datasets}}]
        nodeSelector: {pool: a100}
        serviceAccountName: trainer
        tolerations: [{key: gpu, operator: Exists}]
        containers:
          - name: node
            volumeMounts: [{name: data, mountPath: /data}]
"""
FORMS = {
    "runtimePatches": """
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
                      metadata: {labels: {team: vision}}
                      spec:%s
""",
    "podTemplateOverrides": """
  podTemplateOverrides:
    - targetJobs: [{name: node}]
      metadata: {labels: {team: vision}}
      spec:%s
""",
    "podSpecOverrides": """
  podSpecOverrides:
    - targetJobs: [{name: node}]%s
""",
}
DEPTHS = {"runtimePatches": 24, "podTemplateOverrides": 8, "podSpecOverrides": 6}


def patched(form: str, patch: str = PATCH) -> str:
    """The job with a patch of its pods."""
    inner = textwrap.indent(textwrap.dedent(patch), " " * DEPTHS[form])
    return textwrap.dedent(JOB) + (FORMS[form] % inner).strip("\n") + "\n"


@pytest.mark.parametrize("form", FORMS)
def test_patches_of_the_runtime_are_honoured(read: Read, form: str) -> None:
    """They carry what changes the outcome: volumes, nodes, rights."""
    manifest = read(joined(RUNTIME, patched(form)))
    settings = manifest.settings
    assert (manifest.notes, settings.mount) == ((), ("pvc:datasets:/data",))
    assert settings.template is not None
    spec = settings.template["spec"]
    assert (spec["nodeSelector"], spec["serviceAccountName"]) == ({"pool": "a100"}, "trainer")
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    if form != "podSpecOverrides":
        assert settings.template["metadata"] == {"labels": {"team": "vision"}}
    assert (settings.image, (settings.env or {})["A"]) == ("my/torch:2", "runtime")


def test_a_patch_of_a_job_that_the_runtime_lacks_is_refused(read: Read) -> None:
    job = patched("runtimePatches").replace(
        "- name: node\n                template", "- name: nod\n template"
    )
    job = job.replace("\n template", "\n                template")
    with pytest.raises(
        InvalidJob, match=r"replicatedJobs\[0\].name: 'nod' is not a job of the runtime .*has node"
    ):
        read(joined(RUNTIME, job))


def test_a_patch_that_is_no_patch_is_refused_by_its_place(read: Read) -> None:
    with pytest.raises(InvalidJob, match=r"spec.volumes\[0\].name: .*missing"):
        read(joined(RUNTIME, patched("podTemplateOverrides", "\nvolumes: [{emptyDir: {}}]\n")))
    with pytest.raises(InvalidJob, match="trainingRuntimeSpe"):
        read(joined(RUNTIME, patched("runtimePatches").replace("trainingRuntimeSpec", "trainingRuntimeSpe")))


def with_policy(policy: str) -> str:
    return RUNTIME.replace("mlPolicy:", f"podGroupPolicy: {policy}\n      mlPolicy:")


def test_a_gang_of_the_runtime_is_one_here_and_its_place_in_the_network_is_refused(read: Read) -> None:
    why = "all workers start together, with echelon's own admission"
    notes = read(joined(with_policy("{coscheduling: {scheduleTimeoutSeconds: 30}}"), JOB)).notes
    assert notes == (f"spec.podGroupPolicy.coscheduling: {why}",)
    assert read(joined(with_policy("{volcano: {}}"), JOB)).notes == (f"spec.podGroupPolicy.volcano: {why}",)
    with pytest.raises(InvalidJob, match=r"networkTopology: 'volcano' places pods by the network"):
        read(joined(with_policy("{volcano: {networkTopology: {mode: hard}}}"), JOB))


def test_restarts_of_the_jobset_are_the_runs_and_other_policies_are_listed(read: Read) -> None:
    more = "failurePolicy: {maxRestarts: 3}\n          ttlSecondsAfterFinished: 60\n          replicatedJobs:"
    runtime = RUNTIME.replace("replicatedJobs:", more).replace(
        "{numProcPerNode: auto}",
        "{envInjection: {targets: [{name: node, containerNames: [log]}]}, elasticPolicy: {minNodes: 2}}",
    )
    manifest = read(joined(runtime, JOB))
    assert manifest.settings.restarts == 3
    assert [note.partition(":")[0] for note in manifest.notes] == [
        "spec.mlPolicy.torch.elasticPolicy",
        "spec.mlPolicy.torch.envInjection",
        "spec.template.spec.ttlSecondsAfterFinished",
    ]


@pytest.mark.slow  # fetches the module, where it is not in the cache
def test_every_field_of_the_newest_release_is_known() -> None:
    def fields_of(kind: str, *path: str) -> set[str]:
        folder = modules.fetch("trainer-2.3", "github.com/kubeflow/trainer/v2", "manifests/base/crds")
        defined = yaml.safe_load((folder / f"trainer.kubeflow.org_{kind}s.yaml").read_text())
        found = defined["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for name in ("spec", *path):
            found = found["properties"][name]
        return set(found["properties"])

    assert fields_of("trainjob") <= set(trainjob._SPEC)
    assert fields_of("trainjob", "trainer") <= set(trainjob._TRAINER)
    assert fields_of("trainjob", "initializer") == set(trainjob._DOWNLOADS)
    policies = fields_of("trainingruntime", "mlPolicy")
    assert policies - set(trainjob._POLICIES) == {"mpi", "flux"}, (
        "what docs/compatibility.md says is not done"
    )
    assert fields_of("trainingruntime", "mlPolicy", "torch") <= {"numProcPerNode", *trainjob._OF_TORCH}
    assert fields_of("trainingruntime", "podGroupPolicy") == {"coscheduling", "volcano"}
