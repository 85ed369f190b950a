"""Devices that drivers offer by resource claims (DRA), read from their ResourceSlices.

They are in no node's allocatable resources, so placement does not know them; they are read so that nobody
is told that a cluster has no GPUs which has some."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.engines.kubernetes import names, shapes
from echelon.errors import Denied
from echelon.model.engine.cluster import Cluster, Devices

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api

# Attributes, of which the first that a device has is its model; a driver may qualify them.
_MODEL = ("productName", "model", "type")


def look_for_devices(api: Api) -> tuple[Devices, ...]:
    """The devices of all drivers; none where the user may not list them, or the cluster is too old."""
    from echelon.engines.kubernetes.client.api import NotThere

    try:
        found = api.list_shapes(names.RESOURCE_SLICES, shapes.ResourceSlice)
    except (Denied, NotThere):
        return ()
    return devices_of(found)


def with_devices(api: Api, cluster: Cluster) -> Cluster:
    """The cluster, for a run that asks for GPUs: where no node has any, with what it has instead."""
    everyone = (*cluster.nodes, *(each.node for each in cluster.left_out))
    if not cluster.known or any(node.gpus for node in everyone):
        return cluster
    return replace(cluster, devices=look_for_devices(api))


def devices_of(slices: Collection[shapes.ResourceSlice]) -> tuple[Devices, ...]:
    """The same devices by driver and model. Of a pool that is just being published anew, slices of two
    generations are there. Pure.
    """
    specs = [each.spec for each in slices]
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        pool = (spec.driver, spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), spec.pool.generation)
    counts: dict[tuple[str, str], int] = {}
    nodes: dict[tuple[str, str], set[str]] = {}
    for spec in specs:
        if spec.pool.generation < newest[spec.driver, spec.pool.name]:
            continue
        for device in spec.devices:
            kind = (spec.driver, _model_of(device))
            counts[kind] = counts.get(kind, 0) + 1
            nodes.setdefault(kind, set()).update(filter(None, [spec.node_name]))
    return tuple(
        Devices(driver=driver, model=model, count=count, nodes=tuple(sorted(nodes[driver, model])))
        for (driver, model), count in sorted(counts.items())
    )


def _model_of(device: shapes.Device) -> str:
    said = {name.rpartition("/")[2]: each.string for name, each in device.attributes.items()}
    return next((said[name] for name in _MODEL if said.get(name)), "")
