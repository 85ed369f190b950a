"""Kubeflow jobs, run by echelon's own workers: their YAML read as settings, on a cluster or on this machine.

Reading is pure, and nothing that a manifest says is dropped without a note (`Manifest.notes`).
`TrainingClient` and `TrainerClient` answer the calls of Kubeflow's own clients."""

from typing import TYPE_CHECKING, Any

from echelon.kubeflow.documents import read_manifest
from echelon.kubeflow.here import Here, on_this_machine, parse_maps
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.outside import Outside

if TYPE_CHECKING:
    from echelon.kubeflow.sdk import constants
    from echelon.kubeflow.sdk.reporting import update_trainjob_status
    from echelon.kubeflow.sdk.trainer_client import TrainerClient
    from echelon.kubeflow.sdk.trainer_types import (
        DATASET_PATH,
        MODEL_PATH,
        BuiltinTrainer,
        ContainerBackendConfig,
        CustomTrainer,
        CustomTrainerContainer,
        DataCacheInitializer,
        DataFormat,
        DataType,
        Event,
        HuggingFaceDatasetInitializer,
        HuggingFaceModelInitializer,
        Initializer,
        KubernetesBackendConfig,
        LocalProcessBackendConfig,
        LoraConfig,
        Loss,
        Runtime,
        RuntimeKind,
        RuntimeTrainer,
        S3DatasetInitializer,
        S3ModelInitializer,
        Step,
        TorchTuneConfig,
        TorchTuneInstructDataset,
        TrainerType,
        TrainingRuntimeSource,
        TrainJob,
        TrainJobTemplate,
        get_tpu_num_nodes,
    )
    from echelon.kubeflow.sdk.training_client import TrainingClient

__all__ = [
    "DATASET_PATH",
    "MODEL_PATH",
    "RUNTIME_RESOURCES",
    "BuiltinTrainer",
    "ContainerBackendConfig",
    "CustomTrainer",
    "CustomTrainerContainer",
    "DataCacheInitializer",
    "DataFormat",
    "DataType",
    "Event",
    "Here",
    "HuggingFaceDatasetInitializer",
    "HuggingFaceModelInitializer",
    "Initializer",
    "KubernetesBackendConfig",
    "LocalProcessBackendConfig",
    "LoraConfig",
    "Loss",
    "Manifest",
    "Outside",
    "Runtime",
    "RuntimeKind",
    "RuntimeTrainer",
    "S3DatasetInitializer",
    "S3ModelInitializer",
    "Step",
    "TorchTuneConfig",
    "TorchTuneInstructDataset",
    "TrainJob",
    "TrainJobTemplate",
    "TrainerClient",
    "TrainerType",
    "TrainingClient",
    "TrainingRuntimeSource",
    "constants",
    "get_tpu_num_nodes",
    "on_this_machine",
    "parse_maps",
    "read_manifest",
    "update_trainjob_status",
]

RUNTIME_RESOURCES = {
    "ClusterTrainingRuntime": "clustertrainingruntimes.v1alpha1.trainer.kubeflow.org",
    "TrainingRuntime": "trainingruntimes.v1alpha1.trainer.kubeflow.org",
}
"""Where a cluster has the runtimes of TrainJobs."""


def __getattr__(name: str) -> Any:  # the command line reads manifests, and needs no client
    from importlib import import_module

    if name == "constants":
        return import_module(f"{__name__}.sdk.constants")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = {"TrainerClient": ("trainer_client",), "TrainingClient": ("training_client",)}
    for module in modules.get(name, ("trainer_types", "reporting")):
        found = import_module(f"{__name__}.sdk.{module}")
        if hasattr(found, name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
