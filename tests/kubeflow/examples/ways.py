"""How examples of Kubeflow's run on this machine, as they are: what their images have is copied from beside
them, as their Dockerfiles do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """`places` are folders of the image, with the files of the examples that are in them, by their paths in
    the module. `words` are given to `echelon run`. `asks_registry` if the manifest leaves the command to the
    image. `compiled` is the implementation of MPI that a program in C++ is compiled with. `said` must be in
    the output. What takes long is left to `make soak`.
    """

    said: tuple[str, ...]
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    asks_registry: bool = False
    compiled: str | None = None
    long: bool = True


_TENSORFLOW = (
    "--",
    "--fake_data",
    "True",
    "--epochs",
    "1",
)  # their own flags for data that is not downloaded
_SUMMARIES = ("tensorflow/mnist_with_summaries/mnist_with_summaries.py", "tensorflow/mnist_utils.py")
_PI = {"/home/mpiuser": ("v2beta1/pi/pi.cc",)}
WAYS = {
    "training-operator/pytorch/smoke-dist/pytorch_job_sendrecv.yaml": Way(
        places={"/opt/mlkube": ("pytorch/smoke-dist/dist_sendrecv.py",)},
        asks_registry=True,
        said=tuple(f"Result from worker {number}" for number in (1, 2, 3)),
        long=False,
    ),
    "training-operator/pytorch/cpu-demo/demo.yaml": Way(
        said=tuple(f"rank {rank} world_size 4 result tensor([4])" for rank in range(4))
    ),
    "training-operator/pytorch/elastic/echo/echo.yaml": Way(said=("after init process group, rank=0",)),
    "training-operator/pytorch/simple.yaml": Way(
        places={"/opt/pytorch-mnist": ("pytorch/mnist/mnist.py",)},
        said=("World Size: 2. Rank: 1", "accuracy="),
    ),
    "training-operator/tensorflow/simple.yaml": Way(
        places={"/var/tf_mnist": _SUMMARIES}, words=_TENSORFLOW, said=("val_accuracy",)
    ),
    "training-operator/tensorflow/mnist_with_summaries/tf_job_mnist.yaml": Way(
        places={"/var/tf_mnist": _SUMMARIES, "/train": ()}, words=_TENSORFLOW, said=("val_accuracy",)
    ),
    "training-operator/tensorflow/dist-mnist/tf_job_mnist.yaml": Way(
        places={
            "/var/tf_dist_mnist": ("tensorflow/dist-mnist/dist_mnist.py", "tensorflow/mnist_utils.py"),
        },
        words=_TENSORFLOW,
        asks_registry=True,
        said=("Evaluation accuracy",),
    ),
    "training-operator/jax/cpu-demo/demo.yaml": Way(
        said=("JAX process 0/1 initialized", "JAX process 1/1 initialized", "JAX device count:2", "[2.]"),
        long=False,
    ),
    "mpi-operator/v2beta1/pi/pi.yaml": Way(
        places=_PI,
        compiled="openmpi5",
        words=("--cpus", "0.5"),
        said=("pi is approximately 3.1",),
        long=False,
    ),
    "mpi-operator/v2beta1/pi/pi-mpich.yaml": Way(
        places=_PI, compiled="mpich", words=("--cpus", "0.5"), said=("pi is approximately 3.1",), long=False
    ),
}
"""By the key of an example."""

NOTEBOOKS = ("training-operator/pytorch/image-classification/Train-CNN-with-FashionMNIST.ipynb",)
"""Those that run."""
