"""What the tags of a step ask for, as settings of its run: on this machine, and in pods. Pure, but for the
look at this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from echelon.engines.base import Engine
from echelon.errors import InvalidJob
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.pods.template import CONTAINER
from echelon.model.resources import parse_cpus, parse_memory
from echelon.model.settings import IN_PODS, RoleSettings, Settings, merge
from echelon.notebook.analysis.pipeline import Step


def local_settings(step: Step, engine: Engine) -> Settings:
    """On this machine. A limit larger than it means all of it; a secret is a variable that is set here."""
    own = _settings_of(step)
    for _secret, _key, variable in step.options.secrets:
        if variable not in os.environ:
            hint = f"export {variable} before the start"
            raise InvalidJob(f"step {step.name}: secret", variable, "is not set here", hint=hint)
    cpus, memory = own.cpus, own.memory
    if cpus is not None or memory is not None:
        nodes = engine.cluster(gpus=False).nodes
        if cpus is not None and nodes:
            most = max(node.cpus for node in nodes) / step.size.workers
            cpus = cpus if parse_cpus("limit:cpu", cpus).request <= most else f"{most:g}"
        if memory is not None and nodes:
            most = max(node.memory for node in nodes) / step.size.workers
            asked = parse_memory("limit:memory", memory).request
            memory = memory if asked <= most else str(int(most))
    secrets = [variable for _secret, _key, variable in step.options.secrets]
    here: dict[str, Any] = {"cpus": cpus, "memory": memory, "secret": secrets or None}
    return replace(own, **dict.fromkeys(IN_PODS), **here)


def asked_for(step: Step) -> tuple[float, float]:
    """The cores and the memory of all workers of a step, by its limits: a worker without has one core."""
    cpus, memory = step.options.settings.cpus, step.options.settings.memory
    cores = 1.0 if cpus is None else parse_cpus("limit:cpu", cpus).request
    held = 0.0 if memory is None else parse_memory("limit:memory", memory).request
    return step.size.workers * cores, step.size.workers * held


def pod_settings(step: Step, base: Settings, image: str | None) -> Settings:
    """In pods: limits are requests too, as Kubernetes has it for a pod with limits alone, and secrets come
    from the cluster's own. `base` is what holds for every step; `image` that of a step without one.
    """
    own = _settings_of(step)
    asked: dict[str, Any] = {
        name: f"{text}:{text}" for name in ("cpus", "memory") if (text := getattr(own, name)) is not None
    }
    return merge(replace(own, **asked, template=_with_secrets(step)), replace(base, image=image))


def job_of(settings: Settings) -> Job:
    """A step's job, as far as its pods are concerned: whatever they run."""
    return to_job(replace(settings, command=("step",)), name="step")


def secret_variables(step: Step) -> list[dict[str, Any]]:
    """The variables of a container that come from the cluster's Secrets."""
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for secret, key, variable in step.options.secrets
    ]


def _settings_of(step: Step) -> Settings:
    """What the tags say, and how many workers of what kind that makes."""
    size, said = step.size, step.options.settings
    roles: Mapping[str, int | RoleSettings] | None = None
    if size.coordinated:
        roles = {"chief": RoleSettings(workers=1, gpus=0), "ps": size.parameter_servers}
    for name, count in (said.resource or {}).items():
        if not isinstance(count, int):
            raise InvalidJob(
                f"step {step.name}: limit:{name}", count, "is not a number", hint=f"limit:{name}:1"
            )
    return replace(
        said,
        workers=size.workers,
        procs=None if size.framework == "torch" and step.gpus else 1,
        gpus=step.gpus or None,
        roles=roles,
        framework=size.framework,  # type: ignore[arg-type]  # of those that it knows
    )


def _with_secrets(step: Step) -> dict[str, Any] | None:
    """A pod template with a variable for each `secret:` tag."""
    variables = secret_variables(step)
    return {"spec": {"containers": [{"name": CONTAINER, "env": variables}]}} if variables else None
