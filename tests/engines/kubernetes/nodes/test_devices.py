"""Devices that drivers offer by resource claims: they are named wherever GPUs are looked for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.kubernetes.api_server import ApiServer
from tests.engines.kubernetes.cluster_objects import node
from tests.engines.kubernetes.typed import typed

from echelon.cli.printing.render_cluster import cluster_usage
from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.abilities.cluster import ClusterMeter
from echelon.engines.kubernetes.doctor import environment
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.nodes.devices import devices_of, look_for_devices, with_devices
from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Devices, name_devices
from echelon.model.meaning import to_job
from echelon.model.settings import Settings
from echelon.planning import fit

Object = dict[str, Any]
NVIDIA = "gpu.nvidia.com"
H100 = Devices(driver=NVIDIA, model="NVIDIA H100 80GB HBM3", count=2, nodes=("a",))

MODEL: Object = {"productName": {"string": H100.model}}


def published(
    name: str, count: int, model: Object | None = None, *, on: str = "a", generation: int = 1
) -> Object:
    """A slice as NVIDIA's driver writes it: one pool for each node."""
    said = {**(model or {}), "cudaComputeCapability": {"version": "9.0.0"}}
    devices = [{"name": f"gpu-{each}", "attributes": said} for each in range(count)]
    place = {"nodeName": on} if on else {"allNodes": True}
    pool = {"name": on or name, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": NVIDIA, "pool": pool, "devices": devices, **place}
    return {"kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def server(*slices: Object, version: str = "v1", gpus: int = 0) -> ApiServer:
    there = {"kind": "Node", **node("a", gpus=gpus)}
    return ApiServer(there, *slices, serves={"ResourceSlice": f"resourceslices.{version}.resource.k8s.io"})


def test_they_are_counted_by_driver_model_and_node() -> None:
    slices = [
        published("one", 2, MODEL),
        published("two", 6, MODEL, on="b"),
        published("old", 9, MODEL, on="b", generation=0),
        published("any", 3, {"type": {"string": "nic"}}, on=""),
        published("plain", 1, on="c"),
        published("marked", 1, {f"{NVIDIA}/model": {"string": "T4"}}, on="d"),
    ]
    found = devices_of(typed(shapes.ResourceSlice, slices))
    assert [(each.model, each.count, each.nodes) for each in found] == [
        ("", 1, ("c",)),
        ("NVIDIA H100 80GB HBM3", 8, ("a", "b")),
        ("T4", 1, ("d",)),
        ("nic", 3, ()),
    ]
    assert name_devices(found) == (
        "1 of gpu.nvidia.com on c, 8 NVIDIA H100 80GB HBM3 of gpu.nvidia.com on a, b, "
        "1 T4 of gpu.nvidia.com on d, 3 nic of gpu.nvidia.com"
    )


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_they_are_read_in_either_version_and_missed_where_there_is_none(version: str) -> None:
    there = server(published("one", 2, MODEL), version=version)
    assert look_for_devices(there.api) == (H100,)
    there.denied = {"list ResourceSlice"}
    assert look_for_devices(there.api) == ()
    assert look_for_devices(ApiServer().api) == ()


def test_top_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    there = server(published("one", 2, MODEL))
    found = ClusterMeter(lambda: there.api).measure()
    assert found.devices == (H100,)
    cluster_usage(found, "text")
    said = capsys.readouterr().out
    assert "which --gpus does not ask for: 2 NVIDIA H100 80GB HBM3 of gpu.nvidia.com on a" in said


def test_doctor_names_them() -> None:
    read = typed(shapes.Node, [node("a")])
    cluster = inventory.to_cluster(read, [], [], me="mine")
    found = list(environment.check_gpus(cluster, read, [H100], free_known=True))
    assert [(each.what, each.level) for each in found] == [("GPUs", "degraded"), ("devices", "ok")]
    assert found[0].found == "no node that takes workers offers any as a resource"
    assert found[1].found.startswith("2 NVIDIA H100 80GB HBM3 of gpu.nvidia.com on a, by resource claims")


@pytest.mark.parametrize("wanted", [{"gpus": 1}, {"gpus": 1, "gpu_type": "H100"}])
def test_a_run_that_finds_no_gpus_is_refused_with_what_there_is(wanted: Object) -> None:
    there = server(published("one", 2, MODEL))
    job = to_job(Settings(script="t.py", framework="plain", image="x", **wanted), name="demo")
    with pytest.raises(Unplaceable) as refused:
        fit(job, with_devices(there.api, inventory.look(there.api)))
    assert "there is 2 NVIDIA H100 80GB HBM3 of gpu.nvidia.com on a" in refused.value.hint


def test_they_are_not_asked_for_where_nodes_have_gpus() -> None:
    there = server(published("one", 2, MODEL), gpus=4)
    assert with_devices(there.api, inventory.look(there.api)).devices == ()
    assert not [each for each in there.asked if each.kind == "ResourceSlice"]
