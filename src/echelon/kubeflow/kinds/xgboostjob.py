"""XGBoostJob: Master and Workers are one gang, whose first rank starts the tracker; a Master that differs is
a chief. What the controller sets for LightGBM alone (WORKER_ADDRS, WORKER_PORT) is not there."""

from __future__ import annotations

from echelon.kubeflow.kinds.policy import read_metadata, read_policy
from echelon.kubeflow.kinds.replicas import manifest_of, read_replicas, settings_of
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.nodes import Node, child, fields
from echelon.kubeflow.outside import Outside
from echelon.kubeflow.pod import Reader
from echelon.model.pods.pod import IMAGE
from echelon.model.settings import Settings

ROLES = {"Master": "chief", "Worker": "worker"}
_SPEC = ("runPolicy", "xgbReplicaSpecs")
_WIRED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def is_wired(name: str) -> bool:
    """Whether a worker gets a variable of this name when it starts."""
    return name in _WIRED or name.startswith("DMLC_")


def read_xgboostjob(document: Node, outside: Outside) -> Manifest:
    """The settings that mean the same."""
    notes: list[str] = []
    spec = child(document, "spec")
    parts = fields(spec, _SPEC)
    reader = Reader(container="xgboost", wired=is_wired, outside=outside)
    replicas = read_replicas(child(spec, "xgbReplicaSpecs"), ROLES, reader, restart="Never", notes=notes)
    settings = Settings(
        framework="xgboost",
        procs=1,
        code=IMAGE,
        **read_metadata(child(document, "metadata"), notes),
        **settings_of(replicas, notes, join_chief=True),
        **read_policy(parts.get("runPolicy"), replicas, notes),
    )
    return manifest_of("XGBoostJob", settings, replicas, notes)
