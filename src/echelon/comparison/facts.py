"""What a run was asked to do, each thing with its name, so that runs can be laid beside each other. Pure.

The value of a secret is in no record, and one that stands in an argument or a variable is never shown:
what stands in its place says whether it differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from echelon.model.job import STEP, Job, Role
from echelon.model.plan import Plan
from echelon.model.resources import Resources, format_memory
from echelon.sweeps.spaces import PARAM, PARAMS
from echelon.tracking.facts import arguments_of, is_secret
from echelon.values import frozen

HIDDEN = "(hidden)"
_SHOWN = (
    *("name", "script", "module", "command", "args", "workers", "procs", "resources", "shape", "roles"),
    *("framework", "env", "secrets", "python", "pod.image", "pod.pip", "pod.requirements"),
)  # what has a place of its own
_NO_MATTER = ("results", "resume", "earlier", "cwd", "snapshot", "include", "tracking", "parent", "program")
_ORDER = (
    *("program", "parameter", "argument", "environment", "secret"),
    *("image", "packages", "size", "place", "setting"),
)
_NOTHING = ("", "[]", "null")


class Topic(NamedTuple):
    """What a fact is about: `argument`, `image`, `size` ...; and its name there, which may be empty."""

    about: str
    name: str = ""


@frozen
class Difference:
    """A fact that is not the same for all runs: its value for each, None where there is none."""

    about: str
    name: str
    values: tuple[str | None, ...]


def facts_of(job: Job, plan: Plan | None) -> dict[Topic, str]:
    """All that is known of a run before it begins."""
    found: dict[Topic, str] = {}
    for topic, value in _facts(job, plan):
        if value in _NOTHING:
            continue
        found[topic] = f"{found[topic]} {value}" if topic in found else value  # an argument may come twice
    return found


def differences(facts: Sequence[Mapping[Topic, str]]) -> list[Difference]:
    """What is not the same for all. A parameter that is passed on as an argument is listed once."""
    topics = dict.fromkeys(topic for each in facts for topic in each)
    topics = dict.fromkeys(sorted(topics, key=lambda topic: _ORDER.index(topic.about)))
    found = []
    for topic in topics:
        values = tuple(each.get(topic) for each in facts)
        if len(set(values)) > 1:
            shown = tuple(None if value is None else _shown(topic, value) for value in values)
            found.append(Difference(about=topic.about, name=topic.name, values=shown))
    passed = {each.values for each in found if each.about == "parameter"}
    return [each for each in found if each.about != "argument" or each.values not in passed]


def _facts(job: Job, plan: Plan | None) -> Iterator[tuple[Topic, str]]:
    yield from _program("", job.script or job.module or " ".join(job.command[:1]), job.command, job.args)
    for name, value in job.env.items():
        if name.startswith(PARAM):
            yield Topic("parameter", name.removeprefix(PARAM).lower()), value
        elif name not in (STEP, PARAMS):
            yield Topic("environment", name), value
    for secret in job.secrets:
        yield Topic("secret", secret.name), "given" if secret.file is None else f"from {secret.file}"
    if job.pod.image:
        yield Topic("image"), job.pod.image
    yield Topic("packages", "pip"), " ".join(job.pod.pip)
    yield Topic("packages", "requirements"), job.pod.requirements or ""
    yield Topic("packages", "python"), job.python or ""
    yield Topic("size", "framework"), job.framework
    yield from _size(job, plan)
    for role in job.roles:
        yield from _program(f"{role.name} ", " ".join(role.command[:1]), role.command, role.args or ())
        for name, value in role.env.items():
            yield Topic("environment", f"{role.name} {name}"), value
        if role.image:
            yield Topic("image", role.name), role.image
    if plan is not None:
        yield Topic("place", "nodes"), ", ".join(sorted({seat.node for seat in plan.placement.seats}))
    for path, leaf in _flat("", msgspec.to_builtins(job)):
        if path not in _SHOWN and path.partition(".")[0] not in (*_SHOWN, *_NO_MATTER):
            yield Topic("setting", path), leaf


def _program(
    role: str, program: str, command: Sequence[str], args: Sequence[str]
) -> Iterator[tuple[Topic, str]]:
    yield Topic("program", role.strip()), program
    for name, value in arguments_of((*command[1:], *args)):
        yield Topic("argument", f"{role}{name}".strip()), value


def _size(job: Job, plan: Plan | None) -> Iterator[tuple[Topic, str]]:
    """How many workers, ranks and resources: as placed, or, without a plan, as requested."""
    groups: list[tuple[str, int, int, Resources]] = []
    if plan is not None:
        groups = [(each.role, each.workers, each.procs, each.resources) for each in plan.world.groups]
    elif job.shape is None:
        parts: tuple[Role, ...] = job.roles
        groups = [("worker", job.workers, job.procs, job.resources)]
        groups += [(each.name, each.workers, each.procs, each.resources) for each in parts]
    sizes: dict[Topic, list[str]] = {}
    for role, workers, procs, need in groups:
        of = "" if role == "worker" else f"{role} "
        for name, value in (("workers", str(workers)), ("processes", str(procs)), *_needs(need)):
            sizes.setdefault(Topic("size", f"{of}{name}"), []).append(value)
    for topic, values in sizes.items():
        yield topic, "+".join(values)


def _needs(need: Resources) -> Iterator[tuple[str, str]]:
    yield "gpus", str(need.gpus)
    yield "gpu type", need.gpu_type or ""
    for name, amount in (("cpus", need.cpus), ("memory", need.memory)):
        shown = str if name == "cpus" else format_memory
        parts = () if amount is None else (amount.request, amount.limit)
        yield name, ":".join(shown(part) for part in parts if part is not None)
    for name, count in need.other.items():
        yield name, str(count)


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """The leaves of plain data. What is in a list goes by its name, where it has one, as in a pod's
    template.
    """
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _flat(f"{path}.{name}" if path else str(name), each)
    elif isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value):
            yield from _flat(f"{path}.{each.get('name', number)}", each)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def _shown(topic: Topic, value: str) -> str:
    return HIDDEN if topic.about != "secret" and any(map(is_secret, topic.name.split("."))) else value
