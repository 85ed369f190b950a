"""The image of a run's workers: the role's, the run's, or the framework's default."""

from __future__ import annotations

from echelon.errors import InvalidJob
from echelon.model.job import Job, asks_for_gpus, role_named

_TORCH = "docker.io/pytorch/pytorch:2.9.1-cuda12.6-cudnn9-runtime"
_TENSORFLOW = "docker.io/tensorflow/tensorflow:2.20.0"
PLAIN = "docker.io/library/python:3.12-slim"
_OF_PACKAGES = ("plain", "jax", "xgboost")  # frameworks without an image of their own that all may pull
DEFAULTS = frozenset({_TORCH, _TENSORFLOW, f"{_TENSORFLOW}-gpu", PLAIN})
"""Images that no user has named."""


def image_of(job: Job, role: str = "worker") -> str:
    """The image of the workers of a role; InvalidJob where none is given and no default fits.

    Every image of a run must have the run's Python: the agent runs on it."""
    own = role_named(job, role)
    if own is not None and own.image is not None:
        return own.image
    if job.pod.image is not None:
        return job.pod.image
    if job.framework in ("torch", "torchrun"):
        return _TORCH
    if job.framework == "tensorflow":
        return f"{_TENSORFLOW}-gpu" if asks_for_gpus(job) else _TENSORFLOW
    if job.framework in _OF_PACKAGES:
        return PLAIN
    raise InvalidJob(
        "image",
        None,
        f"has no default for {job.framework}",
        hint=f"say --image, with one that has {job.framework} in it; or image = in [tool.echelon]",
    )


def image_note(job: Job) -> str | None:
    """The note for a user who named no image; None if one is named."""
    if job.pod.image is not None:
        return None
    return f"image {image_of(job)}, the default for {job.framework}; --image names another"
