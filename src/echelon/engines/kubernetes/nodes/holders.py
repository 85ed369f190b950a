"""Who holds which GPUs of which node since when, and who holds them without computing. Pure.

Its objects do not show whether a worker trains or lingers for its results: `follow/evidence.py` reads that
from the leaders' logs, and `mark_idle` adds it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.nodes.gpus import is_gpu
from echelon.engines.kubernetes.nodes.holder_names import holder_of, run_name
from echelon.engines.kubernetes.nodes.requests import Sums, pod_requests
from echelon.engines.kubernetes.render import dialects
from echelon.model.engine.usage import ClusterUsage, Holder


def find_holders(seen: inventory.Seen, me: str) -> tuple[Holder, ...]:
    """Every pod with GPUs, every keeper, and GPUs that are promised to workers without a pod yet; by node,
    the longest holder first.
    """
    found = [*_pods(seen, me), *_promised(seen, me)]
    return tuple(
        sorted(
            found, key=lambda each: (each.node, each.since is None, each.since or 0.0, each.name, each.pod)
        )
    )


def mark_idle(usage: ClusterUsage, over: Collection[str]) -> ClusterUsage:
    """The same, with the workers of these runs marked as lingering."""
    holders = (
        replace(each, state="lingering") if each.name in over and each.state == "running" else each
        for each in usage.holders
    )
    return replace(usage, holders=tuple(holders))


def leaders(seen: inventory.Seen, me: str) -> dict[str, tuple[str, str]]:
    """The running pods of worker 0 that hold GPUs, by run of our namespace: its name and the agent's
    container. Which pod that is, its dialect knows.
    """
    found: dict[str, tuple[str, str]] = {}
    for pod in seen.pods:
        about = pod.metadata
        run = about.labels.get(names.RUN, "")
        if not run or about.namespace != me or pod.status.phase != "Running":
            continue
        if not (inventory.is_bound(pod) and _gpus(pod_requests(pod.spec))):
            continue
        containers = {each.name for each in pod.spec.containers or ()}
        for dialect in dialects.DIALECTS.values():
            leads = dialect.leader_selector(run).items() <= about.labels.items()
            if leads and dialect.CONTAINER in containers:
                found[run] = about.name, dialect.CONTAINER
    return found


def _pods(seen: inventory.Seen, me: str) -> Iterator[Holder]:
    for pod in seen.pods:
        about = pod.metadata
        keeps = about.labels.get(names.COMPONENT) == names.KEEPER
        gpus = _gpus(pod_requests(pod.spec))
        if inventory.is_bound(pod) and (gpus or keeps):
            started: bool = pod.status.phase == "Running"
            yield Holder(
                node=pod.spec.node_name,
                name=holder_of(about, me),
                pod=about.name,
                gpus=gpus,
                since=moment(pod.status.start_time),
                state="keeping" if keeps else "running" if started else "starting",
            )


def _promised(seen: inventory.Seen, me: str) -> Iterator[Holder]:
    there = {
        (pod.metadata.namespace, dialects.pod_of(pod.metadata.labels))
        for pod in seen.pods
        if inventory.is_bound(pod)
    }
    for place in seen.places:
        gpus = _gpus(pod_requests(place.spec))
        if place.node and gpus and (place.namespace, place.pod) not in there:
            name = run_name(place.namespace, place.run, me)
            yield Holder(node=place.node, name=name, pod="", gpus=gpus, since=None, state="starting")


def _gpus(asked: Sums) -> int:
    return sum(amount for name, amount in asked.items() if is_gpu(name)) // 1000
