"""The replica types of a job, each a role or the ordinary workers, put together as settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from echelon.errors import InvalidJob
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.nodes import Node, child, fields, number, one_of, refuse
from echelon.kubeflow.pod import Reader, Worker, read_pod
from echelon.model.settings import RoleSettings, Settings
from echelon.values import frozen

WORKER = "worker"
RESTARTS = ("Never", "OnFailure", "Always", "ExitCode")
_CPU_ONLY = ("ps", "launcher")  # roles that get no GPU unless they ask for one


@frozen
class Part:
    """A replica type: the role that it plays, how often, and one of its pods."""

    role: str
    replicas: int
    worker: Worker
    restarts: bool


def read_replicas(
    specs: Node, roles: Mapping[str, str], reader: Reader, *, restart: str, notes: list[str]
) -> list[Part]:
    """Read `...ReplicaSpecs`. `roles` has the role of every replica type; types may be in any case, as in
    Kubeflow. `restart` is the kind's default policy. Types without replicas are left out.
    """
    known = {name.lower(): name for name in roles}
    found = []
    for key, spec in fields(specs).items():
        name = known.get(key.lower())
        if name is None:
            raise refuse(
                Node(value=key, at=spec.at), "is not a replica type", f"there are {', '.join(roles)}"
            )
        parts = fields(spec, ("replicas", "template", "restartPolicy"))
        replicas = number(parts.get("replicas"))
        role = roles[name]
        if role in ("chief", "launcher") and replicas not in (None, 1):
            raise refuse(parts["replicas"], f"is not 1: there is one {name}", "replicas: 1")
        policy = one_of(parts["restartPolicy"], RESTARTS) if "restartPolicy" in parts else restart
        worker = read_pod(child(spec, "template"), reader, notes)
        if replicas != 0:
            found.append(Part(role=role, replicas=replicas or 1, worker=worker, restarts=policy != "Never"))
    if len({part.role for part in found}) < len(found):
        raise refuse(specs, "has two types of the same role", "keep one of Chief and Master")
    if not found:
        raise refuse(specs, "has no replicas", f"add {list(roles)[-1]}: with replicas and a template")
    return found


def settings_of(parts: Sequence[Part], notes: list[str], *, join_chief: bool = False) -> dict[str, Any]:
    """The settings for all parts together: those of the ordinary workers, and roles for what differs.

    With `join_chief`, a chief that is like the workers is one more of them, and without workers it is the
    only one."""
    parts = list(parts)
    chief = next((part for part in parts if part.role == "chief"), None)
    workers = next((part for part in parts if part.role == WORKER), None)
    if chief is not None and join_chief and (workers is None or workers.worker == chief.worker):
        others = [part for part in parts if part not in (chief, workers)]
        count = chief.replicas + (workers.replicas if workers is not None else 0)
        parts = [replace(chief, role=WORKER, replicas=count), *others]
    base = next((part for part in parts if part.role == WORKER), None)
    if base is None:
        hint = "a run has workers beside its other roles"
        raise InvalidJob("Worker", 0, "is the number of workers", hint=hint)
    roles = [part for part in parts if part is not base]
    alike = all(_mounts(part.worker) == _mounts(base.worker) for part in roles)
    own = base.worker
    made: dict[str, Any] = {
        "command": own.command,
        "args": own.args or None,
        "workers": base.replicas,
        "env": dict(own.env) or None,
        "image": own.image,
        "pull": own.pull,
        "gpus": own.needs.gpus or None,
        "cpus": own.needs.cpus,
        "memory": own.needs.memory,
        "resource": dict(own.needs.resource) or None,
        "mount": (tuple(mount for mount in _mounts(own) if mount) or None) if alike else None,
        "shm": next((each.memory for part in parts for each in part.worker.volumes if each.memory), None),
        "template": dict(own.template if alike else own.whole) or None,
    }
    if roles:
        made["roles"] = {part.role: _role(part, base, notes, alike=alike) for part in roles}
    return {name: value for name, value in made.items() if value is not None}


def _role(part: Part, base: Part, notes: list[str], *, alike: bool) -> RoleSettings:
    """What a role has of its own; what it leaves open is as for the workers."""
    mine, theirs = part.worker, base.worker
    same_command = (mine.command, mine.args) == (theirs.command, theirs.args)
    template = dict(mine.template if alike else mine.whole)
    default = dict(theirs.template if alike else theirs.whole)
    extra = sorted(set(theirs.env) - set(mine.env))
    if extra:
        notes.append(f"{part.role}: it gets the workers' variables too: {', '.join(extra)}")
    if mine.needs.resource != (theirs.needs.resource if mine.needs.gpus else {}):
        notes.append(f"{part.role}: it cannot have other devices than the workers have")
    notes += [
        f"{part.role}: it requests as much {name} as a worker, since it requests none"
        for name in ("cpus", "memory")
        if getattr(mine.needs, name) is None and getattr(theirs.needs, name) is not None
    ]
    if mine.pull != theirs.pull:
        notes.append(f"{part.role}: its image is pulled as the workers' is")
    gpus = 0 if part.role in _CPU_ONLY else theirs.needs.gpus
    return RoleSettings(
        workers=part.replicas,
        gpus=mine.needs.gpus if mine.needs.gpus != gpus else None,
        cpus=mine.needs.cpus if mine.needs.cpus != theirs.needs.cpus else None,
        memory=mine.needs.memory if mine.needs.memory != theirs.needs.memory else None,
        command=None if same_command else mine.command,
        args=None if same_command else mine.args or None,
        env={name: value for name, value in mine.env.items() if theirs.env.get(name) != value} or None,
        image=mine.image if mine.image != theirs.image else None,
        template=None if template == default else template or {"metadata": {}},
    )


def _mounts(worker: Worker) -> list[str]:
    return [each.mount for each in worker.volumes if each.memory is None]


def manifest_of(kind: str, settings: Settings, parts: Sequence[Part], notes: Sequence[str]) -> Manifest:
    """A job of these parts."""
    volumes = {each.path: each for part in reversed(parts) for each in part.worker.volumes}
    return Manifest(
        kind=kind,
        settings=settings,
        notes=tuple(notes),
        volumes=tuple(volumes.values()),
        workdir=next((part.worker.workdir for part in parts if part.worker.workdir), None),
        unknown_env=tuple(dict.fromkeys(name for part in parts for name in part.worker.unknown_env)),
    )
