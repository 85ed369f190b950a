"""The scheduler's words in ours: those of versions and clouds that the testbed is not.

The messages are as Kubernetes' source has them (1.36, and what differs before), and as people quote them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testbed.kubectl import Object
from tests.engines.kubernetes.small import job, pod
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.diagnose import Trouble, diagnose
from echelon.engines.kubernetes.diagnose.scheduling import Unfit, read_scheduler
from echelon.engines.kubernetes.fields import moment
from echelon.model.engine.cluster import Cluster, Gpu, Node

NOW = moment("2026-01-01T00:10:00Z") or 0.0


REASONS = st.lists(
    st.tuples(
        st.integers(1, 5000),
        st.sampled_from(
            [
                "Insufficient cpu",
                "Insufficient nvidia.com/gpu",
                "node(s) had untolerated taint(s)",
                "node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }",
                "node(s) had taint {key: value}, that the pod didn't tolerate",
                "node(s) didn't match Pod's node affinity/selector",
                "Too many pods",
                "node(s) exceed max volume count",
            ]
        ),
    ),
    min_size=1,
    max_size=6,
)
AFTER = st.sampled_from(
    [
        "",
        " preemption: 0/9 nodes are available: 9 Preemption is not helpful for scheduling.",
        " preemption: 0/9 nodes are available: 9 No preemption victims found for incoming pod..",
        " no new claims to deallocate, preemption: 0/9 nodes are available: 2 Preemption is not helpful.",
    ]
)


@given(st.integers(1, 9999), REASONS, AFTER)
def test_the_schedulers_reasons_are_read_back(total: int, reasons: list[tuple[int, str]], after: str) -> None:
    listed = ", ".join(f"{count} {what}" for count, what in reasons)
    message = f"0/{total} nodes are available: {listed}.{after}"
    assert read_scheduler(message) == Unfit(total=total, reasons=tuple(reasons))


@given(st.text())
def test_no_message_of_a_scheduler_breaks_the_diagnosis(message: str) -> None:
    troubles = unscheduled(message)
    assert not message.strip(" .") or troubles


def unscheduled(
    message: str,
    *,
    limits: Object | None = None,
    nodes: Sequence[Object] = (),
    cluster: Cluster | None = None,
    events: Sequence[Object] = (),
    status: Object | None = None,
    **spec: Any,
) -> list[Trouble]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:09:00Z",
    }
    one = pod(
        0,
        status={"phase": "Pending", "conditions": [condition], **(status or {})},
        spec={"nodeName": None, **spec},
        container={"resources": {"limits": limits or {}}},
    )
    return diagnose(
        jobs=[job(workers=1)],
        pods=[one],
        now=NOW,
        events=typed(shapes.Event, events),
        nodes=typed(shapes.Node, nodes) or None,
        cluster=cluster,
    )


def node(name: str, *, taints: Sequence[Object] = (), labels: Object | None = None, **has: str) -> Object:
    allocatable = {key.replace("_", "/").replace("gpu", "nvidia.com/gpu"): each for key, each in has.items()}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "8", "memory": "64Gi", **allocatable}},
    }


def place(name: str, gpus: int, free: int, *, cpus: float = 8.0, memory: float = 2.0**36) -> Node:
    devices = tuple(Gpu(id=f"{name}/{n}", holder=None if n < free else "other") for n in range(gpus))
    return Node(name=name, cpus=8, memory=2.0**36, free_cpus=cpus, free_memory=memory, gpus=devices)


@pytest.mark.parametrize(
    ("message", "more", "sentence", "hint"),
    [
        (
            (
                "0/3 nodes are available: 1 node(s) had untolerated taint {dedicated: ml},"
                " 2 Insufficient nvidia.com/gpu."
                " preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.."
            ),
            {"limits": {"nvidia.com/gpu": "4"}},
            (
                "no node has room for worker 0: 2 of 3 nodes have fewer than 4 GPUs free;"
                " 1 of 3 nodes is tainted dedicated=ml"
            ),
            "wait until more is free (`echelon top --on k8s` shows who has it), or ask for less with --gpus",
        ),
        (
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
            {
                "limits": {"nvidia.com/gpu": "4"},
                "cluster": Cluster(nodes=(place("a", 8, 2), place("b", 8, 3))),
                "nodes": [node("a", gpu="8"), node("b", gpu="8")],
            },
            "no node has room for worker 0: both nodes have fewer than 4 GPUs free (at most 3 of 8, on b)",
            "wait until more is free (`echelon top --on k8s` shows who has it), or ask for less with --gpus",
        ),
        (
            "0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.",
            {
                "limits": {"cpu": "4", "memory": "32Gi"},
                "cluster": Cluster(
                    nodes=(place("a", 0, 0, cpus=1.5, memory=2.0**33), place("b", 0, 0, memory=2.0**34))
                ),
            },
            (
                "no node has room for worker 0: 1 of 2 nodes has fewer than 4 CPUs free;"
                " both nodes have less than 32Gi of memory free (at most 16 GiB, on b)"
            ),
            "wait until more is free (`echelon top --on k8s` shows who has it), or ask for less with --cpus",
        ),
        (
            "0/2 nodes are available: 2 Insufficient cpu.",
            {
                "limits": {"cpu": "100m"},
                "cluster": Cluster(nodes=(place("a", 0, 0, cpus=0.05), place("b", 0, 0, cpus=2))),
            },
            (
                "no node has room for worker 0: both nodes have fewer than 100m CPUs free"
                " as the scheduler last saw it (by now 2, on b)"
            ),
            "wait until more is free (`echelon top --on k8s` shows who has it), or ask for less with --cpus",
        ),
        (
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
            {"limits": {"nvidia.com/gpu": "1"}},
            "no node has room for worker 0: the only node has no GPU free",
            "wait until more is free (`echelon top --on k8s` shows who has it), or ask for less with --gpus",
        ),
        (
            "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s).",
            {
                "limits": {"nvidia.com/gpu": "1"},
                "nodes": [
                    node("cpu-1"),
                    node("gpu-1", gpu="8", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
                ],
            },
            (
                "no node has room for worker 0: 1 of 2 nodes is tainted team=a:NoSchedule;"
                " 1 of 2 nodes has no GPU free"
            ),
            "--toleration team=a:NoSchedule lets it run there",
        ),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint(s).",
            {
                "nodes": [
                    node(name, taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
                    for name in "ab"
                ]
            },
            "no node will take worker 0: both nodes are not-ready",
            "`kubectl describe pod` has the scheduler's own message",
        ),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint(s).",
            {},
            "no node will take worker 0: both nodes are tainted against it",
            "`kubectl describe nodes` shows the taints; see --toleration",
        ),
        (
            "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            {},
            "no node will take worker 0: a volume claim that it mounts has no volume yet",
            "`echelon volume ls` shows the claims, and who uses them",
        ),
        (
            "no nodes available to schedule pods",
            {},
            "no node will take worker 0: the cluster has no node",
            "ask its administrators, or wait for its autoscaler",
        ),
        (
            "0/4 nodes are available: 4 Insufficient example.com/fpga.",
            {"limits": {"example.com/fpga": "2"}},
            "no node has room for worker 0: all 4 nodes have fewer than 2 example.com/fpga free",
            (
                "wait until more is free (`echelon top --on k8s` shows who has it),"
                " or ask for less with --resource"
            ),
        ),
        (
            "0/1 nodes are available: 1 Insufficient cpu.",
            {"status": {"nominatedNodeName": "node-a"}, "limits": {"cpu": "1"}},
            "room is being made for worker 0 on node node-a: pods of lower priority are leaving",
            "it starts there when they have gone",
        ),
    ],
)
def test_the_schedulers_words_in_ours(message: str, more: dict[str, Any], sentence: str, hint: str) -> None:
    (trouble,) = unscheduled(message, **more)
    assert (trouble.kind, trouble.sentence, trouble.hint) == ("unschedulable", sentence, hint)
    assert trouble.healable


def test_a_claim_that_the_scheduler_does_not_find_is_told_without_the_right_to_list_claims() -> None:
    words = '0/2 nodes are available: persistentvolumeclaim "data" not found.'
    after = " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    (trouble,) = unscheduled(words + after)
    sentence = "volume claim data, which worker 0 would mount, does not exist"
    assert (trouble.kind, trouble.sentence, trouble.healable) == ("claim", sentence, False)


# Autoscalers, which the testbed has none of: the messages are those that their users quote


def event(reason: str, message: str, *, at: str = "2026-01-01T00:09:30Z", kind: str = "Pod") -> Object:
    name = "demo-0-abcde" if kind == "Pod" else "demo"
    return {
        "involvedObject": {"kind": kind, "name": name},
        "reason": reason,
        "message": message,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "metadata": {"creationTimestamp": at},
    }


FULL = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
TRIGGERED = event("TriggeredScaleUp", "pod triggered scale-up: [{gpu-pool 1->2 (max: 5)}]")
NOT_TRIGGERED = event(
    "NotTriggerScaleUp",
    "pod didn't trigger scale-up: 3 max node group size reached",
    at="2026-01-01T00:09:40Z",
)
NOMINATED = event("Nominated", "Pod should schedule on: nodeclaim/default-cvkcv")


@pytest.mark.parametrize(
    ("events", "kind", "sentence"),
    [
        (
            [TRIGGERED],
            "scaling",
            (
                "the cluster is adding a node for worker 0 (gpu-pool 1->2 (max: 5)):"
                " all 3 nodes have fewer than 2 GPUs free"
            ),
        ),
        (
            [NOMINATED],
            "scaling",
            (
                "the cluster is adding a node for worker 0 (nodeclaim/default-cvkcv):"
                " all 3 nodes have fewer than 2 GPUs free"
            ),
        ),
        (
            [TRIGGERED, NOT_TRIGGERED],
            "unschedulable",
            (
                "no node has room for worker 0: all 3 nodes have fewer than 2 GPUs free;"
                " the cluster's autoscaler adds none (3 max node group size reached)"
            ),
        ),
    ],
)
def test_an_autoscaler_is_told_of(events: list[Object], kind: str, sentence: str) -> None:
    (trouble,) = unscheduled(FULL, limits={"nvidia.com/gpu": "2"}, events=events)
    assert (trouble.kind, trouble.sentence) == (kind, sentence)
    assert trouble.healable
