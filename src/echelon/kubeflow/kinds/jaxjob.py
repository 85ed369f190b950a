"""JAXJob: every pod is one process of JAX, as echelon wires JAX anyway."""

from __future__ import annotations

from echelon.kubeflow.kinds.policy import read_metadata, read_policy
from echelon.kubeflow.kinds.replicas import manifest_of, read_replicas, settings_of
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.nodes import Node, child, fields
from echelon.kubeflow.outside import Outside
from echelon.kubeflow.pod import Reader
from echelon.model.pods.pod import IMAGE
from echelon.model.settings import Settings

ROLES = {"Worker": "worker"}
_SPEC = ("runPolicy", "jaxReplicaSpecs")
_WIRED = ("COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID")


def is_wired(name: str) -> bool:
    """Whether a worker gets a variable of this name when it starts."""
    return name.removeprefix("JAX_") in _WIRED


def read_jaxjob(document: Node, outside: Outside) -> Manifest:
    """The settings that mean the same."""
    notes: list[str] = []
    spec = child(document, "spec")
    parts = fields(spec, _SPEC)
    reader = Reader(container="jax", wired=is_wired, outside=outside)
    replicas = read_replicas(child(spec, "jaxReplicaSpecs"), ROLES, reader, restart="Never", notes=notes)
    settings = Settings(
        framework="jax",
        procs=1,
        code=IMAGE,
        **read_metadata(child(document, "metadata"), notes),
        **settings_of(replicas, notes),
        **read_policy(parts.get("runPolicy"), replicas, notes),
    )
    return manifest_of("JAXJob", settings, replicas, notes)
