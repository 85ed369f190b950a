"""Why there is no placement, as text: what never fits (Unplaceable), and what a run waits for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.errors import Unplaceable
from echelon.model.display import some_of
from echelon.model.engine.cluster import Cluster, Gpu, Node, free_gpus, matches_type, name_devices
from echelon.model.resources import Resources, format_memory
from echelon.model.world import World

_NAMED = 4  # nodes or holders that a sentence names before it counts the rest


def matching(need: Resources, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that a worker can use."""
    if need.gpu_type is None:
        return list(gpus)
    fitting = {model for model in {gpu.model for gpu in gpus} if matches_type(need.gpu_type, model)}
    return [gpu for gpu in gpus if gpu.model in fitting]


def all_nodes(cluster: Cluster) -> list[Node]:
    """Those that take workers, and those that will again."""
    return [*cluster.nodes, *(each.node for each in cluster.left_out if each.passing)]


def _by_claims(cluster: Cluster) -> str:
    """What a cluster without GPUs of its nodes has instead; "" for nothing."""
    if not cluster.devices:
        return ""
    return (
        f"there is {name_devices(cluster.devices)}, which pods get by resource claims (DRA): --gpus asks for "
        "what a device plugin offers"
    )


def _total(world: World) -> tuple[int, float, float]:
    gpus = sum(group.workers * group.resources.gpus for group in world.groups)
    cpus = sum(
        group.workers * (group.resources.cpus.request if group.resources.cpus else 0)
        for group in world.groups
    )
    memory = sum(
        group.workers * (group.resources.memory.request if group.resources.memory else 0)
        for group in world.groups
    )
    return gpus, cpus, memory


def too_large(world: World, cluster: Cluster) -> Unplaceable:
    """Why even an empty cluster could not hold the world: the first number that is too small."""
    gpus, cpus, memory = _total(world)
    nodes = all_nodes(cluster)
    have = [gpu for node in nodes for gpu in node.gpus]
    where, left_out = where_gpus_are(cluster, len(nodes)), name_left_out(cluster, gpus=gpus > 0)
    models = sorted({gpu.model for gpu in have if gpu.model})
    if not nodes:
        return Unplaceable("no node takes workers", hint=left_out or "the cluster has no nodes")
    for group in world.groups:
        need = group.resources
        if need.gpu_type is not None and not matching(need, have):
            none = _by_claims(cluster) or "leave it out: there is no GPU at all"
            there_is = f"there is {', '.join(models)}" if models else none
            return Unplaceable(
                f"gpu_type {need.gpu_type!r}: {where} no such GPU", hint=joined(there_is, left_out)
            )
        for name in need.other:
            if not any(name in node.other for node in nodes):
                return Unplaceable(
                    f"resource {name!r}: {where} none of it",
                    hint=joined("leave it out; GPUs are asked for with --gpus", left_out),
                )
    hint = joined(_by_claims(cluster) or "lower --gpus or --workers; `echelon top` shows the GPUs", left_out)
    types = [group.resources.gpu_type for group in world.groups if group.resources.gpu_type]
    for kind in dict.fromkeys(types):
        wanting = [group for group in world.groups if group.resources.gpu_type == kind]
        asked, there = (
            sum(each.workers * each.resources.gpus for each in wanting),
            len(matching(wanting[0].resources, have)),
        )
        if asked > there:
            return Unplaceable(f"{counted(asked)} of type {kind} asked for, {where} {there}", hint=hint)
    if gpus > len(have):
        return Unplaceable(f"{counted(gpus)} asked for, {where} {len(have) or 'none'}", hint=hint)
    for need in (group.resources for group in world.groups):
        most = max(len(matching(need, node.gpus)) for node in nodes)
        if need.gpus > most:
            return Unplaceable(
                f"{counted(need.gpus)} per worker asked for, no node has more than {most}", hint=hint
            )
    if cpus > sum(node.cpus for node in nodes):
        return Unplaceable(
            f"{cpus:g} CPUs asked for, {where} {sum(node.cpus for node in nodes):g}",
            hint=joined("lower --cpus or --workers", left_out),
        )
    if memory > sum(node.memory for node in nodes):
        total = sum(node.memory for node in nodes)
        return Unplaceable(
            f"{format_memory(memory)} of memory asked for, {where} {format_memory(total)}",
            hint=joined("lower --memory or --workers", left_out),
        )
    if all(any(_holds(node, group.resources) for node in nodes) for group in world.groups):
        return Unplaceable(
            "the nodes cannot hold all workers at once, even when nothing else runs",
            hint=joined("ask for less per worker, or for fewer workers", left_out),
        )
    return Unplaceable(
        "no node is large enough for one of the workers",
        hint=joined("ask for less per worker, and more workers", left_out),
    )


def _holds(node: Node, need: Resources) -> bool:
    return (
        len(matching(need, node.gpus)) >= need.gpus
        and node.cpus >= (need.cpus.request if need.cpus else 0)
        and node.memory >= (need.memory.request if need.memory else 0)
        and all(node.other.get(name, 0) >= count for name, count in need.other.items())
    )


def what_is_missing(world: World, cluster: Cluster) -> str:
    """What a world waits for that would fit into an empty cluster."""
    gpus, cpus, memory = _total(world)
    have = [gpu for node in cluster.nodes for gpu in node.gpus]
    free = [gpu for gpu in have if gpu.holder is None]
    free_cpus = sum(node.free_cpus for node in cluster.nodes)
    free_memory = sum(node.free_memory for node in cluster.nodes)
    left_out = name_left_out(cluster, gpus=gpus > 0)
    if gpus <= len(free) and cpus > free_cpus:
        return joined(f"waiting for {cpus:g} CPUs: {free_cpus:g} not promised to other runs", left_out)
    if gpus <= len(free) and memory > free_memory:
        wanted, promised = format_memory(memory), format_memory(free_memory)
        return joined(f"waiting for {wanted} of memory: {promised} not promised to other runs", left_out)
    if gpus:  # too few, or of another model, or on different nodes
        holders = sorted({gpu.holder for gpu in have if gpu.holder is not None})
        held = f", held by {some_of(holders, _NAMED)}" if holders else ""
        apart = _apart(cluster) if gpus <= len(free) else ""
        return joined(f"waiting for {counted(gpus)}: {len(free)} of {len(have)} free{apart}{held}", left_out)
    return joined("waiting until one node has room for a worker", left_out)


def _apart(cluster: Cluster) -> str:
    """On how many nodes the free GPUs are, which are enough in all."""
    free = [free_gpus(node) for node in cluster.nodes]
    free = sorted(filter(None, free), reverse=True)
    if len(free) < 2:
        return ""
    if len(set(free)) == 1:
        return f", {free[0]} on each of {len(free)} nodes"
    more = f" and {len(free) - _NAMED} more" if len(free) > _NAMED else ""
    return f", on nodes with {', '.join(map(str, free[:_NAMED]))}{more}"


def where_gpus_are(cluster: Cluster, nodes: int) -> str:
    """The beginning of a sentence on what there is."""
    if cluster.here and nodes == 1:
        return "this machine has"
    return "the only node has" if nodes == 1 else f"the {nodes} nodes have"


def name_left_out(cluster: Cluster, *, gpus: bool) -> str:
    """The nodes that were not asked, by reason; of those without GPUs only where none are wanted."""
    why: dict[str, list[str]] = {}
    for each in cluster.left_out:
        if each.node.gpus or not gpus:
            why.setdefault(joined(each.why, each.hint), []).append(each.node.name)
    told = (f"{some_of(names, _NAMED)} ({reason})" for reason, names in why.items())
    return f"left out: {', '.join(told)}" if why else ""


def joined(first: str, second: str) -> str:
    """Two parts of a sentence, of which either may be empty."""
    return "; ".join(filter(None, (first, second)))


def counted(gpus: int) -> str:
    """So many GPUs, in words."""
    return f"{gpus} GPU{'s' * (gpus != 1)}"
