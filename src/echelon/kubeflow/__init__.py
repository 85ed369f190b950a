"""Kubeflow's jobs, run by echelon's own workers: its YAML read as settings, on a cluster or on this machine.

Reading is pure, and nothing that a manifest says is dropped without a note (`Manifest.notes`).
`TrainingClient` and `TrainerClient` answer the calls of Kubeflow's own clients."""

from typing import TYPE_CHECKING, Any

from echelon.kubeflow.documents import read_manifest
from echelon.kubeflow.here import Here, on_this_machine, parse_maps
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.outside import Outside

if TYPE_CHECKING:
    from echelon.kubeflow.sdk import constants
    from echelon.kubeflow.sdk.trainer_client import TrainerClient
    from echelon.kubeflow.sdk.trainer_types import (
        CustomTrainer,
        KubernetesBackendConfig,
        LocalProcessBackendConfig,
        TrainJobTemplate,
    )
    from echelon.kubeflow.sdk.training_client import TrainingClient

__all__ = [
    "RUNTIME_RESOURCES",
    "CustomTrainer",
    "Here",
    "KubernetesBackendConfig",
    "LocalProcessBackendConfig",
    "Manifest",
    "Outside",
    "TrainJobTemplate",
    "TrainerClient",
    "TrainingClient",
    "constants",
    "on_this_machine",
    "parse_maps",
    "read_manifest",
]

RUNTIME_RESOURCES = {
    "ClusterTrainingRuntime": "clustertrainingruntimes.v1alpha1.trainer.kubeflow.org",
    "TrainingRuntime": "trainingruntimes.v1alpha1.trainer.kubeflow.org",
}
"""Where a cluster has the runtimes of TrainJobs."""


def __getattr__(name: str) -> Any:  # the command line reads manifests, and needs no client
    modules = {
        "CustomTrainer": "trainer_types",
        "KubernetesBackendConfig": "trainer_types",
        "LocalProcessBackendConfig": "trainer_types",
        "TrainJobTemplate": "trainer_types",
        "TrainerClient": "trainer_client",
        "TrainingClient": "training_client",
    }
    from importlib import import_module

    if name == "constants":
        return import_module(f"{__name__}.sdk.constants")
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.sdk.{modules[name]}"), name)
