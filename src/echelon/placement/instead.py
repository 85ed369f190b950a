"""What would fit in place of what does not: another shape of as many GPUs, or fewer, as flags. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster, Node
from echelon.model.job import Job
from echelon.model.open_shape import OpenShape
from echelon.model.plan import Placement
from echelon.model.resources import Resources
from echelon.model.world import Group, World
from echelon.placement.explain import all_nodes, matching
from echelon.placement.open import choose_now, sizes_now, worker_resources
from echelon.placement.place import place


def fits_instead(job: Job, cluster: Cluster) -> str:
    """What could start at once instead, as flags; "" if nothing could, or it is not known."""
    if not cluster.known:
        return ""
    shape = job.shape
    if shape is not None and shape.gpus is None and shape.workers is None:
        return _of_open_shape(shape, job.resources, cluster)
    if job.roles:
        return ""  # their flags say how large they are, and there are many ways to change them
    if shape is not None:
        gpus = shape.gpus or shape.least // (shape.workers or 1)
        return _of_given_shape(shape, job.resources, shape.least // gpus, gpus, cluster)
    if not job.resources.gpus:
        return ""
    total = job.workers * job.resources.gpus
    shape = OpenShape(least=total, most=total)
    return _of_given_shape(shape, job.resources, job.workers, job.resources.gpus, cluster)


def emptied(cluster: Cluster) -> Cluster:
    """The same cluster with nothing running, and all nodes back that will be."""
    return replace(cluster, nodes=tuple(_emptied(node) for node in all_nodes(cluster)), left_out=())


def _emptied(node: Node) -> Node:
    gpus = tuple(replace(gpu, holder=None) for gpu in node.gpus)
    other: Mapping[str, int] | None = None
    return replace(node, gpus=gpus, free_cpus=node.cpus, free_memory=node.memory, free_other=other)


def _of_open_shape(shape: OpenShape, need: Resources, cluster: Cluster) -> str:
    """The same number in other shares, and the largest number in such shares."""
    found = []
    if shape.shares == "equal" and choose_now(shape, need, cluster, shares="any") is not None:
        found.append("--shares any")
    fitting = sizes_now(shape, need, cluster)
    if fitting:
        found.append(f"--total-gpus {fitting[-1]}")
    return " or ".join(found)


def _of_given_shape(shape: OpenShape, need: Resources, workers: int, gpus: int, cluster: Cluster) -> str:
    """As many GPUs in equal workers of another size, else fewer workers of this size."""
    number = workers * gpus
    chosen = choose_now(replace(shape, gpus=None, workers=None), need, cluster, shares="equal", number=number)
    if chosen is not None:
        share = chosen.shares[0][1]
        if fits(shape, need, number // share, share, cluster):
            return f"-n {number // share} --gpus {share}"
    free = (sum(gpu.holder is None for gpu in matching(need, node.gpus)) for node in cluster.nodes)
    fewer = min(workers - 1, sum(have // gpus for have in free))
    return f"-n {fewer} --gpus {gpus}" if fewer > 0 and fits(shape, need, fewer, gpus, cluster) else ""


def fits(shape: OpenShape, need: Resources, workers: int, gpus: int, cluster: Cluster) -> bool:
    """Whether so many workers with so many GPUs each fit now."""
    group = Group(workers=workers, procs=1, resources=worker_resources(shape, need, gpus))
    try:
        return isinstance(place(World(groups=(group,)), cluster), Placement)
    except Unplaceable:
        return False
