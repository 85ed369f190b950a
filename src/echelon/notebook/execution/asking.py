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
from echelon.model.pods.template import CONTAINER, merge_under
from echelon.model.resources import parse_cpus, parse_memory
from echelon.model.settings import RoleSettings, Settings
from echelon.notebook.analysis.pipeline import Step

_KNOWN = ("cpu", "memory", "nvidia.com/gpu")


def local_settings(step: Step, engine: Engine) -> Settings:
    """On this machine. A limit larger than it means all of it; a secret is a variable that is set here."""
    size, limits = step.size, step.options.limits
    for _secret, _key, variable in step.options.secrets:
        if variable not in os.environ:
            hint = f"export {variable} before the start"
            raise InvalidJob(f"step {step.name}: secret", variable, "is not set here", hint=hint)
    cpus, memory = limits.get("cpu"), limits.get("memory")
    if cpus is not None or memory is not None:
        nodes = engine.cluster(gpus=False).nodes
        if cpus is not None and nodes:
            most = max(node.cpus for node in nodes) / size.workers
            cpus = cpus if parse_cpus("limit:cpu", cpus).request <= most else f"{most:g}"
        if memory is not None and nodes:
            most = max(node.memory for node in nodes) / size.workers
            asked = parse_memory("limit:memory", memory).request
            memory = memory if asked <= most else str(int(most))
    secrets = [variable for _secret, _key, variable in step.options.secrets]
    return replace(_of_size(step), cpus=cpus, memory=memory, secret=secrets or None)


def asked_for(step: Step) -> tuple[float, float]:
    """The cores and the memory of all workers of a step, by its limits: a worker without has one core."""
    cpus, memory = step.options.limits.get("cpu"), step.options.limits.get("memory")
    cores = 1.0 if cpus is None else parse_cpus("limit:cpu", cpus).request
    held = 0.0 if memory is None else parse_memory("limit:memory", memory).request
    return step.size.workers * cores, step.size.workers * held


def pod_settings(step: Step, base: Settings, image: str | None) -> Settings:
    """In pods: limits are requests too, as Kubernetes has it for a pod with limits alone, and secrets come
    from the cluster's own. `base` is what holds for every step; `image` that of a step without one.
    """
    limits, options = step.options.limits, step.options
    asked = {name: f"{text}:{text}" for name in ("cpu", "memory") if (text := limits.get(name)) is not None}
    own = _of_size(step)
    return replace(
        base,
        **{name: getattr(own, name) for name in ("workers", "procs", "gpus", "roles", "framework")},
        cpus=asked.get("cpu") or base.cpus,
        memory=asked.get("memory") or base.memory,
        resource={**(base.resource or {}), **(own.resource or {})} or None,
        image=options.image or image,
        label={**(base.label or {}), **options.labels} or None,
        annotation={**(base.annotation or {}), **options.annotations} or None,
        template=merge_under(base.template or {}, _with_secrets(step)) or None,
    )


def job_of(settings: Settings) -> Job:
    """A step's job, as far as its pods are concerned: whatever they run."""
    return to_job(replace(settings, command=("step",)), name="step")


def secret_variables(step: Step) -> list[dict[str, Any]]:
    """The variables of a container that come from the cluster's Secrets."""
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for secret, key, variable in step.options.secrets
    ]


def _of_size(step: Step) -> Settings:
    """How many workers of what kind."""
    size = step.size
    roles: Mapping[str, int | RoleSettings] | None = None
    if size.coordinated:
        roles = {"chief": RoleSettings(workers=1, gpus=0), "ps": size.parameter_servers}
    others = {name: _count(step, name, text) for name, text in step.options.limits.items()}
    return Settings(
        workers=size.workers,
        procs=None if size.framework == "torch" and size.gpus else 1,
        gpus=size.gpus or None,
        resource={name: count for name, count in others.items() if name not in _KNOWN} or None,
        roles=roles,
        framework=size.framework,  # type: ignore[arg-type]  # of those that it knows
    )


def _count(step: Step, name: str, text: str) -> int:
    if name in _KNOWN:
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise InvalidJob(f"step {step.name}: limit:{name}", text, "is not a number", hint=f"limit:{name}:1")
    return int(text)


def _with_secrets(step: Step) -> dict[str, Any]:
    """A pod template with a variable for each `secret:` tag."""
    variables = secret_variables(step)
    return {"spec": {"containers": [{"name": CONTAINER, "env": variables}]}} if variables else {}
