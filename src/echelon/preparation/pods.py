"""What a worker in a pod needs settled that one on this machine does not: requests, and the user's patch."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from echelon.errors import InvalidJob
from echelon.model.job import Job
from echelon.model.pods.patch import check_patch
from echelon.model.resources import Amount, Resources
from echelon.model.settings import Settings

# Of a worker for which none is given: a pod without any request is the first to be evicted (BestEffort), and
# a quota refuses it. Little, since nothing is known of the worker.
CPUS = Amount(request=0.1)
MEMORY = Amount(request=128 * 2**20)


def settle_pods(job: Job, settings: Settings, folder: Path) -> Job:
    """The same job with default requests and the patch that its file holds."""
    patch = {} if settings.pod_patch is None else _read_patch(settings.pod_patch, folder)
    return replace(
        job,
        resources=_with_requests(job.resources),
        roles=tuple(replace(role, resources=_with_requests(role.resources)) for role in job.roles),
        pod=replace(job.pod, patch=patch),
    )


def check_requirements(name: str | None, folder: Path) -> None:
    """Raise if the file that lists packages is none, also where nothing is installed: the same command is for
    a cluster, too. What it lists is checked where it is read.
    """
    if name is None or name.startswith("{code}"):  # among the code that is shipped
        return
    path = folder / name
    if path.is_file() and os.access(path, os.R_OK):
        return
    hint = f"name a file that lists packages, as pip reads it, from {folder} on; --pip names a package itself"
    problem = "is not a file that can be read" if path.exists() else "is not there"
    raise InvalidJob("requirements", name, problem, hint=hint)


def _with_requests(need: Resources) -> Resources:
    return replace(need, cpus=need.cpus or CPUS, memory=need.memory or MEMORY)


def _read_patch(name: str, folder: Path) -> dict[str, Any]:
    import yaml

    try:
        patch = yaml.safe_load((folder / name).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or str(error).replace("\n", " ")
        raise InvalidJob(
            "pod_patch", name, f"cannot be read: {why}", hint="a YAML file: spec: {...}"
        ) from None
    if not isinstance(patch, dict):
        raise InvalidJob("pod_patch", name, "is not a mapping", hint="a YAML file: spec: {...}")
    check_patch("pod_patch", patch)
    return patch
