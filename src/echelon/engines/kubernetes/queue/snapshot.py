"""Jobs, pods and nodes of all namespaces as the values that the queue's policy decides on. Pure.

What a user writes into a Job orders only their own runs: the age is the API server's own, and what a run
holds is what its pods ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.nodes.gpus import is_gpu
from echelon.engines.kubernetes.nodes.requests import pod_requests
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.dialects import InQueue
from echelon.engines.kubernetes.render.dialects import Place as Kept
from echelon.engines.kubernetes.render.pod import to_toleration
from echelon.engines.kubernetes.render.task import read_plan
from echelon.model.engine.cluster import Cluster
from echelon.model.job import Job, asks_for_gpus, gpus_asked
from echelon.model.plan import Plan
from echelon.model.queue import HoldingRun, Place, QueuedRun
from echelon.model.world import gpu_count

_read_plan = lru_cache(maxsize=4096)(read_plan)  # each is read in every round, for every worker
_SKEW = 5.0  # seconds by which the clock of a client may be ahead or behind


def run_name(namespace: str, run: str) -> str:
    """The name of a run among those of all namespaces."""
    return f"{namespace}/{run}"


def split_name(name: str) -> tuple[str, str]:
    """Its namespace, and its name there."""
    namespace, _, run = name.partition("/")
    return namespace, run


def queued_run(each: InQueue, job: Job | None) -> QueuedRun | None:
    """A run that waits, with its record's job, or, where that may not be read, as its Jobs describe it; None
    if they do not, or if it may not wait any more.
    """
    if job is not None and is_over(each, job):
        return None
    plan = _read_plan(each.plan)
    if job is None:
        if plan is None:
            return None
        job = _as_planned(each, plan)
        world = plan.world
    else:
        world = None
    return QueuedRun(
        name=run_name(each.namespace, each.run),
        job=job,
        since=min(max(each.created, each.stamp - _SKEW), each.stamp + _SKEW),
        gpus=gpus_asked(job) if world is None else gpu_count(world),
        priority=each.priority,
        user=each.owner,
        namespace=each.namespace,
        world=world,
        noted=each.reason,
    )


def is_over(each: InQueue, job: Job) -> bool:
    """Whether a run that was rolled back may not wait for another admission."""
    return job.no_wait and each.again


def _as_planned(each: InQueue, plan: Plan) -> Job:
    """As much of a job as its plan and its Jobs show."""
    group = next((each for each in plan.world.groups if each.role == "worker"), plan.world.groups[0])
    return Job(
        name=each.run,
        command=("-",),
        workers=group.workers,
        procs=group.procs,
        resources=group.resources,
        framework="plain",  # it is placed, not started
        timeout=each.timeout if each.timeout > 0 else None,
    )


def holding_runs(seen: inventory.Seen, me: str) -> list[HoldingRun]:
    """The runs that hold GPUs, by what their pods on nodes ask for, and those of a run that is being admitted
    will. `me` is our namespace: the pods of others may not be listed.
    """
    found: dict[str, HoldingRun] = {}
    held = _holding(seen, me)
    for place in seen.places:
        name = run_name(place.namespace, place.run)
        gpus = _gpus(place.spec)
        before = found.get(name)
        if before is None:
            before = HoldingRun(name=name, gpus=0, user=place.owner)
        ends = before.ends if before.ends is not None else _end_of(place)
        found[name] = replace(before, gpus=before.gpus + gpus * held(place), ends=ends)
    return [each for each in found.values() if each.gpus]


def unplaced_runs(seen: inventory.Seen, me: str) -> list[Place]:
    """The runs that were left to the scheduler, and some of whose workers have no node."""
    found: dict[str, Place] = {}
    missing: dict[str, int] = {}
    held = _holding(seen, me)
    for place in seen.places:
        name, lack = run_name(place.namespace, place.run), place.count - held(place)
        if lack <= 0:
            continue
        missing[name] = missing.get(name, 0) + lack
        gpus = lack * _gpus(place.spec) + (found[name].gpus if name in found else 0)
        who = f"{missing[name]} worker{'s' * (missing[name] != 1)}"
        reason = f"the scheduler has no node for {who} yet"
        found[name] = _elsewhere(name, place.owner, place.namespace, place.made, gpus, reason)
    return list(found.values())


def runs_in_kueue(seen: inventory.Seen) -> list[Place]:
    """The runs that Kueue has not admitted."""
    found = []
    for each in seen.in_kueue:
        plan = _read_plan(each.plan) if each.plan else None
        gpus = each.count * _gpus(each.spec) if plan is None else gpu_count(plan.world)
        name, reason = run_name(each.namespace, each.run), f"in Kueue's queue {each.queue}"
        found.append(_elsewhere(name, each.owner, each.namespace, each.made, gpus, reason))
    return found


def _elsewhere(name: str, user: str, namespace: str, since: float, gpus: int, reason: str) -> Place:
    return Place(
        name=name,
        position=0,
        why="elsewhere",
        reason=reason,
        gpus=gpus,
        since=since,
        user=user,
        namespace=namespace,
    )


def _gpus(spec: shapes.PodSpec) -> int:
    return sum(amount for key, amount in pod_requests(spec).items() if is_gpu(key)) // 1000


def _holding(seen: inventory.Seen, me: str) -> Callable[[Kept], int]:
    """How many workers of a place have a node; all of a run that is being admitted, which has them soon or
    waits again, and of one whose pods may not be listed.
    """
    bound: dict[tuple[str, str], set[int]] = {}
    for pod in filter(inventory.is_bound, seen.pods):
        made_by, *index = dialects.pod_of(pod.metadata.labels) or ("",)
        if index and index[0].isdigit():
            bound.setdefault((pod.metadata.namespace, made_by), set()).add(int(index[0]))

    def held(place: Kept) -> int:
        if (place.admitted and not place.whole) or (not seen.all_namespaces and place.namespace != me):
            return place.count
        made_by, first = place.pod
        indexes = range(int(first), int(first) + place.count)
        return sum(1 for each in bound.get((place.namespace, made_by), ()) if each in indexes)

    return held


def _end_of(place: Kept) -> float | None:
    return place.admitted + place.timeout if place.admitted and place.timeout > 0 else None


def views_of(
    seen: inventory.Seen, nodes_with: Callable[[str], Sequence[shapes.Node]]
) -> Callable[[Job], Cluster]:
    """The snapshot as each job sees it: its nodes, tolerations and GPUs. Holders are named with their
    namespaces. `nodes_with` lists the nodes that a selector selects.
    """
    known: dict[tuple[object, ...], Cluster] = {}

    def view(job: Job) -> Cluster:
        wanted = ",".join(f"{key}={value}" for key, value in sorted(job.pod.node_selector.items()))
        gpus = asks_for_gpus(job)
        tolerations = [to_toleration(each) for each in job.pod.tolerations]
        key = (wanted, gpus, job.resources.gpu_type, repr(tolerations))
        if key not in known:
            nodes = seen.nodes or [] if not wanted else nodes_with(wanted)
            found = inventory.to_cluster(
                nodes,
                seen.pods,
                seen.places,
                me="",
                gpu_type=job.resources.gpu_type,
                tolerations=(*tolerations, *(inventory.GPU_TOLERATIONS if gpus else ())),
            )
            if seen.nodes is None or not seen.all_namespaces:
                found = replace(found, nodes=(), left_out=(), known=False)
            known[key] = found
        return known[key]

    return view
