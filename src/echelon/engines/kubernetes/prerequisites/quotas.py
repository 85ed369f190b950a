"""Which quotas can never let a run in: it needs more than they allow in all, or says less than they ask for.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.quantities import Quantity, to_thousandths
from echelon.errors import EchelonError, Unplaceable
from echelon.model.job import Job
from echelon.model.open_shape import OpenShape, numbers
from echelon.model.resources import Resources

Object = Mapping[str, Any]


def beyond_quota(job: Job, quota: Object) -> EchelonError | None:
    """The refusal if a quota, even an unused one, cannot hold all workers at once; None if it can."""
    needs = _needs(job)
    for resource, hard in _hard(quota).items():
        need = needs.get(_plain_name(resource), 0)
        if _exceeds(need, hard):
            about = quota["metadata"]
            return Unplaceable(
                f"quota {about['name']} allows {hard} {_plain_name(resource)} in all, and the run's "
                f"{_workers(job)} need {_written(need)}",
                hint=f"ask for fewer or smaller workers, or an administrator for more; "
                f"`kubectl describe quota {about['name']}` shows it",
            )
    return None


def unsaid_limits(job: Job, quota: Object) -> tuple[str, ...]:
    """The resources of which a quota counts the limits, so that it lets in no pod without one, and of which
    some worker has none; a pod template may have its own.
    """
    hard = _hard(quota)
    own = Resources() if job.shape is not None else job.resources  # an open shape has requests alone
    roles = [(role.resources, role.template or job.pod.template) for role in job.roles]
    needs = [need for need, template in ((own, job.pod.template), *roles) if not template]
    return tuple(
        name
        for name, amounts in (
            ("cpu", [need.cpus for need in needs]),
            ("memory", [need.memory for need in needs]),
        )
        if f"limits.{name}" in hard and any(each is None or each.limit is None for each in amounts)
    )


def limits_filled_in(ranges: Sequence[Object]) -> set[str]:
    """The resources of which every container gets a limit from the namespace's LimitRanges."""
    limits = [limit for each in ranges for limit in each["spec"].get("limits") or ()]
    return {
        name for limit in limits if limit.get("type") == "Container" for name in limit.get("default") or ()
    }


def without_limits(job: Job, quotas: Sequence[Object], ranges: Sequence[Object]) -> EchelonError | None:
    """The refusal if a quota lets in no worker, for want of limits that nothing fills in; None if it does."""
    filled = limits_filled_in(ranges)
    for quota in quotas:
        if unsaid := [name for name in unsaid_limits(job, quota) if name not in filled]:
            flags = {"cpu": "--cpus 2:2", "memory": "--memory 8Gi:8Gi"}
            return Unplaceable(
                f"quota {quota['metadata']['name']} lets in only pods that have limits: {', '.join(unsaid)}",
                hint=f"say the request and the limit: {' '.join(flags[name] for name in unsaid)}",
            )
    return None


def _hard(quota: Object) -> Mapping[str, Quantity]:
    """What a quota limits; nothing if it is for some pods only (`scopes`), and may not count these."""
    spec = quota.get("spec") or {}
    return {} if spec.get("scopes") or spec.get("scopeSelector") else spec.get("hard") or {}


def _exceeds(need: int, hard: Quantity) -> bool:
    try:
        return need > to_thousandths(hard)
    except ValueError:
        return False  # no amount that Kubernetes knows


def _plain_name(resource: str) -> str:
    """A quota's name of a resource, as containers name it; limits keep their prefix."""
    return {"count/pods": "pods", "count/jobs.batch": "jobs"}.get(
        resource, resource.removeprefix("requests.")
    )


def _needs(job: Job) -> Mapping[str, int]:
    """What all workers request together, in thousandths; what is left to the namespace's defaults is not in
    it.
    """
    roles = [(role.workers, role.resources) for role in job.roles]
    groups = [*([(job.workers, job.resources)] if job.shape is None else []), *roles]
    total: dict[str, int] = {"jobs": 1000 * (1 + len(roles))} | _least(job.shape)
    for workers, need in groups:
        for name, amount in _of_worker(need):
            total[name] = total.get(name, 0) + workers * amount
    if job.pod.output is not None and job.pod.output.claim is None:
        total |= {"persistentvolumeclaims": 1000, "storage": 1000 * job.pod.output.size}
    return total


def _least(shape: OpenShape | None) -> dict[str, int]:
    """The least that workers of an open shape request together, however its GPUs are shared."""
    if shape is None:
        return {}
    gpus = min(numbers(shape))
    workers = shape.workers or gpus // (shape.gpus or gpus)
    amounts: dict[str, float] = {
        "pods": workers,
        names.GPU: gpus,
        "cpu": gpus * (shape.cpus_per_gpu or 0),
        "memory": gpus * (shape.memory_per_gpu or 0),
    }
    return {name: round(1000 * amount) for name, amount in amounts.items()}


def _of_worker(need: Resources) -> Iterator[tuple[str, int]]:
    yield "pods", 1000
    for name, amount in (("cpu", need.cpus), ("memory", need.memory)):
        if amount is not None:
            yield name, round(1000 * amount.request)
            if amount.limit is not None:
                yield f"limits.{name}", round(1000 * amount.limit)
    if need.gpus:
        yield names.GPU, 1000 * need.gpus
    for name, count in need.other.items():
        yield name, 1000 * count


def _workers(job: Job) -> str:
    if job.shape is not None:
        return "workers"  # how many is not decided yet
    count = job.workers + sum(role.workers for role in job.roles)
    return f"{count} workers" if count != 1 else "worker"


def _written(amount: int) -> str:
    """Thousandths as Kubernetes writes an amount."""
    whole, rest = divmod(amount, 1000)
    if rest:
        return f"{amount}m"
    for suffix, size in (("Gi", 2**30), ("Mi", 2**20)):
        if whole >= size and whole % size == 0:
            return f"{whole // size}{suffix}"
    return str(whole)
