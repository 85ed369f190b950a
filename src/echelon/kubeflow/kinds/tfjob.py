"""TFJob: every replica type is a role of TF_CONFIG, as echelon wires TensorFlow anyway."""

from __future__ import annotations

from echelon.kubeflow.kinds.policy import read_metadata, read_policy
from echelon.kubeflow.kinds.replicas import manifest_of, read_replicas, settings_of
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.nodes import Node, child, fields, is_true, note, text
from echelon.kubeflow.outside import Outside
from echelon.kubeflow.pod import Reader
from echelon.model.pods.pod import IMAGE
from echelon.model.settings import Settings

ROLES = {"Chief": "chief", "Master": "chief", "PS": "ps", "Evaluator": "evaluator", "Worker": "worker"}
_SPEC = ("runPolicy", "successPolicy", "tfReplicaSpecs", "enableDynamicWorker")


def read_tfjob(document: Node, outside: Outside) -> Manifest:
    """The settings that mean the same."""
    notes: list[str] = []
    spec = child(document, "spec")
    parts = fields(spec, _SPEC)
    reader = Reader(container="tensorflow", wired=lambda name: name == "TF_CONFIG", outside=outside)
    replicas = read_replicas(child(spec, "tfReplicaSpecs"), ROLES, reader, restart="Never", notes=notes)
    alone = len(replicas) == 1  # a chief without anyone is a worker
    about = read_metadata(child(document, "metadata"), notes)
    made = settings_of(replicas, notes, join_chief=alone)
    if "successPolicy" in parts and text(parts["successPolicy"]) not in ("", "AllWorkers"):
        notes.append(note(parts["successPolicy"], "the run succeeds when all of its workers have"))
    if is_true(parts.get("enableDynamicWorker")):
        notes.append(note(parts["enableDynamicWorker"], "the run keeps its number of workers"))
    settings = Settings(
        framework="tensorflow",
        procs=1,
        code=IMAGE,
        **about,
        **made,
        **read_policy(parts.get("runPolicy"), replicas, notes),
    )
    return manifest_of("TFJob", settings, replicas, notes)
