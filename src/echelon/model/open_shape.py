"""`--total-gpus`: a run that says how many GPUs it needs in all, and not how many workers share them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from echelon.errors import InvalidJob
from echelon.model.resources import parse_cpus, parse_memory
from echelon.values import frozen

Shares = Literal["equal", "any", "largest-first"]


@frozen
class OpenShape:
    """How many GPUs, at least and at most. CPUs (cores) and memory (bytes) are for each GPU.

    `gpus` and `workers` are what the user fixed all the same: the GPUs of each worker, or how many workers.
    Without them there is one worker per node, and `shares` says whether all have the same number of GPUs."""

    least: int
    most: int
    shares: Shares = "equal"
    gpus: int | None = None
    workers: int | None = None
    cpus_per_gpu: float | None = None
    memory_per_gpu: float | None = None
    rank_per_gpu: bool = True  # else as many ranks per worker as the job says


def parse_open_shape(
    total: object,
    *,
    shares: Shares | None,
    gpus: int | None,
    workers: int | None,
    per_worker: Mapping[str, object],
    per_gpu: Mapping[str, object],
    rank_per_gpu: bool,
) -> OpenShape | None:
    """Read `--total-gpus` and what goes with it; None for a run that gives its shape.

    `per_worker` and `per_gpu` have the CPUs and the memory, each None where it is not given."""
    if total is None:
        if shares is not None:
            raise InvalidJob("shares", shares, "is given without --total-gpus", hint="add --total-gpus N")
        for name, value in per_gpu.items():
            if value is not None:
                hint = "add --total-gpus N, or give what a worker gets"
                raise InvalidJob(name, f"{value}/gpu", "is given without --total-gpus", hint=hint)
        return None
    least, most = _range(total)
    for name, value in per_worker.items():
        if value is not None and gpus is None:
            one = "4/gpu" if name == "cpus" else "32Gi/gpu"
            hint = f"give it for each GPU, --{name} {one}, or fix the worker with --gpus N"
            raise InvalidJob(name, value, "is for a worker of unknown size", hint=hint)
    if shares is not None and (gpus is not None or workers is not None):
        raise InvalidJob("shares", shares, "has no effect with --gpus or --workers", hint="leave it out")
    cpus, memory = per_gpu["cpus"], per_gpu["memory"]
    shape = OpenShape(
        least=least,
        most=most,
        shares=shares or "equal",
        gpus=gpus,
        workers=workers,
        cpus_per_gpu=None if cpus is None else parse_cpus("cpus", cpus).request,
        memory_per_gpu=None if memory is None else parse_memory("memory", memory).request,
        rank_per_gpu=rank_per_gpu,
    )
    if not numbers(shape):
        fixed = f"--gpus {gpus}" if gpus is not None else f"--workers {workers}"
        raise InvalidJob(
            "total_gpus", total, f"is not a multiple of {fixed}", hint="change one of them, or leave one out"
        )
    return shape


def numbers(shape: OpenShape) -> list[int]:
    """The numbers of GPUs that the run can have, the largest first."""
    return [
        number
        for number in range(shape.most, shape.least - 1, -1)
        if not number % (shape.gpus or 1)
        and not number % (shape.workers or 1)
        and (shape.gpus is None or shape.workers is None or number == shape.gpus * shape.workers)
    ]


def _range(text: object) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6})(?:\.\.(\d{1,6}))?", str(text).strip())
    if match is None or isinstance(text, bool):
        raise InvalidJob("total_gpus", text, "is not a number of GPUs", hint="a number, 6, or a range, 4..8")
    least, most = int(match[1]), int(match[2] or match[1])
    if not 0 < least <= most:
        raise InvalidJob("total_gpus", text, "is not a number of GPUs", hint="at least 1, the smaller first")
    return least, most
