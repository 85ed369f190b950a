"""GPUs as Kubernetes offers them: one resource for each vendor, and one for each MIG profile of NVIDIA's.

Kubernetes reports how many of a node's GPUs a pod has, not which: the GPUs here are counted, not identified.
All GPUs of a run are of one resource, since its pods ask for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.nodes.requests import Sums
from echelon.engines.kubernetes.quantities import to_whole
from echelon.model.engine.cluster import Gpu, matches_type

_MOST_GPUS = 4096  # of one node, more than any has


def is_gpu(resource: str) -> bool:
    """Whether a resource is GPUs, or slices of them."""
    return resource in names.GPUS or resource.startswith(names.MIG)


def gpu_resource(nodes: Iterable[shapes.Node], gpu_type: str | None = None) -> str:
    """The resource that `--gpus` requests in this cluster: whole GPUs of NVIDIA's where there are any, else
    of the next vendor's. A type of GPU may be another vendor's, or a MIG profile.
    """
    offered: dict[str, set[str]] = {}
    for node in nodes:
        for resource in (*node.status.allocatable, *node.status.capacity):
            if is_gpu(resource):
                offered.setdefault(resource, set()).add(model_of(node.metadata.labels, resource))
    order = sorted(offered, key=_preference)
    if gpu_type is not None:
        order = [each for each in order if any(matches_type(gpu_type, model) for model in offered[each])]
    else:
        order = [each for each in order if not each.startswith(names.MIG)]
    return order[0] if order else names.GPU


def _preference(resource: str) -> tuple[int, str]:
    whole = names.GPUS.index(resource) if resource in names.GPUS else len(names.GPUS)
    return whole, resource


def model_of(labels: Mapping[str, str], resource: str) -> str:
    """The model of a node's GPUs, as feature discovery labels it; a slice adds its profile."""
    product = labels.get(names.gpu_product(resource), "")
    if resource.startswith(names.MIG):
        profile = f"MIG-{resource.removeprefix(names.MIG)}"
        return f"{product}-{profile}" if product else profile
    return product


def gpus_of(node: shapes.Node, resource: str, count: int, holders: Sums) -> tuple[Gpu, ...]:
    """A node's GPUs of one resource: as many as it has, and who holds how many of them."""
    labels = node.metadata.labels
    count = min(count, _MOST_GPUS)
    # A pod may ask for more than there is, and be bound to the node by who made it.
    shares = ((name, min(amount // 1000, count)) for name, amount in sorted(holders.items()))
    held: list[str | None] = [name for name, share in shares for _ in range(share)]
    model, memory = model_of(labels, resource), _memory(labels, resource)
    return tuple(
        Gpu(id=f"{node.metadata.name}/{number}", model=model, memory=memory, holder=holder)
        for number, holder in enumerate([*held, *[None] * count][:count])
    )


def _memory(labels: Mapping[str, str], resource: str) -> int:
    try:
        if resource == names.GPU:
            return int(labels.get(names.GPU_MEMORY, "")) * 2**20
        if resource == names.AMD_GPU:
            memory = labels.get(names.AMD_MEMORY, "")
            return to_whole(f"{memory}i" if memory[-1:].isalpha() else memory)
    except ValueError:  # no such label, or an unknown form
        pass
    return 0
