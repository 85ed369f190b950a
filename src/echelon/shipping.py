"""What changes when a run's workers are not on this machine: code travels, and outputs may stay behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from echelon.errors import InvalidJob
from echelon.model.job import Job
from echelon.model.settings import Settings

_OUTPUT_NAME = re.compile(r"out|save|checkpoint|ckpt|log|model|result|tensorboard|export|dump", re.IGNORECASE)
_NOT_A_PATH = re.compile(r"^-?\d|^[\w-]+$|://")


def settle_remote(job: Job, settings: Settings) -> Job:
    """The same job for remote workers: its code travels or lies on a volume, and Python is the image's."""
    if settings.detach and settings.output is None and settings.linger is None:
        raise InvalidJob(
            "detach",
            "-d",
            "leaves no command to fetch the results from the workers",
            hint="--output pvc:NAME or new:10Gi keeps them on a volume; --linger 1h keeps the workers, and "
            "what they hold, so much longer for `echelon get`",
        )
    if job.pod.code is not None:
        return replace(job, snapshot=False, cwd="{code}")
    return replace(job, snapshot=True)


def paths_that_stay(job: Job) -> Iterator[str]:
    """Output paths among the arguments that are not fetched: no {output}, no mount, no --collect."""
    kept = [PurePosixPath(path) for path in (*(mount.path for mount in job.pod.mounts), *job.pod.collect)]
    for name, value in _options(job.args):
        if "{output}" in value or not _OUTPUT_NAME.search(name) or _NOT_A_PATH.search(value):
            continue
        path = PurePosixPath(value)
        if not any(path == place or place in path.parents for place in kept):
            yield value


def notes_on_paths(job: Job) -> tuple[str, ...]:
    """Which output paths stay behind, for the user to read before the run starts."""
    return tuple(
        f"what the script writes to {path} stays in its pod; {{output}}/... is fetched, and so is "
        f"--collect {path}"
        for path in paths_that_stay(job)
    )


def _options(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every `--name value` and `--name=value`."""
    for word, following in zip(args, [*args[1:], ""], strict=False):
        if not word.startswith("-"):
            continue
        name, separator, value = word.partition("=")
        if separator:
            yield name, value
        elif following and not following.startswith("-"):
            yield name, following
