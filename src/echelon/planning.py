"""From a job to the worlds that would serve it, and from a placed world to the plan.

Pure, and shared by the dry run and the submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from echelon.frameworks import launch
from echelon.model.cluster import Cluster, matches_type
from echelon.model.job import LEADING, Job, Role, role_named
from echelon.model.plan import Launch, Placement, Plan
from echelon.model.world import Group, World, members


def candidates(job: Job, cluster: Cluster) -> Sequence[World]:  # noqa: ARG001 - a job that leaves its shape open needs it
    """The worlds that would serve a job, the best first: the only place where a World is made from a Job.

    The group that leads comes first (the launcher, else the chief), then the workers, then the groups that
    serve them until they have ended. A launcher's end is the run's, whatever the workers do; and so is the
    end of a chief that drives parameter servers, for the workers would wait for more for ever."""
    named = {role.name for role in job.roles}
    workers = Group(
        workers=job.workers,
        procs=job.procs,
        resources=job.resources,
        essential="launcher" not in named and not {"chief", "ps"} <= named,
    )
    roles = [
        Group(
            role=role.name,
            workers=role.workers,
            procs=role.procs,
            resources=role.resources,
            essential=role.name == "launcher" or (role.name == "chief" and "launcher" not in named),
        )
        for role in job.roles
    ]
    leading = sorted((g for g in roles if g.role in LEADING), key=lambda g: LEADING.index(g.role))
    serving = [group for group in roles if group.role not in LEADING]
    return (World(groups=(*leading, workers, *serving)),)


def make_plan(job: Job, world: World, placement: Placement, cluster: Cluster) -> Plan:
    """Everything that the engine needs to start the run.

    The job's framework and Python are settled by now.
    """
    return Plan(
        run=job.name,
        framework=job.framework,
        world=world,
        launches=tuple(_launch(job, world, number) for number in range(len(world.groups))),
        placement=placement,
        env=job.env,
        secrets=tuple(secret.name for secret in job.secrets),
        threads=tuple(threads_per_rank(world, placement, cluster)),
        restarts=job.restarts,
        timeout=job.timeout,
        gpu_models=gpu_models(world, cluster),
    )


def _launch(job: Job, world: World, number: int) -> Launch:
    role = role_named(job, world.groups[number].role)
    made = launch(job.framework, command_line(job, role), world, number)
    return made if role is None else replace(made, env=role.env)


def gpu_models(world: World, cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """For each type of GPU that is asked for, the models that it means in this cluster."""
    there = {gpu.model for node in cluster.nodes for gpu in node.gpus}
    wanted = {group.resources.gpu_type for group in world.groups}
    return {
        kind: tuple(sorted(model for model in there if matches_type(kind, model)))
        for kind in wanted
        if kind is not None
    }


def command_line(job: Job, role: Role | None = None) -> tuple[str, ...]:
    """What one rank runs: the role's own command, or the job's, perhaps with the role's arguments."""
    if role is not None and role.command:
        return (*role.command, *(role.args or ()))
    args = job.args if role is None or role.args is None else role.args
    if job.command:
        return (*job.command, *args)
    python = job.python or "python3"
    if job.module is not None:
        return (python, "-m", job.module, *args)
    assert job.script is not None
    return (python, job.script, *args)


def threads_per_rank(world: World, placement: Placement, cluster: Cluster) -> list[int]:
    """For each group, the compute threads that a rank gets if the user sets none: its share of the CPUs.

    Numeric libraries start as many threads as the machine has cores, in every rank; the ranks of one machine
    then compete for them. Where a worker's node is not known beforehand it is 0: its agent decides."""
    cpus = {node.name: node.cpus for node in cluster.nodes}
    load: dict[str, int] = {}
    for member, seat in zip(members(world), placement.seats, strict=True):
        load[seat.node] = load.get(seat.node, 0) + max(1, member.procs)
    shares: Mapping[str, float] = {node: cpus[node] / ranks for node, ranks in load.items() if node in cpus}
    threads = []
    for number, group in enumerate(world.groups):
        if group.resources.cpus is not None:
            share = group.resources.cpus.request / max(1, group.procs)
        else:
            seats = [
                seat
                for member, seat in zip(members(world), placement.seats, strict=True)
                if member.group == number
            ]
            if any(seat.node not in shares for seat in seats):
                threads.append(0)
                continue
            share = min(shares[seat.node] for seat in seats)
        threads.append(max(1, int(share)))
    return threads
