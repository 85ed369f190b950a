"""Nodes, pods, Jobs and records as an API server would list them, for the tests of what a cluster holds."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.render.dialects import InQueue, Place
from echelon.engines.kubernetes.render.dialects import job as dialect

Object = dict[str, Any]
ME = "mine"
GIB = 2**30


def node(name: str, *, gpus: int = 0, ready: bool = True, **more: Any) -> Object:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    if gpus:
        amounts[names.GPU] = str(gpus)
    about = {names.GPU_PRODUCT: "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"} if gpus else {}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/os": "linux", **about, **more.pop("labels", {})},
        },
        "spec": {"taints": more.pop("taints", None), "unschedulable": more.pop("unschedulable", False)},
        "status": {
            "allocatable": {**amounts, **more.pop("allocatable", {})},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True" if ready else "Unknown"},
            ],
        },
    }


def container(**asked: str) -> Object:
    resources = {"gpu": names.GPU, "cpu": "cpu", "memory": "memory"}
    return {
        "name": names.CONTAINER,
        "resources": {"requests": {resources[key]: value for key, value in asked.items()}},
    }


def pod(name: str, on: str | None, *containers: Object, namespace: str = "other", **more: Any) -> Object:
    found: Object = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": more.pop("labels", {}),
            "annotations": more.pop("annotations", {}),
        },
        "spec": {"containers": list(containers), **more.pop("spec", {})},
        "status": {"phase": more.pop("phase", "Running")},
    }
    if on is not None:
        found["spec"]["nodeName"] = on
    return found


def worker(run: str, index: int, on: str | None, *containers: Object, namespace: str = ME) -> Object:
    return pod(
        f"{run}-{index}-abcde",
        on,
        *containers,
        namespace=namespace,
        labels={
            names.RUN: run,
            names.COMPONENT: "worker",
            names.JOB_NAME: run,
            names.COMPLETION_INDEX: str(index),
        },
    )


def job(run: str, on: list[str], *containers: Object, namespace: str = ME, **more: Any) -> Object:
    return {
        "metadata": {
            "name": run,
            "namespace": namespace,
            "labels": {names.RUN: run},
            "annotations": {names.NODES: json.dumps(on)},
        },
        "spec": {
            "completions": len(on),
            "suspend": more.pop("suspend", False),
            "template": {"metadata": {"creationTimestamp": None}, "spec": {"containers": list(containers)}},
        },
        "status": more,
    }


def waits(run: str, created: float, *, namespace: str = ME) -> InQueue:
    """A run that waits to be admitted, and that was tried a moment ago."""
    return InQueue(namespace=namespace, run=run, created=created, tried=time.time())


def places(jobs: list[Object]) -> list[Place]:
    """The places that Jobs keep for their workers."""
    return [place for each in typed(dialect.Shape, jobs) for place in dialect.places(each)]
