"""What callers give to and get from TrainerClient, with the names and fields of Kubeflow's own types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from echelon.values import frozen

UNKNOWN = "Unknown"


@frozen
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


@frozen
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


@frozen
class KubernetesBackendConfig:
    """The cluster that a client's jobs are in."""

    namespace: str | None = None
    config_file: str | None = None
    context: str | None = None
    client_configuration: Any = None


@frozen
class LocalProcessBackendConfig:
    """This machine; its packages are used as they are, so that there is no environment to clean up."""

    cleanup_venv: bool = True


@frozen
class RuntimeTrainer:
    """What trains in a runtime. The image is the one that a CustomTrainer names."""

    framework: str
    image: str = ""
    num_nodes: int = 1
    device: str = UNKNOWN
    device_count: str = UNKNOWN


@frozen
class Runtime:
    """A way to train: echelon has one for each framework."""

    name: str
    framework: str

    @property
    def trainer(self) -> RuntimeTrainer:
        """The same, as Kubeflow's type has it."""
        return RuntimeTrainer(framework=self.framework)


@frozen
class Step:
    """A node of a job."""

    name: str
    status: str | None
    pod_name: str
    device: str = UNKNOWN
    device_count: str = UNKNOWN


@frozen
class TrainJob:
    """A job as it stands."""

    name: str
    runtime: Runtime
    steps: list[Step]
    num_nodes: int
    creation_timestamp: datetime
    status: str = UNKNOWN


@frozen
class Event:
    """Something that happened to a job."""

    involved_object_kind: str
    involved_object_name: str
    message: str
    reason: str
    event_time: datetime
