"""The task of agents in pods: where things are there, how long they wait and stay. Pure.

The engine writes it into the record's ConfigMap when the run starts; every pod sees it as a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.record import Shipped
from echelon.engines.kubernetes.render.payload import parts
from echelon.engines.task import make_task
from echelon.model.plan import Plan
from echelon.model.run import Record

JOIN_TIMEOUT = 3600.0  # seconds: a peer's node may have to be made, and its image pulled, first


def pod_task(record: Record, plan: Plan, shipped: Shipped) -> dict[str, Any]:
    """The task of all agents of a run."""
    options = record.job.pod
    code = names.CODE if options.code is None else names.CODE_VOLUME
    output = names.OUTPUT if options.output is None else names.RESULTS_VOLUME
    bundle = None
    if shipped.code:
        bundle = {
            "parts": names.paths_of_parts(parts(shipped.code)),
            "digest": shipped.digest,
            "target": names.CODE,
        }
    return make_task(
        record,
        _with_own_threads(plan),
        code=code,
        output=output,
        logs=f"{output}/logs",
        reports=names.STATE,
        secret=names.GANG,
        leader=(names.leader_host(plan.run), names.PORT),
        bundle=bundle,
        join_timeout=JOIN_TIMEOUT,
        project=bundle is not None or options.code is not None,
        hold=hold_of(record),
        kept=kept_folders(record),
        control=names.CONTROL,
        termination=names.TERMINATION,
        pip=_pip(record, code, shipped),
        repeat_state=True,
        fresh=options.output is not None and not record.job.resume,
    )


def hold_of(record: Record) -> float:
    """How long workers keep their results once the run is over: on a volume they are safe."""
    options = record.job.pod
    return options.linger if options.output is None or options.collect else 0.0


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
