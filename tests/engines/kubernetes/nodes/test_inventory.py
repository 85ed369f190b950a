"""Who holds what of a cluster, held against a plain count of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.kubernetes.cluster_objects import (
    GIB,
    ME,
    Object,
    container,
    job,
    node,
    places,
    pod,
    waits,
    worker,
)
from tests.engines.kubernetes.rendered import SHIPPED, record_of
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.dialects import InQueue
from echelon.model.engine.cluster import Cluster
from echelon.model.meaning import to_job
from echelon.model.plan import Placement, Plan
from echelon.model.resources import Resources
from echelon.model.settings import Settings
from echelon.model.world import Group, World
from echelon.placement import place
from echelon.planning import fit


def cluster(
    nodes: list[Object],
    pods: list[Object] | None = None,
    jobs: list[Object] | None = None,
    waiting: list[InQueue] | None = None,
    **more: Any,
) -> Cluster:
    return inventory.to_cluster(
        typed(shapes.Node, nodes),
        typed(shapes.Occupant, pods or []),
        places(jobs or []),
        waiting or [],
        me=ME,
        **more,
    )


def holders(found: Cluster, number: int = 0) -> list[str | None]:
    return [gpu.holder for gpu in found.nodes[number].gpus]


# What is free


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Object], list[Object]]:
    hosts = ["a", "b", "c"]
    nodes = [node(name, gpus=draw(st.integers(0, 4))) for name in hosts]
    pods = []
    for number in range(draw(st.integers(0, 12))):
        on = draw(st.sampled_from([*hosts, None, "gone"]))
        phase = draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]))
        asked = container(
            cpu=f"{draw(st.integers(0, 3000))}m",
            memory=f"{draw(st.integers(0, 3))}Gi",
            gpu=str(draw(st.integers(0, 2))),
        )
        pods.append(pod(f"p{number}", on, asked, phase=phase))
    return nodes, pods


@settings(deadline=None)
@given(crowds())
def test_what_is_free_is_what_nobody_holds(crowd: tuple[list[Object], list[Object]]) -> None:
    nodes, pods = crowd
    found = cluster(nodes, pods)
    assert [each.name for each in found.nodes] == ["a", "b", "c"]
    for each, original in zip(found.nodes, nodes, strict=True):
        here = [
            one["spec"]["containers"][0]["resources"]["requests"]
            for one in pods
            if one["spec"].get("nodeName") == each.name
            and one["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        cpus = 8000 - sum(int(one["cpu"][:-1]) for one in here)
        memory = 32 - sum(int(one["memory"][:-2]) for one in here)
        total = int(original["status"]["allocatable"].get(names.GPU, 0))
        taken = min(total, sum(int(one[names.GPU]) for one in here))
        assert each.free_cpus == pytest.approx(max(0, cpus) / 1000)
        assert each.free_memory == max(0, memory) * GIB
        assert sum(gpu.holder is not None for gpu in each.gpus) == taken
        assert [gpu.id for gpu in each.gpus] == [f"{each.name}/{number}" for number in range(total)]
        assert each.free_other is not None
        assert each.free_other.get(names.GPU, 0) == total - taken


def test_who_holds_a_gpu_is_told() -> None:
    found = cluster(
        [node("a", gpus=6)],
        [
            worker("fm", 0, "a", container(gpu="2")),
            worker("fm", 0, "a", container(gpu="1"), namespace="theirs"),
            pod("jupyter", "a", container(gpu="1"), namespace="lab", phase="Pending"),
        ],
    )
    assert holders(found) == ["fm", "fm", "lab/jupyter", "theirs/fm", None, None]
    gpu = found.nodes[0].gpus[0]
    assert (gpu.model, gpu.memory) == ("NVIDIA-A100-SXM4-80GB", 80 * GIB)


def test_what_was_promised_a_moment_ago_is_taken() -> None:
    """A run that was started holds its places before its pods are there, and each place only once."""
    one = container(gpu="1")
    started = job("fm", ["a", "a", "b", "b"], one, completedIndexes="3")
    found = cluster(
        [node("a", gpus=3), node("b", gpus=3)],
        [worker("fm", 0, "b", one), worker("fm", 1, None, one)],  # elsewhere than planned; and nowhere yet
        [started],
    )
    assert holders(found, 0) == ["fm", None, None]  # worker 1, where it will be
    assert holders(found, 1) == ["fm", "fm", None]  # workers 0 and 2; 3 has ended
    for over in (
        job("fm", ["a"], one, suspend=True),
        job("fm", ["a"], one, conditions=[{"type": "Failed", "status": "True"}]),
        job("fm", ["a"], one, conditions=[{"type": "SuccessCriteriaMet", "status": "True"}]),
        job("fm", ["a"], one, failedIndexes="0"),
        {
            **job("fm", ["a"], one),
            "metadata": {**started["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
        },
        {
            **job("fm", ["a"], one),
            "metadata": {**started["metadata"], "annotations": {names.NODES: "{nonsense"}},
        },
        {**job("fm", ["a"], one), "metadata": {**started["metadata"], "annotations": {}}},
    ):
        assert holders(cluster([node("a", gpus=1)], [], [over])) == [None]
    assert holders(cluster([node("a", gpus=1)], [], [job("fm", [""], one)])) == [
        None
    ]  # planned without a node


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_indexes_that_have_ended_are_read_as_the_job_controller_writes_them(
    completed: set[int], failed: set[int]
) -> None:
    def written(numbers: set[int]) -> str:
        parts: list[list[int]] = []
        for number in sorted(numbers):
            if parts and parts[-1][-1] == number - 1:
                parts[-1].append(number)
            else:
                parts.append([number])
        return ",".join(
            str(part[0])
            if len(part) == 1
            else f"{part[0]},{part[1]}"
            if len(part) == 2
            else f"{part[0]}-{part[-1]}"
            for part in parts
        )

    found = places([job("fm", [""] * 31, completedIndexes=written(completed), failedIndexes=written(failed))])
    assert {int(each.pod[-1]) for each in found} == set(range(31)) - completed - failed


# Nodes that take no workers

TAINT = {"key": "dedicated", "value": "infra", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("more", "why", "passing"),
    [
        ({"ready": False}, "not ready", True),
        ({"unschedulable": True}, "cordoned", True),
        ({"labels": {"kubernetes.io/os": "windows"}}, "runs windows", False),
        (
            {"taints": [TAINT]},
            "taint dedicated=infra:NoSchedule; --toleration dedicated=infra:NoSchedule",
            False,
        ),
        (
            {"taints": [{"key": "x", "effect": "NoExecute"}]},
            "taint x:NoExecute; --toleration x:NoExecute",
            False,
        ),
        (
            {"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]},
            "taint node.kubernetes.io/disk-pressure:NoSchedule",
            True,
        ),
        ({"allocatable": {"pods": "0"}}, "full: 0 pods", True),
    ],
)
def test_nodes_that_take_no_workers_are_left_out_with_a_reason(more: Object, why: str, passing: bool) -> None:
    found = cluster([node("a", gpus=1, **more), node("b")])
    assert [each.name for each in found.nodes] == ["b"]
    (out,) = found.left_out
    told = f"{out.why}; {out.hint}" if out.hint else out.why
    assert (out.node.name, told, out.passing, len(out.node.gpus)) == ("a", why, passing, 1)


@pytest.mark.parametrize(
    "tolerations",
    [
        [{"key": "dedicated", "operator": "Exists"}],
        [{"key": "dedicated", "value": "infra"}],
        [{"key": "dedicated", "operator": "Equal", "value": "infra", "effect": "NoSchedule"}],
        [{"operator": "Exists"}],
        [{"key": "other"}, {"operator": "Exists", "effect": "NoSchedule"}],
    ],
)
def test_a_taint_that_is_tolerated_keeps_nobody_away(tolerations: list[Object]) -> None:
    assert cluster([node("a", taints=[TAINT])], tolerations=tolerations).left_out == ()


@pytest.mark.parametrize(
    "tolerations",
    [
        [],
        [{"key": "dedicated", "value": "gpu"}],
        [{"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}],
        [{"key": "other", "operator": "Exists"}],
    ],
)
def test_another_toleration_does_not_help(tolerations: list[Object]) -> None:
    assert len(cluster([node("a", taints=[TAINT])], tolerations=tolerations).left_out) == 1


def test_gpu_taints_are_for_others() -> None:
    guarded = node("a", gpus=1, taints=[{"key": names.GPU, "value": "present", "effect": "NoSchedule"}])
    assert cluster([guarded]).left_out == ()
    assert len(cluster([guarded], tolerations=()).left_out) == 1
    soft = node("a", taints=[{**TAINT, "effect": "PreferNoSchedule"}])
    assert cluster([soft]).left_out == ()


def test_a_node_full_of_pods_is_waited_for() -> None:
    crowd = [pod(f"p{number}", "a", container(cpu="1m")) for number in range(3)]
    found = cluster([node("a", gpus=1, allocatable={"pods": "3"})], crowd)
    assert found.left_out[0].why == "full: 3 pods"
    assert found.left_out[0].node.free_cpus == pytest.approx(7.997)


# Other devices


def test_amds_gpus_count_where_there_are_no_others() -> None:
    about = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"}
    amd = node("a", allocatable={names.AMD_GPU: "2"}, labels=about)
    taken = pod("p", "a", {"resources": {"limits": {names.AMD_GPU: "1"}}})
    found = cluster([amd], [taken])
    first = found.nodes[0].gpus[0]
    assert (first.id, first.model, first.memory) == ("a/0", "AMD_Instinct_MI300X_OAM", 192 * GIB)
    assert holders(found) == ["other/p", None]
    assert found.gpu_resource == names.AMD_GPU
    mixed = cluster([amd, node("b", gpus=1)], [taken])
    assert [len(each.gpus) for each in mixed.nodes] == [0, 1]
    assert mixed.nodes[0].free_other == {names.AMD_GPU: 1}  # asked for by name
    assert mixed.gpu_resource == names.GPU
    chosen = cluster([amd, node("b", gpus=1)], [taken], gpu_type="mi300x")
    assert (chosen.gpu_resource, [len(each.gpus) for each in chosen.nodes]) == (names.AMD_GPU, [2, 0])


@pytest.mark.parametrize("resource", ["amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915"])
def test_pods_ask_for_what_the_nodes_have(resource: str) -> None:
    """From the node to the Job: no other vendor's GPU is asked for."""
    there = cluster([node(name, allocatable={resource: "4"}) for name in "ab"])
    job = to_job(Settings(script="t.py", framework="plain", image="x", total_gpus=6), name="demo")
    plan = fit(job, there)
    assert isinstance(plan, Plan)
    (made,) = dialects.named("job").render(record_of(job), plan, SHIPPED)
    limits = made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert {name: count for name, count in limits.items() if "/" in name} == {resource: "3"}


def test_slices_are_had_by_their_profile_alone() -> None:
    mig = "nvidia.com/mig-1g.5gb"
    sliced = node("a", allocatable={mig: "7"}, labels={names.GPU_PRODUCT: "NVIDIA-A100-SXM4-40GB"})
    whole = node("b", gpus=2, labels={names.GPU_PRODUCT: "NVIDIA-A100-SXM4-40GB"})
    assert [len(each.gpus) for each in cluster([sliced, whole]).nodes] == [0, 2]
    assert [len(each.gpus) for each in cluster([sliced, whole], gpu_type="a100").nodes] == [0, 2]
    found = cluster([sliced, whole], gpu_type="mig-1g.5gb")
    assert (found.gpu_resource, [len(each.gpus) for each in found.nodes]) == (mig, [7, 0])
    assert found.nodes[0].gpus[0].model == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"


def test_where_a_node_is_in_the_network() -> None:
    about = {
        "topology.kubernetes.io/zone": "z",
        "cloud.google.com/gce-topology-block": "b",
        "nvidia.com/gpu.clique": "c.1",
    }
    assert cluster([node("a", labels=about)]).nodes[0].domains == ("z", "b", "", "c.1")


def test_other_resources_are_counted_by_name() -> None:
    mig = "nvidia.com/mig-1g.5gb"
    sliced = node("a", allocatable={mig: "7", "hugepages-2Mi": "4Mi", "hugepages-1Gi": "0"})
    (found,) = cluster([sliced], [pod("p", "a", {"resources": {"limits": {mig: "3"}}})]).nodes
    assert found.other == {mig: 7, "hugepages-2Mi": 4 * 2**20}
    assert found.free_other == {mig: 4, "hugepages-2Mi": 4 * 2**20}


@pytest.mark.parametrize("wanted", ["a100", "A100-SXM4", "NVIDIA A100-SXM4-80GB", "nvidia-a100 sxm4"])
def test_a_gpu_type_means_the_same_as_on_one_machine(wanted: str) -> None:
    """The driver says "NVIDIA A100-SXM4-80GB" where the label says "NVIDIA-A100-SXM4-80GB"."""
    world = World(groups=(Group(workers=1, procs=1, resources=Resources(gpus=1, gpu_type=wanted)),))
    placed = place(world, cluster([node("a", gpus=1)]))
    assert isinstance(placed, Placement)
    assert placed.seats[0].gpus == ("a/0",)


# The line


def test_queued_runs_are_told_the_oldest_first() -> None:
    there = [waits("second", 20.5), waits("first", 20.25), waits("theirs", 1.0, namespace="theirs")]
    assert cluster([], waiting=there).waiting == ("first", "second")


def test_shapes_bear_what_the_api_leaves_out() -> None:
    bare: list[Object] = [{"metadata": {"name": "a"}}]
    found = cluster(bare, [{"metadata": {"name": "p"}}], [{"metadata": {"name": "j"}}])
    assert found.left_out[0].why == "not ready"


def test_which_label_no_node_has() -> None:
    labels: list[dict[str, Any]] = [{"labels": {"disk": "hdd", "zone": "a"}}, {"labels": {"zone": "b"}}, {}]
    nodes = typed(shapes.Node, [{"metadata": {"name": "a", **each}} for each in labels])
    alone = inventory.no_such_nodes(nodes, {"zone": "a", "disk": "ssd"})
    assert alone.message == "no node has disk=ssd"
    assert alone.hint == "nodes have disk=hdd"
    unknown = inventory.no_such_nodes(nodes, {"gpu": "yes"})
    assert unknown.message == "no node has gpu=yes"
    assert "no node has a label gpu" in unknown.hint
    together = inventory.no_such_nodes(nodes, {"zone": "b", "disk": "hdd"})
    assert together.message == "no node has zone=b and disk=hdd together"
