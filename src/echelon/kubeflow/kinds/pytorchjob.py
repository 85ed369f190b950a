"""PyTorchJob: each pod runs its command once and finds torchrun's variables, as under Kubeflow's controller.

Master and Workers are one gang of workers; a Master that differs is a chief. A worker's number of processes
is torchrun's business: without a number it decides by itself (`auto`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from echelon.kubeflow.kinds.policy import read_metadata, read_policy
from echelon.kubeflow.kinds.replicas import manifest_of, read_replicas, settings_of
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
from echelon.kubeflow.pod import Reader
from echelon.model.pods.pod import IMAGE
from echelon.model.settings import Settings

ROLES = {"Master": "chief", "Worker": "worker"}
_SPEC = ("runPolicy", "elasticPolicy", "pytorchReplicaSpecs", "nprocPerNode")
_ELASTIC = (
    "minReplicas",
    "maxReplicas",
    "rdzvBackend",
    "rdzvPort",
    "rdzvHost",
    "rdzvId",
    "rdzvConf",
    "standalone",
    "nProcPerNode",
    "maxRestarts",
    "metrics",
)
_AUTOMATIC = ("auto", "cpu", "gpu")


def is_wired(name: str) -> bool:
    """Whether a worker gets a variable of this name when it starts."""
    return name.startswith("PET_") or name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def read_pytorchjob(document: Node, outside: Outside) -> Manifest:
    """The settings that mean the same."""
    notes: list[str] = []
    spec = child(document, "spec")
    parts = fields(spec, _SPEC)
    reader = Reader(container="pytorch", wired=is_wired, outside=outside)
    replicas = read_replicas(
        child(spec, "pytorchReplicaSpecs"), ROLES, reader, restart="OnFailure", notes=notes
    )
    about = read_metadata(child(document, "metadata"), notes)
    made = settings_of(replicas, notes, join_chief=True)
    processes = _processes(parts)
    if processes.isdecimal() and "roles" in made:
        chief = made["roles"]["chief"]
        made["roles"] = {"chief": replace(chief, procs=int(processes))}
    variables = {} if processes.isdecimal() else {"PET_NPROC_PER_NODE": processes}
    if "elasticPolicy" in parts:
        variables |= _elastic(parts["elasticPolicy"], made["workers"], notes)
    env = {**made.pop("env", {}), **variables}
    settings = Settings(
        framework="torchrun",
        procs=int(processes) if processes.isdecimal() else 1,
        code=IMAGE,
        env=env or None,
        **about,
        **made,
        **read_policy(parts.get("runPolicy"), replicas, notes),
    )
    return manifest_of("PyTorchJob", settings, replicas, notes)


def _processes(parts: Mapping[str, Node]) -> str:
    """A number, or what torchrun takes in its place."""
    elastic = fields(parts["elasticPolicy"], _ELASTIC) if "elasticPolicy" in parts else {}
    given = parts.get("nprocPerNode") or elastic.get("nProcPerNode")
    if given is None:
        return "auto"
    word = text(given)
    if word not in _AUTOMATIC and not (word.isdecimal() and int(word) > 0):
        raise refuse(given, "is not a number of processes", f"a number, or {', '.join(_AUTOMATIC)}")
    return word


def _elastic(node: Node, workers: int, notes: list[str]) -> dict[str, Any]:
    """torchrun's variables. The run has as many workers from its start to its end."""
    parts = fields(node, _ELASTIC)
    least, most = number(parts.get("minReplicas")), number(parts.get("maxReplicas"))
    if (least or workers, most or workers) != (workers, workers):
        notes.append(note(node, f"the run keeps its {workers} workers: sizes are not elastic"))
    for name in ("metrics", "rdzvHost", "rdzvPort"):
        if name in parts:
            why = "sizes are not elastic" if name == "metrics" else "the first worker's address is used"
            notes.append(note(parts[name], why))
    restarts = number(parts.get("maxRestarts"))
    pairs = []
    for each in items(parts.get("rdzvConf")):
        fields(each, ("key", "value"))
        pairs.append(f"{text(child(each, 'key'))}={text(child(each, 'value'))}")
    conf = ",".join(pairs)
    found = {
        "PET_RDZV_BACKEND": optional_text(parts.get("rdzvBackend")) or "c10d",
        "PET_RDZV_ID": optional_text(parts.get("rdzvId")) or "{run}",
        "PET_MAX_RESTARTS": None if restarts is None else str(restarts),
        "PET_RDZV_CONF": conf or None,
        "PET_STANDALONE": "1" if is_true(parts.get("standalone")) else None,
    }
    return {name: value for name, value in found.items() if value is not None}
