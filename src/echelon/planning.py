"""From a job to the worlds that would serve it, and from a placed world to the plan.

Pure, and shared by the dry run and the submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from echelon.errors import Unplaceable
from echelon.frameworks import SMALLEST_FIRST, launch
from echelon.frameworks.mpi import launch_once
from echelon.model.engine.cluster import Cluster, matches_type
from echelon.model.job import LEADING, Job, Role, role_named
from echelon.model.open_shape import OpenShape, numbers
from echelon.model.plan import Launch, Placement, Plan, Seat
from echelon.model.resources import Resources
from echelon.model.world import Group, World, members, sizes
from echelon.placement import NoRoom, place
from echelon.values import frozen


@frozen
class Candidate:
    """A world that would serve a job. `nodes`, one for each worker, are those it was chosen for, if any."""

    world: World
    nodes: tuple[str, ...] = ()


def candidates(job: Job, cluster: Cluster) -> Sequence[Candidate]:
    """The worlds that would serve a job, the best first: the only place where a World is made from a Job.

    A job that gives its shape has one; of a range of workers, as many as there is room for now, or else the
    fewest. Of a range of GPUs, or where only the number of GPUs is given, the shape that the cluster has room
    for now is chosen, or else the one that an empty cluster would have room for; Unplaceable if there is
    none."""
    shape = job.shape
    if job.least is not None:
        return (Candidate(world=_as_many_as_fit(job, job.least, cluster)),)
    if shape is None:
        return (Candidate(world=_world(job, [_workers(job, job.workers, job.resources, job.procs)])),)
    if shape.gpus is not None or shape.workers is not None:
        return [Candidate(world=_world(job, [each])) for each in _of_sizes(job, shape, cluster)]
    from echelon.placement.open import choose_shape, models_to_choose_from  # of most runs the shape is given

    chosen = choose_shape(shape, job.resources, cluster)
    several = len(models_to_choose_from(job.resources, cluster)) > 1
    return (_of_shares(job, shape, chosen.shares, chosen.model if several else None),)


def _as_many_as_fit(job: Job, least: int, cluster: Cluster) -> World:
    """The world of a run whose number of workers changes, with those that it can start with now."""
    from echelon.placement.place import best_of_range

    def world(number: int) -> World:
        return _world(job, [_workers(job, number, job.resources, job.procs)])

    found = best_of_range([(job.resources, least, job.workers)], cluster) if cluster.known else None
    number = least if found is None else found[1]
    return world(number if room_now(world(number), cluster) is not None else least)


def room_now(world: World, cluster: Cluster) -> Placement | None:
    """Where the workers of a world go, if there is room for all of them now."""
    try:
        found = place(world, cluster)
    except Unplaceable:
        return None
    return None if isinstance(found, NoRoom) else found


def _all_seats(job: Job, world: World, placement: Placement) -> tuple[World, Placement]:
    """The world with all seats that it may come to have; those that are empty are on no node."""
    if job.least is None:
        return world, placement
    (group,) = world.groups
    empty = (Seat(worker=worker, node="") for worker in range(group.workers, job.workers))
    whole = World(groups=(replace(group, workers=job.workers, least=job.least),))
    return whole, Placement(seats=(*placement.seats, *empty))


def _of_sizes(job: Job, shape: OpenShape, cluster: Cluster) -> Sequence[Group]:
    """Equal workers, where the user fixed the size of one or their number: of a range, as many GPUs as have
    the narrowest span. Where workers of other roles need room too, the other numbers are worth a try.
    """
    from echelon.placement.open import worker_resources
    from echelon.placement.place import best_of_range

    def group(number: int) -> Group:
        gpus = shape.gpus or number // (shape.workers or 1)
        need = worker_resources(shape, job.resources, gpus)
        return _workers(job, number // gpus, need, _procs(job, shape, gpus))

    sizes = numbers(shape)
    if len(sizes) == 1 or not cluster.known:
        return [group(number) for number in sizes]
    if shape.gpus is not None:
        each = group(sizes[0]).resources
        found = best_of_range([(each, sizes[-1] // shape.gpus, sizes[0] // shape.gpus)], cluster)
    else:
        groups = [group(number) for number in sizes]
        found = best_of_range([(each.resources, each.workers, each.workers) for each in groups], cluster)
    best = sizes[-1] if found is None else found[0].gpus * found[1]
    return [group(number) for number in (best, *(each for each in sizes if job.roles and each != best))]


def _of_shares(job: Job, shape: OpenShape, shares: Sequence[tuple[str, int]], model: str | None) -> Candidate:
    """One worker on each node, with GPUs of one model; workers with the same share are a group."""
    from echelon.placement.open import worker_resources

    if job.framework in SMALLEST_FIRST:
        shares = sorted(shares, key=lambda each: each[1])
    groups = [
        _workers(
            job,
            sum(1 for _, share in shares if share == gpus),
            worker_resources(shape, job.resources, gpus, model),
            _procs(job, shape, gpus),
        )
        for gpus in dict.fromkeys(share for _, share in shares)
    ]
    world = _world(job, groups)
    nodes = iter(node for node, _ in shares)
    return Candidate(
        world=world, nodes=tuple(next(nodes) if each.role == "worker" else "" for each in members(world))
    )


def _procs(job: Job, shape: OpenShape, gpus: int) -> int:
    return gpus if shape.rank_per_gpu else job.procs


def _workers(job: Job, workers: int, resources: Resources, procs: int) -> Group:
    named = {role.name for role in job.roles}
    essential = "launcher" not in named and not {"chief", "ps"} <= named
    return Group(workers=workers, procs=procs, resources=resources, essential=essential)


def _world(job: Job, workers: Sequence[Group]) -> World:
    """The group that leads comes first (the launcher, else the chief), then the workers, then the groups that
    serve them until they have ended. A launcher's end is the run's, whatever the workers do; and so is the
    end of a chief that drives parameter servers, for the workers would wait for more for ever.
    """
    named = {role.name for role in job.roles}
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
    return World(groups=(*leading, *workers, *serving))


def fit(job: Job, cluster: Cluster, *, world: World | None = None) -> Plan | NoRoom:
    """The plan of the first world that serves the job and fits now, or why it must wait. With `world`, that
    is the only candidate. Raises Unplaceable if none ever fits.
    """
    waits: NoRoom | None = None
    refusal: Unplaceable | None = None
    there = candidates(job, cluster) if world is None else (Candidate(world=world),)
    for candidate in there:
        try:
            placement = place(candidate.world, cluster, candidate.nodes)
        except Unplaceable as error:
            refusal = refusal or error
            continue
        if not isinstance(placement, NoRoom):
            return make_plan(job, *_all_seats(job, candidate.world, placement), cluster)
        waits = waits or placement
    if waits is not None:
        return waits
    assert refusal is not None
    raise refusal


def make_plan(job: Job, world: World, placement: Placement, cluster: Cluster) -> Plan:
    """Everything that the engine needs to start the run.

    The job's framework and Python are settled by now.
    """
    return Plan(
        world=world,
        launches=tuple(_launch(job, world, number) for number in range(len(world.groups))),
        placement=placement,
        threads=tuple(threads_per_rank(world, placement, cluster)),
        gpu_models=gpu_models(world, cluster),
        gpu_resource=cluster.gpu_resource,
    )


def _launch(job: Job, world: World, number: int) -> Launch:
    role = role_named(job, world.groups[number].role)
    argv = command_line(job, role)
    made = launch_once(argv) if job.starts_ranks else launch(job.framework, argv, world, number)
    return made if role is None else replace(made, env=role.env)


def gpu_models(world: World, cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """For each type of GPU that is asked for, the models that it means in this cluster."""
    wanted = {group.resources.gpu_type for group in world.groups} - {None}
    there = {gpu.model for node in cluster.nodes for gpu in node.gpus} if wanted else set()
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
    if sizes(world) is not None:  # those that are added sit where the others do, as far as is known
        first = placement.seats[0].node
        seats_there = (replace(seat, node=seat.node or first) for seat in placement.seats)
        placement = Placement(seats=tuple(seats_there))
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
