"""Workers as a TFJob: each role has its replica type. Its TF_CONFIG goes under the one of the plan's launch.

The job succeeds with its Chief or, without one, with Worker 0: the leader, in both cases."""

from __future__ import annotations

from echelon.engines.kubernetes.render.dialects.kubeflow import Replicated

DIALECT = Replicated(
    kind="TFJob",
    specs="tfReplicaSpecs",
    container="tensorflow",
    types={"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"},
)
