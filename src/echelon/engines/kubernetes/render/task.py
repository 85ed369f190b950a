"""The task of agents in pods: where things are there, how long they wait and stay. Pure.

Every pod sees it as a file, from an annotation of its own: so a process that may only patch Jobs can change
it until they start. One that is too long for that (annotations are copied into every pod) is in the record's
ConfigMap. The plan is an annotation of the first Job."""

from __future__ import annotations

import base64
import json
import posixpath
import zlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from echelon.engines.decoding import decode
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.record import Shipped
from echelon.engines.kubernetes.render.payload import parts
from echelon.engines.task import make_task
from echelon.model.grace import grace_in_pods
from echelon.model.plan import Plan
from echelon.model.pods.pod import PodOptions
from echelon.model.pods.way_home import way_home
from echelon.model.run import Record

if TYPE_CHECKING:
    from echelon.engines.kubernetes.render.dialects import Dialect

_NONE: Mapping[str, str] = MappingProxyType({})
_LONGEST_TASK = 16 << 10  # characters of a task that every pod carries
_LONGEST = 64 << 10  # characters of a plan that an annotation holds as they are
_MOST = 32 << 20  # bytes of a plan, unpacked
GIVE_WAY = 300.0  # seconds at least that a gang waits for its workers' GPUs before it gives way to other runs
JOIN_TIMEOUT = 3600.0  # seconds: a peer's node may have to be made, and its image pulled, first


def pod_task(
    record: Record, plan: Plan, shipped: Shipped, variables: Mapping[str, str] = _NONE
) -> dict[str, Any]:
    """The task of all agents of a run. `variables` are for ranks whose user does not set them."""
    options = record.job.pod
    code = names.CODE if options.code is None else names.CODE_VOLUME
    output = names.OUTPUT if options.output is None else names.RESULTS_VOLUME
    bundle = _bundle(shipped)
    task = make_task(
        record,
        _with_own_threads(plan),
        code=code,
        output=output,
        logs=f"{output}/logs",
        reports=names.STATE,
        secret=names.GANG,
        leader=(names.leader_host(record.job.name), names.PORT),
        bundle=bundle,
        join_timeout=JOIN_TIMEOUT,
        grace=grace_in_pods(record.job, tuple(group.role for group in plan.world.groups)),
        project=bundle is not None or options.code is not None,
        hold=way_home(options).hold,
        kept=kept_folders(record),
        control=names.CONTROL,
        termination=names.TERMINATION,
        pip=_pip(record, code, shipped),
        repeat_state=True,
        leader_pod=names.leader_pod(record.job.name),
        fresh=options.output is not None and not record.job.resume,
        **_giving_way(plan),
        **_keeping(options),
    )
    return {**task, "env": {**variables, **task["env"]}}


def write_task(
    record: Record,
    plan: Plan,
    shipped: Shipped,
    dialect: Dialect,
    variables: Mapping[str, str] = _NONE,
) -> str:
    """The task as the agents read it, of pods that a controller of this dialect makes."""
    task = {**pod_task(record, plan, shipped, variables), **dialect.TASK}
    task["leader"] = {**task["leader"], "host": dialect.leader_service(record.job.name)}
    return json.dumps(task)


def is_short(task: str) -> bool:
    """Whether a task is an annotation of the pods; else it is in the record."""
    return len(task) <= _LONGEST_TASK


def write_plan(plan: Plan) -> str:
    """A plan as the value of an annotation: JSON, or compressed where it is long. All annotations of an
    object have 256 KiB, and a thousand workers need as much.
    """
    written = msgspec.json.encode(plan)
    if len(written) <= _LONGEST:
        return written.decode()
    return base64.b64encode(zlib.compress(written)).decode()


def read_plan(text: str) -> Plan | None:
    """The plan that `write_plan` wrote; None for anything else, which any user may have put there."""
    try:
        if text.startswith("{"):
            return decode(text, Plan)
        unpacked = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), _MOST)
        return decode(unpacked.decode(), Plan)
    except (ValueError, RecursionError, zlib.error):
        return None


def _giving_way(plan: Plan) -> dict[str, Any]:
    """Only workers that wait for GPUs can keep another run from its own; a single one is always whole. A run
    that waits may get another number of workers, and its task stays.
    """
    wants_gpus = any(group.resources.gpus for group in plan.world.groups)
    return {"give_way": GIVE_WAY} if wants_gpus else {}


def _bundle(shipped: Shipped) -> dict[str, Any] | None:
    """Where the agents find the code's archive."""
    if not shipped.digest:
        return None
    found: dict[str, Any] = {"digest": shipped.digest, "target": names.CODE}
    if shipped.sent:
        return {**found, "sent": names.sent_code(shipped.digest), "size": shipped.sent}
    stored = f"{names.CODE_STORE}/{names.stored_code(shipped.digest)}"
    return {**found, "parts": names.paths_of_parts(parts(shipped.code)) if shipped.code else [stored]}


def _keeping(options: PodOptions) -> dict[str, Any]:
    if options.keeper is None:
        return {}
    folder = {}
    if options.checkpoints is not None and options.output is None:
        folder = {"checkpoints": posixpath.join(names.OUTPUT, options.checkpoints)}
    return {
        **folder,
        "keep": options.keeper.keep,
        "keep_size": options.keeper.size,
        "keep_folder": names.KEPT,
        "keeper_port": names.PORT,
    }


def kept_folders(record: Record) -> list[str]:
    """The folders of a pod with results that are on no volume."""
    options = record.job.pod
    return [*((names.OUTPUT,) if options.output is None else ()), *options.collect]


def _with_own_threads(plan: Plan) -> Plan:
    """The plan, with 0 threads where no CPUs were requested: the agent knows what its pod may use."""
    threads = (
        count if group.resources.cpus is not None else 0
        for group, count in zip(plan.world.groups, plan.threads, strict=True)
    )
    return replace(plan, threads=tuple(threads))


def _pip(record: Record, code: str, shipped: Shipped) -> dict[str, Any] | None:
    options = record.job.pod
    if not options.pip and options.requirements is None:
        return None
    requirements = None
    if options.requirements is not None:
        among_code = options.requirements.startswith("{code}")
        requirements = options.requirements.replace("{code}", code) if among_code else names.REQUIREMENTS
    return {
        "packages": list(options.pip),
        "requirements": requirements,
        "wheel_parts": names.paths_of_wheel(parts(shipped.wheel)) or None,
    }
