"""What a job says about its life: its name, labels, restarts, deadline, how long it is kept. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from echelon.kubeflow.kinds.replicas import Part
from echelon.kubeflow.nodes import (
    Node,
    child,
    fields,
    is_true,
    note,
    number,
    one_of,
    optional_text,
    refuse,
    text,
)
from echelon.model.job import is_name, suggest_name
from echelon.model.pods.pod import is_reserved

_POLICY = (
    "cleanPodPolicy",
    "ttlSecondsAfterFinished",
    "activeDeadlineSeconds",
    "backoffLimit",
    "schedulingPolicy",
    "suspend",
    "managedBy",
)
_SCHEDULING = ("minAvailable", "queue", "minResources", "priorityClass", "scheduleTimeoutSeconds")
_CLEAN = ("None", "Running", "All")
_BOOKKEEPING = "kubectl.kubernetes.io/last-applied-configuration"
_QUEUE = "kueue.x-k8s.io/"


def read_metadata(node: Node, notes: list[str]) -> dict[str, Any]:
    """The run's name, namespace, labels and annotations."""
    parts = fields(node)
    made: dict[str, Any] = {"namespace": optional_text(parts.get("namespace"))}
    if "name" in parts:
        made["name"] = text(parts["name"])
        if not is_name(made["name"]):
            nearest = suggest_name(made["name"])
            raise refuse(parts["name"], "cannot be a run's name", f"--name {nearest} gives it one")
    elif "generateName" not in parts:
        child(node, "name")
    for name, setting in (("labels", "label"), ("annotations", "annotation")):
        if name not in parts:
            continue
        kept = {}
        for key, value in fields(parts[name]).items():
            if key.startswith(_QUEUE):
                notes.append(note(value, "a run of echelon's own workers is in no queue of Kueue's"))
            elif is_reserved(key):
                notes.append(note(value, "echelon sets it itself"))
            elif key != _BOOKKEEPING:
                kept[key] = text(value)
        made[setting] = kept or None
    return {name: value for name, value in made.items() if value is not None}


def read_policy(node: Node | None, parts: Sequence[Part], notes: list[str]) -> dict[str, Any]:
    """Restarts, deadline and time to live, from `runPolicy` and the replicas' restart policies."""
    given = fields(node, _POLICY) if node is not None else {}
    made: dict[str, Any] = {
        "timeout": number(given.get("activeDeadlineSeconds"), least=1),
        "ttl": number(given.get("ttlSecondsAfterFinished")),
    }
    if made["ttl"] == 0:
        made["ttl"] = 1
    limit = number(given.get("backoffLimit"))
    if any(part.restarts for part in parts):
        made["restarts"] = limit or None
        if limit is None:
            notes.append(
                "restartPolicy: without a backoffLimit Kubeflow restarts for ever; the run ends with its "
                "first failure, unless --restarts N says otherwise"
            )
    elif limit:
        notes.append(note(given["backoffLimit"], "no replica is ever restarted: its restartPolicy is Never"))
    if "cleanPodPolicy" in given and one_of(given["cleanPodPolicy"], _CLEAN) == "None":
        notes.append(note(given["cleanPodPolicy"], "the pods end with the run, whose logs and results stay"))
    if is_true(given.get("suspend")):
        notes.append(note(given["suspend"], "the run starts as soon as there is room"))
    if "managedBy" in given:
        notes.append(note(given["managedBy"], "echelon's own workers have no other controller"))
    if "schedulingPolicy" in given:
        scheduling = fields(given["schedulingPolicy"], _SCHEDULING)
        made["priority_class"] = optional_text(scheduling.pop("priorityClass", None))
        why = "all workers start together, with echelon's own admission"
        notes += [note(each, why) for each in scheduling.values()]
    return {name: value for name, value in made.items() if value is not None}
