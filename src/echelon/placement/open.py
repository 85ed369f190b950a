"""The shape of a run that gives only its number of GPUs, in a snapshot of the cluster; or why there is none.

`shares.py` chooses; this module puts the cluster into its terms, and its answer into words. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster, Node, matches_type
from echelon.model.open_shape import OpenShape, Shares
from echelon.model.resources import Amount, Resources
from echelon.placement.explain import all_nodes, counted, joined, name_left_out, where_gpus_are
from echelon.placement.place import DUST
from echelon.placement.shares import Chosen, Index, Site, Wish, choose, index, sizes_that_fit


def choose_shape(shape: OpenShape, need: Resources, cluster: Cluster) -> Chosen:
    """The best shape on what is free; else the best in an empty cluster, which is worth waiting for.

    Raises Unplaceable where even an empty cluster has no shape, or where the cluster may not be read."""
    if not cluster.known:
        raise Unplaceable(
            "how many workers share the GPUs cannot be decided: you may not list nodes and the pods on them",
            hint="give --workers and --gpus instead of --total-gpus",
        )
    there = index(_sites(shape, need, cluster.nodes, free=True))
    wish = Wish(least=shape.least, most=shape.most, shares=shape.shares)
    now = choose(there, wish)
    if now is not None:
        return now
    empty = index(_sites(shape, need, all_nodes(cluster), free=False))
    later = choose(empty, wish)
    if later is None:
        raise _no_shape(shape, need, cluster, empty)
    return later


def choose_now(
    shape: OpenShape, need: Resources, cluster: Cluster, *, shares: Shares | None = None, number: int = 0
) -> Chosen | None:
    """The best shape on what is free; `shares` and `number` may differ from what the run asks for."""
    wish = Wish(least=number or shape.least, most=number or shape.most, shares=shares or shape.shares)
    return choose(index(_sites(shape, need, cluster.nodes, free=True)), wish)


def worker_resources(shape: OpenShape, need: Resources, gpus: int, model: str | None = None) -> Resources:
    """What a worker with so many GPUs, perhaps of one model, needs."""
    cpus, memory = shape.cpus_per_gpu, shape.memory_per_gpu
    return replace(
        need,
        gpus=gpus,
        gpu_type=need.gpu_type if model is None else model,
        cpus=need.cpus if cpus is None else Amount(request=cpus * gpus),
        memory=need.memory if memory is None else Amount(request=memory * gpus),
    )


def models_to_choose_from(need: Resources, cluster: Cluster) -> set[str]:
    """The models of GPU in the cluster that a run could use."""
    return {
        model
        for model in {gpu.model for node in all_nodes(cluster) for gpu in node.gpus}
        if _can_use(need, model)
    }


def sizes_now(shape: OpenShape, need: Resources, cluster: Cluster) -> list[int]:
    """How many GPUs could be had at once in such shares, up to the most that the run asks for."""
    return sizes_that_fit(index(_sites(shape, need, cluster.nodes, free=True)), shape.most, shape.shares)


def most_on_one_node(shape: OpenShape, need: Resources, cluster: Cluster) -> tuple[int, int]:
    """How many GPUs one node could give now at most, and how many one has free: CPUs or memory may lack."""
    sites = list(_sites(shape, need, cluster.nodes, free=True))
    return max((site.usable for site in sites), default=0), max((site.free for site in sites), default=0)


def _sites(shape: OpenShape, need: Resources, nodes: Iterable[Node], *, free: bool) -> Iterator[Site]:
    """Nodes, one for each model of GPU on them, with what one worker could have there."""
    for node in nodes:
        other = node.other if not free or node.free_other is None else node.free_other
        if need.other and any(other.get(name, 0) < count for name, count in need.other.items()):
            continue
        counts: dict[str, int] = {}
        for gpu in node.gpus:
            if gpu.holder is None or not free:
                counts[gpu.model] = counts.get(gpu.model, 0) + 1
        for model, count in counts.items():
            if not _can_use(need, model):
                continue
            usable = min(
                count,
                _share(node.free_cpus if free else node.cpus, need.cpus, shape.cpus_per_gpu, count),
                _share(node.free_memory if free else node.memory, need.memory, shape.memory_per_gpu, count),
            )
            yield Site(name=node.name, free=count, usable=usable, model=model, domains=node.domains)


def _can_use(need: Resources, model: str) -> bool:
    return need.gpu_type is None or matches_type(need.gpu_type, model)


def _share(have: float, whole: Amount | None, each: float | None, most: int) -> int:
    """How many GPUs a worker could have by its CPUs, or its memory: so much for `each` GPU, or for the worker
    as a `whole`, as where the user says nothing of them (see `worker_resources`).
    """
    have += DUST
    if each:
        return math.floor(have / each)
    return most if whole is None or whole.request <= have else 0


def _no_shape(shape: OpenShape, need: Resources, cluster: Cluster, empty: Index) -> Unplaceable:
    """Why even an empty cluster has no such shape, and what it has."""
    left_out = name_left_out(cluster, gpus=True)
    there = _most(empty)
    kind = "" if need.gpu_type is None else f" of type {need.gpu_type}"
    asked = f"{counted(shape.least)}{kind} asked for"
    if there < shape.least:
        where = where_gpus_are(cluster, len(all_nodes(cluster)))
        have = f"{where} {there} that one run could use" if there else "there is none"
        nearest = sizes_that_fit(empty, there, shape.shares)[-1:]
        hint = "".join(f"--total-gpus {number} would fit; " for number in nearest)
        return Unplaceable(f"{asked}, {have}", hint=joined(f"{hint}`echelon top` shows the GPUs", left_out))
    fits = sizes_that_fit(empty, max(there, shape.most), shape.shares)
    below = [number for number in fits if number < shape.least][-1:]
    above = [number for number in fits if number > shape.most][:1]
    sizes = " or ".join(f"--total-gpus {number}" for number in (*below, *above))
    wider = "--shares any" if _fits(empty, shape, "any") else ""
    free = ", ".join(map(str, sorted((len(node.gpus) for node in all_nodes(cluster)), reverse=True)[:8]))
    return Unplaceable(
        f"{asked} in equal shares; the nodes have {free}",
        hint=joined(" or ".join(filter(None, (wider, sizes))), left_out),
    )


def _fits(there: Index, shape: OpenShape, shares: Shares) -> bool:
    return choose(there, Wish(least=shape.least, most=shape.most, shares=shares)) is not None


def _most(there: Index) -> int:
    return max(
        (
            sum(usable * len(names) for (usable, _), names in part.classes.items())
            for part in there.levels[-1]
        ),
        default=0,
    )
