"""What callers give to and get from TrainerClient, with the names and fields of Kubeflow's own types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

UNKNOWN = "Unknown"


@dataclass(frozen=True)
class CustomTrainer:
    """A function, and the nodes that run it."""

    func: Callable[..., object]
    func_args: Mapping[str, Any] | None = None
    image: str | None = None
    packages_to_install: Sequence[str] | None = None
    pip_index_urls: Sequence[str] = ()
    num_nodes: int | None = None
    resources_per_node: Mapping[str, Any] | None = None
    env: Mapping[str, str] | None = None


@dataclass(frozen=True)
class TrainJobTemplate:
    """The arguments of `TrainerClient.train`, to be given as `train(**template)`."""

    trainer: CustomTrainer
    runtime: Any = None
    initializer: Any = None

    def keys(self) -> tuple[str, ...]:
        """Which arguments these are."""
        return ("runtime", "initializer", "trainer")

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


@dataclass(frozen=True)
class KubernetesBackendConfig:
    """The cluster that a client's jobs are in."""

    namespace: str | None = None
    config_file: str | None = None
    context: str | None = None
    client_configuration: Any = None


@dataclass(frozen=True)
class LocalProcessBackendConfig:
    """This machine; its packages are used as they are, so that there is no environment to clean up."""

    cleanup_venv: bool = True


class TrainerType(Enum):
    """What trains in a runtime: a function of the user's, or a recipe of Kubeflow's."""

    CUSTOM_TRAINER = "CustomTrainer"
    BUILTIN_TRAINER = "BuiltinTrainer"


class RuntimeKind(Enum):
    """Kinds of runtimes that Trainer has."""

    CLUSTER_TRAINING_RUNTIME = "ClusterTrainingRuntime"
    TRAINING_RUNTIME = "TrainingRuntime"


@dataclass(frozen=True)
class RuntimeTrainer:
    """What trains in a runtime. The image is the one that a CustomTrainer names."""

    trainer_type: TrainerType
    framework: str
    image: str = ""
    num_nodes: int = 1
    device: str = UNKNOWN
    device_count: str = UNKNOWN


@dataclass(frozen=True)
class Runtime:
    """A way to train: echelon has one for each framework."""

    name: str
    trainer: RuntimeTrainer
    kind: RuntimeKind = RuntimeKind.CLUSTER_TRAINING_RUNTIME
    pretrained_model: str | None = None

    @property
    def framework(self) -> str:
        """The framework that its trainer uses."""
        return self.trainer.framework


def runtime_for(name: str, framework: str) -> Runtime:
    """The runtime of echelon's for a framework."""
    return Runtime(name, RuntimeTrainer(TrainerType.CUSTOM_TRAINER, framework))


@dataclass(frozen=True)
class Step:
    """A node of a job."""

    name: str
    status: str | None
    pod_name: str
    device: str = UNKNOWN
    device_count: str = UNKNOWN


@dataclass(frozen=True)
class TrainJob:
    """A job as it stands."""

    name: str
    runtime: Runtime
    steps: list[Step]
    num_nodes: int
    creation_timestamp: datetime
    status: str = UNKNOWN


@dataclass(frozen=True)
class Event:
    """Something that happened to a job."""

    involved_object_kind: str
    involved_object_name: str
    message: str
    reason: str
    event_time: datetime
