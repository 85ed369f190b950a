"""TrainJob of Kubeflow Trainer: a runtime's template with what the job changes in it.

The runtime is a document of its own, beside the job or in the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from echelon.kubeflow.kinds import jaxjob, pytorchjob, xgboostjob
from echelon.kubeflow.kinds.policy import read_metadata
from echelon.kubeflow.kinds.replicas import Part, settings_of
from echelon.kubeflow.kinds.runtime_patches import FORMS, apply_patches
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.nodes import (
    Node,
    child,
    fields,
    is_true,
    items,
    note,
    number,
    optional_text,
    refuse,
    text,
)
from echelon.kubeflow.outside import Outside
from echelon.kubeflow.pod import Reader, read_pod
from echelon.model.pods.pod import IMAGE
from echelon.model.settings import Settings

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
_WIRED = {"torchrun": pytorchjob.is_wired, "jax": jaxjob.is_wired, "xgboost": xgboostjob.is_wired}
_SPEC = (
    "runtimeRef",
    "initializer",
    "trainer",
    *FORMS,
    "labels",
    "annotations",
    "suspend",
    "activeDeadlineSeconds",
    "managedBy",
)
_POLICIES = ("numNodes", "torch", "jax", "xgboost")
_Framework = Literal["torchrun", "jax", "xgboost"]
_TRAINER = ("image", "command", "args", "env", "numNodes", "resourcesPerNode", "numProcPerNode")
_NOT_HONOURED = {
    "managedBy": "echelon's own workers have no other controller",
    "labels": "the run has the labels of metadata",
    "annotations": "the run has the annotations of metadata",
}
_DOWNLOADS = {"dataset": "/workspace/dataset", "model": "/workspace/model"}
_OF_TORCH = {
    "elasticPolicy": "sizes are not elastic: numNodes is the run's",
    "envInjection": "the variables of torchrun are for the container that trains alone",
}
_OF_JOBSET = {
    "successPolicy": "the run succeeds when all of its workers have",
    "startupPolicy": "all workers start together",
    "ttlSecondsAfterFinished": "the run stays until it is removed; --ttl says for how long",
}
_OF_JOB = {
    "backoffLimit": "the run ends with its first failure, unless --restarts N says otherwise",
    "podFailurePolicy": "every failure counts alike",
    "activeDeadlineSeconds": "the run has activeDeadlineSeconds of the job's spec",
}


def runtime_named(document: Node) -> tuple[str, str]:
    """The kind and the name of the runtime that a job refers to."""
    reference = child(child(document, "spec"), "runtimeRef")
    parts = fields(reference, ("name", "apiGroup", "kind"))
    kind = optional_text(parts.get("kind")) or RUNTIMES[0]
    if kind not in RUNTIMES:
        raise refuse(parts["kind"], f"is not one of {', '.join(RUNTIMES)}", "give one of them")
    return kind, text(child(reference, "name"))


def read_trainjob(document: Node, runtime: Node, outside: Outside) -> Manifest:
    """The settings that mean the same."""
    notes: list[str] = []
    spec = child(document, "spec")
    parts = fields(spec, _SPEC)
    downloads = tuple(_downloads(parts["initializer"], notes)) if "initializer" in parts else ()
    notes += [note(parts[name], why) for name, why in _NOT_HONOURED.items() if name in parts]
    if is_true(parts.get("suspend")):
        notes.append(note(parts["suspend"], "the run starts as soon as there is room"))
    trainer = fields(parts["trainer"], _TRAINER) if "trainer" in parts else {}
    policy = _policy(runtime, notes)
    framework: _Framework = "jax" if "jax" in policy else "xgboost" if "xgboost" in policy else "torchrun"
    worker = read_pod(
        _with_trainer(_trainer_template(runtime, parts, notes), trainer),
        Reader(container="node", wired=_WIRED[framework], outside=outside),
        notes,
    )
    nodes = number(trainer.get("numNodes"), least=1) or number(policy.get("numNodes"), least=1) or 1
    processes = _processes(trainer, policy)
    made = settings_of([Part(role="worker", replicas=nodes, worker=worker, restarts=False)], notes)
    env = dict(made.pop("env", {}))
    if processes is None and framework == "torchrun":
        env["PET_NPROC_PER_NODE"] = "auto"
    settings = Settings(
        framework=framework,
        procs=processes or 1,
        code=IMAGE,
        env=env or None,
        timeout=number(parts.get("activeDeadlineSeconds"), least=1),
        restarts=_restarts(runtime, notes),
        **read_metadata(child(document, "metadata"), notes),
        **made,
    )
    return Manifest(
        kind="TrainJob",
        settings=settings,
        notes=tuple(notes),
        volumes=worker.volumes,
        workdir=worker.workdir,
        unknown_env=worker.unknown_env,
        downloads=downloads,
    )


def _downloads(node: Node, notes: list[str]) -> Iterator[str]:
    """What the initializers would download: named, since nothing is downloaded here."""
    for name, each in fields(node, tuple(_DOWNLOADS)).items():
        place = fields(each, ("storageUri", "env", "secretRef")).get("storageUri")
        address = optional_text(place) or "what its runtime names"
        notes.append(note(each, f"{address} is not downloaded; a volume at {_DOWNLOADS[name]} can hold it"))
        yield f"{name} {address}"


def _policy(runtime: Node, notes: list[str]) -> dict[str, Node]:
    """The runtime's ML policy; of those that there are, the ones of frameworks that pods can be wired for."""
    spec = fields(child(runtime, "spec"), ("mlPolicy", "podGroupPolicy", "template"))
    if "podGroupPolicy" in spec:
        _check_scheduling(spec["podGroupPolicy"], notes)
    if "mlPolicy" not in spec:
        return {}
    policy = fields(spec["mlPolicy"])
    for name, each in policy.items():
        if name not in _POLICIES:
            there = ", ".join(_POLICIES[1:])
            raise refuse(
                Node(value=name, at=each.at), "is not a policy that echelon can follow", f"it follows {there}"
            )
    if "torch" in policy:
        torch = fields(policy["torch"], ("numProcPerNode", *_OF_TORCH))
        notes += [note(torch[name], why) for name, why in _OF_TORCH.items() if name in torch]
    return policy


def _check_scheduling(node: Node, notes: list[str]) -> None:
    """That all pods of a job start or none is what echelon's admission does; that they are near to each other
    in the network, as Volcano can see to it, is not.
    """
    for name, each in fields(node, ("coscheduling", "volcano")).items():
        topology = fields(each).get("networkTopology") if name == "volcano" else None
        if topology is not None:
            raise refuse(
                Node(value=name, at=topology.at),
                "places pods by the network, which echelon's own workers do not",
                "--as native leaves the job to Trainer; or leave networkTopology out",
            )
        notes.append(note(each, "all workers start together, with echelon's own admission"))


def _restarts(runtime: Node, notes: list[str]) -> int | None:
    """How often the JobSet makes all of its Jobs anew, which is what a restart is here."""
    jobset = fields(child(child(child(runtime, "spec"), "template"), "spec"))
    notes += [note(jobset[name], why) for name, why in _OF_JOBSET.items() if name in jobset]
    failure = fields(jobset["failurePolicy"]) if "failurePolicy" in jobset else {}
    if "rules" in failure:
        notes.append(note(failure["rules"], "every failure counts alike"))
    return number(failure.get("maxRestarts")) or None


def _processes(trainer: Mapping[str, Node], policy: Mapping[str, Node]) -> int | None:
    """Processes per node; None where torchrun decides."""
    torch = fields(policy["torch"]) if "torch" in policy else {}
    given = trainer.get("numProcPerNode") or torch.get("numProcPerNode")
    if given is None or text(given) in ("auto", "cpu", "gpu"):
        return None
    return number(given, least=1)


def _trainer_template(runtime: Node, job: Mapping[str, Node], notes: list[str]) -> Node:
    """The pod template of the runtime's job that trains, with the patches of the TrainJob."""
    jobset = child(child(child(runtime, "spec"), "template"), "spec")
    jobs = items(child(jobset, "replicatedJobs"))
    found, name, others = None, "", []
    for each in jobs:
        template = child(each, "template")
        labels = fields(fields(template).get("metadata", Node(value={}, at=template.at))).get("labels")
        step = optional_text(fields(labels).get(STEP)) if labels is not None else None
        if step == "trainer" or (step is None and len(jobs) == 1):
            spec = fields(child(template, "spec"))
            found, name = child(child(template, "spec"), "template"), text(child(each, "name"))
            notes += [note(spec[field], why) for field, why in _OF_JOB.items() if _says(spec.get(field))]
        else:
            others.append(text(child(each, "name")))
            notes.append(note(each, f"step {step or 'without a label'} is not run"))
    if found is None:
        raise refuse(child(jobset, "replicatedJobs"), "has no job that trains", f"label one: {STEP}: trainer")
    return apply_patches(found, job, name, others, notes)


def _says(node: Node | None) -> bool:
    """Whether a field is there, and not 0."""
    return node is not None and (isinstance(node.value, Mapping) or text(node) != "0")


def _with_trainer(template: Node, trainer: Mapping[str, Node]) -> Node:
    """The template with what the job says about its container: variables are added, the rest replaced."""
    spec = child(template, "spec")
    changed = []
    for each in items(child(spec, "containers")):
        parts = fields(each)
        container: dict[str, Any] = dict(each.value)
        if "name" in parts and text(parts["name"]) == "node":
            for name in ("image", "command", "args"):
                if name in trainer:
                    container[name] = trainer[name].value
            if "resourcesPerNode" in trainer:
                container["resources"] = trainer["resourcesPerNode"].value
            if "env" in trainer:
                mine = {text(child(one, "name")) for one in items(trainer["env"])}
                before = [one for one in items(parts.get("env")) if text(child(one, "name")) not in mine]
                container["env"] = [*(one.value for one in before), *trainer["env"].value]
        changed.append(container)
    value = {**template.value, "spec": {**spec.value, "containers": changed}}
    return replace(template, value=value)
