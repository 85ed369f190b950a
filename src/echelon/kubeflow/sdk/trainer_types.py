"""What callers give to and get from TrainerClient, with the names and fields of Kubeflow's own types.

Some are only made and read: downloads before a job, recipes for fine-tuning, containers of this machine.
`TrainerClient` refuses them, each by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from math import prod
from typing import Any

UNKNOWN = "Unknown"
DATASET_PATH, MODEL_PATH = "/workspace/dataset", "/workspace/model"
_IGNORED = ("*.msgpack", "*.h5", "*.bin", "*.pt", "*.pth")


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


@dataclass(frozen=True)
class CustomTrainerContainer:
    """An image that trains by itself, and the nodes that run it."""

    image: str
    num_nodes: int | None = None
    resources_per_node: Mapping[str, Any] | None = None
    env: Mapping[str, str] | None = None


class Loss(Enum):
    """Loss functions of torchtune."""

    CEWithChunkedOutputLoss = "torchtune.modules.loss.CEWithChunkedOutputLoss"


class DataType(Enum):
    """Types of numbers."""

    BF16 = "bf16"
    FP32 = "fp32"


class DataFormat(Enum):
    """Formats of data sets."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    TEXT = "text"
    XML = "xml"


@dataclass(frozen=True)
class TorchTuneInstructDataset:
    """A data set of instructions and answers."""

    source: DataFormat | None = None
    split: str | None = None
    train_on_input: bool | None = None
    new_system_prompt: str | None = None
    column_map: Mapping[str, str] | None = None


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters."""

    apply_lora_to_mlp: bool | None = None
    apply_lora_to_output: bool | None = None
    lora_attn_modules: Sequence[str] = ("q_proj", "v_proj", "output_proj")
    lora_rank: int | None = None
    lora_alpha: int | None = None
    lora_dropout: float | None = None
    quantize_base: bool | None = None
    use_dora: bool | None = None


@dataclass(frozen=True)
class TorchTuneConfig:
    """A recipe of torchtune."""

    dtype: DataType | None = None
    batch_size: int | None = None
    epochs: int | None = None
    loss: Loss | None = None
    num_nodes: int | None = None
    peft_config: LoraConfig | None = None
    dataset_preprocess_config: TorchTuneInstructDataset | None = None
    resources_per_node: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class BuiltinTrainer:
    """A recipe that Kubeflow's own image follows."""

    config: TorchTuneConfig


@dataclass(frozen=True)
class HuggingFaceDatasetInitializer:
    """A data set of the Hugging Face Hub."""

    storage_uri: str
    ignore_patterns: Sequence[str] | None = None
    access_token: str | None = None


@dataclass(frozen=True)
class _InBucket:
    """What is in a bucket, and how it is reached."""

    storage_uri: str
    ignore_patterns: Sequence[str] | None = None
    endpoint: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    region: str | None = None
    role_arn: str | None = None


@dataclass(frozen=True)
class S3DatasetInitializer(_InBucket):
    """A data set in a bucket."""


@dataclass(frozen=True)
class DataCacheInitializer:
    """A table that Kubeflow's cache serves."""

    storage_uri: str
    metadata_loc: str
    num_data_nodes: int
    head_cpu: str | None = None
    head_mem: str | None = None
    worker_cpu: str | None = None
    worker_mem: str | None = None
    iam_role: str | None = None


@dataclass(frozen=True)
class HuggingFaceModelInitializer:
    """A model of the Hugging Face Hub."""

    storage_uri: str
    ignore_patterns: Sequence[str] | None = _IGNORED
    access_token: str | None = None


@dataclass(frozen=True)
class S3ModelInitializer(_InBucket):
    """A model in a bucket."""

    ignore_patterns: Sequence[str] | None = _IGNORED


@dataclass(frozen=True)
class Initializer:
    """What is downloaded before a job starts."""

    dataset: HuggingFaceDatasetInitializer | S3DatasetInitializer | DataCacheInitializer | None = None
    model: HuggingFaceModelInitializer | S3ModelInitializer | None = None


@dataclass(frozen=True)
class TrainingRuntimeSource:
    """Where runtimes of a container backend are found."""

    sources: Sequence[str] = ("github://kubeflow/trainer",)


@dataclass(frozen=True)
class ContainerBackendConfig:
    """Containers of this machine."""

    pull_policy: str = "IfNotPresent"
    auto_remove: bool = True
    container_host: str | None = None
    container_runtime: str | None = None
    runtime_source: TrainingRuntimeSource = field(default_factory=TrainingRuntimeSource)
    dataset_initializer_image: str = "ghcr.io/kubeflow/trainer/dataset-initializer:latest"
    model_initializer_image: str = "ghcr.io/kubeflow/trainer/model-initializer:latest"
    initializer_timeout: int = 600


def get_tpu_num_nodes(num_slices: int, topology: str, chips_per_host: int = 4) -> int:
    """The hosts of so many slices of TPUs, each of a topology such as 2x2x4."""
    sides = topology.lower().split("x")
    if num_slices < 1 or chips_per_host < 1 or not all(side.isdecimal() for side in sides):
        given = f"{num_slices}, {topology!r}, {chips_per_host}"
        raise ValueError(f"get_tpu_num_nodes({given}): give numbers above 0, and a topology such as 2x2x4")
    hosts, rest = divmod(prod(map(int, sides)), chips_per_host)
    if rest or not hosts:
        raise ValueError(f"topology: {topology!r} is not made of hosts with {chips_per_host} chips")
    return num_slices * hosts
