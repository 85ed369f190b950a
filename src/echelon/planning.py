"""From a job and a placement to the plan: pure, shared by the dry run and the submission."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.frameworks import launch
from echelon.model.cluster import Cluster, matches_type
from echelon.model.job import Job
from echelon.model.plan import Placement, Plan
from echelon.model.world import Group, World, members


def make_world(job: Job) -> World:
    """Who takes part: the chief first, then the workers, then those who serve them.

    Parameter servers and the evaluator serve until the others have ended. Where a chief drives parameter
    servers, the workers serve it too, and the chief's end is the run's."""
    named = {role.name for role in job.roles}
    workers = Group(
        workers=job.workers,
        procs=job.procs,
        resources=job.resources,
        essential=not {"chief", "ps"} <= named,
    )
    roles = [
        Group(
            role=role.name,
            workers=role.workers,
            procs=1,
            resources=role.resources,
            essential=role.name == "chief",
        )
        for role in job.roles
    ]
    chief = [group for group in roles if group.role == "chief"]
    return World(groups=(*chief, workers, *(group for group in roles if group.role != "chief")))


def make_plan(job: Job, placement: Placement, cluster: Cluster) -> Plan:
    """Everything that the engine needs to start the run.

    The job's framework and Python are settled by now.
    """
    world = make_world(job)
    argv = command_line(job)
    return Plan(
        run=job.name,
        framework=job.framework,
        world=world,
        launches=tuple(launch(job.framework, argv, world, number) for number in range(len(world.groups))),
        placement=placement,
        env=job.env,
        secrets=tuple(secret.name for secret in job.secrets),
        threads=tuple(threads_per_rank(world, placement, cluster)),
        restarts=job.restarts,
        timeout=job.timeout,
        gpu_models=gpu_models(world, cluster),
    )


def gpu_models(world: World, cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """For each type of GPU that is asked for, the models that it means in this cluster."""
    there = {gpu.model for node in cluster.nodes for gpu in node.gpus}
    wanted = {group.resources.gpu_type for group in world.groups}
    return {
        kind: tuple(sorted(model for model in there if matches_type(kind, model)))
        for kind in wanted
        if kind is not None
    }


def command_line(job: Job) -> tuple[str, ...]:
    """What one rank runs."""
    if job.command:
        return (*job.command, *job.args)
    python = job.python or "python3"
    if job.module is not None:
        return (python, "-m", job.module, *job.args)
    assert job.script is not None
    return (python, job.script, *job.args)


def threads_per_rank(world: World, placement: Placement, cluster: Cluster) -> list[int]:
    """For each group, the computing threads that a rank gets if the user has not said: its share of the CPUs.

    Numeric libraries start as many threads as the machine has cores, in every rank; the ranks of one machine
    then fight for them. Where a worker's node is not known beforehand it is 0: its agent decides."""
    cpus = {node.name: node.cpus for node in cluster.nodes}
    load: dict[str, int] = {}
    for member, seat in zip(members(world), placement.seats, strict=True):
        load[seat.node] = load.get(seat.node, 0) + member.procs
    shares: Mapping[str, float] = {node: cpus[node] / ranks for node, ranks in load.items() if node in cpus}
    threads = []
    for number, group in enumerate(world.groups):
        if group.resources.cpus is not None:
            share = group.resources.cpus.request / group.procs
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
