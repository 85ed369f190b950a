"""Images that are `python` and a framework of PyPI's, with all that it needs on processors alone.

PyPI's torch for x86_64 is built for CUDA and has to find CUDA's libraries when it is imported, also where no
GPU is: those are in the image, and what they would load for a GPU is not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """Packages with their versions: `alone` without, `whole` with what they depend on. `leave_out` are
    patterns of paths in them that nothing on a processor reads.
    """

    alone: tuple[str, ...]
    whole: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()


FRAMEWORKS = {
    # With libuv, which torchrun wants and Debian's torch lacks.
    "torch-pypi": Framework(
        alone=(
            "torch==2.15.0",
            "numpy==2.4.6",
            "filelock==4.2.10",
            "fsspec==2026.9.0",
            "jinja2==3.1.6",
            "markupsafe==3.0.4",
            "mpmath==1.3.0",
            "networkx==3.6.1",
            "setuptools==84.2.1",
            "sympy==1.14.0",
            "typing-extensions==4.16.0",
            "nvidia-cublas==13.4.1.3",
            "nvidia-cuda-cupti==13.2.86",
            "nvidia-cuda-nvrtc==13.2.86",
            "nvidia-cuda-runtime==13.2.86",
            "nvidia-cudnn-cu13==9.26.0.51",
            "nvidia-cufft==12.2.0.57",
            "nvidia-cufile==1.17.1.22",
            "nvidia-cusparse==12.7.10.12",
            "nvidia-cusparselt-cu13==0.8.1",
            "nvidia-nccl-cu13==2.30.7",
            "nvidia-nvshmem-cu13==3.7.2",
        ),
        leave_out=(
            "nvidia/*/include/*",
            "nvidia/cu13/lib/*.a",
            "nvidia/cu13/lib/libnvperf_*",
            "nvidia/cu13/lib/libnvrtc-builtins*",
            "nvidia/cu13/lib/*.alt.so*",
            "nvidia/cudnn/lib/libcudnn_*",
            "nvidia/nvshmem/lib/libnvshmem_device*",
            "nvidia/nvshmem/lib/nvshmem_*",
            "torch/include/*",
            "torch/lib/libtorch_cuda_linalg.so",
        ),
    ),
    "tensorflow": Framework(
        alone=("tf-keras==2.21.0",),  # it asks for `tensorflow`, which is larger than `tensorflow-cpu`
        whole=("tensorflow-cpu==2.21.0",),
        leave_out=("tensorflow/include/*",),
    ),
}
