"""What the namespace must have before a run is submitted: the objects that the job names, and quotas that can
hold all of its workers. A run that lacks one of them would wait for ever, or be given up after minutes.

Each is one small read, and all are made at once. What may not be read is unknown, not missing.
`objects_named` and `beyond_quota` are pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from echelon.engines.kubernetes import controllers, names
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.client.beside import beside
from echelon.engines.kubernetes.priorities import most_priority
from echelon.engines.kubernetes.quantities import Quantity, to_thousandths
from echelon.errors import Denied, EchelonError, InvalidJob, Refused, Unavailable, Unplaceable
from echelon.model.job import Job
from echelon.model.open_shape import OpenShape, numbers
from echelon.model.pod import split_claim
from echelon.model.resources import Resources
from echelon.values import frozen

T = TypeVar("T")
_CLAIM = "PersistentVolumeClaim"
_HERE = "lists what there is"


@frozen
class Named:
    """An object that a job names."""

    kind: str
    name: str
    flag: str  # by which the job names it
    words: str  # what users call it
    hint: str


def objects_named(job: Job) -> Iterator[Named]:
    """Every object that a job names, each once."""
    pod = job.pod
    claims = {split_claim("mount", each.source).claim: "--mount" for each in pod.mounts if each.kind == "pvc"}
    claims |= {pod.code.claim: "--code"} if pod.code is not None else {}
    claims |= {pod.code_volume.claim: "--code-volume"} if pod.code_volume is not None else {}
    claims |= {pod.output.claim: "--output"} if pod.output is not None and pod.output.claim else {}
    for name, flag in claims.items():
        made = f"`echelon volume create {name}` makes one; `echelon volume ls` {_HERE}"
        yield Named(kind=_CLAIM, name=name, flag=flag, words="volume claim", hint=made)
    if pod.output is not None and pod.output.storage_class:
        yield _plain("StorageClass", pod.output.storage_class, "--output", "storage class")
    for each in pod.mounts:
        if each.kind == "configmap":
            yield _plain("ConfigMap", each.source, "--mount", "ConfigMap")
        elif each.kind == "secret":
            yield _plain("Secret", each.source, "--mount", "Secret")
    for name in pod.pull_secrets:
        hint = f"`kubectl create secret docker-registry {name} ...` makes it"
        yield Named(kind="Secret", name=name, flag="--pull-secret", words="Secret", hint=hint)
    if pod.service_account:
        yield _plain("ServiceAccount", pod.service_account, "--service-account", "service account")
    if pod.priority_class:
        yield _plain("PriorityClass", pod.priority_class, "--priority-class", "priority class")


def _plain(kind: str, name: str, flag: str, words: str) -> Named:
    listed = f"`kubectl get {kind.lower()}` {_HERE}"
    return Named(kind=kind, name=name, flag=flag, words=words, hint=listed)


def check(api: Api, job: Job) -> bool:
    """Raise Unavailable for what the job names and is not there, Unplaceable for a quota that can never hold
    it; returns whether the user may execute in pods, by which results are fetched from them.
    """
    check_priority(api, job)
    check_queue(api, job)
    controllers.check_kind(api, job)
    right = beside(lambda: _unless_denied(lambda: api.may("create", "Pod", subresource="exec")))
    looks = [beside(partial(_unless_denied, _look(api, each))) for each in objects_named(job)]
    quotas = _unless_denied(lambda: api.list("ResourceQuota").items)
    missing = [found for look in looks if (found := look()) is not None]
    for quota in quotas or ():
        if (beyond := beyond_quota(job, quota)) is not None:
            raise beyond
    if missing:
        said = "; ".join(each.message for each in missing)
        raise Unavailable(said, hint="; ".join(dict.fromkeys(each.hint for each in missing)))
    return right() is not False


def check_priority(api: Api, job: Job) -> None:
    """Raise InvalidJob for more priority than the namespace says it allows. One that may not be read is not
    judged.
    """
    if job.priority <= 0:
        return
    try:
        found = api.find("Namespace", api.namespace)
    except Denied:
        return
    most = most_priority(found)
    if most is not None and job.priority > most:
        allow = f"kubectl annotate namespace {api.namespace} {names.MOST_PRIORITY}={job.priority}"
        raise InvalidJob(
            "priority",
            job.priority,
            f"is more than namespace {api.namespace} allows, which is {most}",
            hint=f"an administrator allows more: {allow}",
        )


def check_queue(api: Api, job: Job) -> None:
    """Raise Unavailable where Kueue, or its queue that the job names, is not there."""
    queue = job.pod.queue
    if queue is None:
        return
    try:
        there = api.exists(names.KUEUE_QUEUES, queue)
    except NotThere:
        raise Unavailable(
            "--queue: Kueue is not installed in this cluster",
            hint="leave --queue out: echelon has a queue of its own (`echelon queue`)",
        ) from None
    except Denied:
        return
    if not there:
        listed = f"`kubectl get localqueues -n {api.namespace}` {_HERE}"
        raise Unavailable(
            f"--queue: Kueue has no LocalQueue {queue} in namespace {api.namespace}", hint=listed
        )


def _look(api: Api, named: Named) -> Callable[[], Unavailable | None]:
    """A look at an object. Of a claim its state counts as well: one that is being deleted takes no pod."""

    def look_at_claim() -> Unavailable | None:
        from echelon.engines.kubernetes.diagnose.claims import claim_trouble
        from echelon.engines.kubernetes.diagnose.cluster_events import Events

        found = api.find(named.kind, named.name)
        if found is None:
            return _absent(api, named)
        trouble = claim_trouble(named.name, found, Events(()), 0, None)
        if trouble is None or trouble.healable:
            return None
        return Unavailable(f"{trouble.text} ({named.flag})", hint=trouble.hint)

    def look_at_any() -> Unavailable | None:
        return None if api.exists(named.kind, named.name) else _absent(api, named)

    return look_at_claim if named.kind == _CLAIM else look_at_any


def _absent(api: Api, named: Named) -> Unavailable:
    where = "" if named.kind in ("PriorityClass", "StorageClass") else f" in namespace {api.namespace}"
    return Unavailable(f"{named.flag}: {named.words} {named.name} does not exist{where}", hint=named.hint)


def _unless_denied(look: Callable[[], T]) -> T | None:
    try:
        return look()
    except (Denied, Refused):  # also by what authorizes in the API server's place, in words of its own
        return None


def beyond_quota(job: Job, quota: Object) -> EchelonError | None:
    """The refusal if a quota, even an unused one, cannot hold all workers at once; None if it can. A quota
    for some pods only (`scopes`) may not count these.
    """
    spec = quota.get("spec") or {}
    if spec.get("scopes") or spec.get("scopeSelector"):
        return None
    needs = _needs(job)
    for resource, hard in (spec.get("hard") or {}).items():
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
    amounts = {"pods": workers, names.GPU: gpus}
    amounts |= {"cpu": gpus * (shape.cpus_per_gpu or 0), "memory": gpus * (shape.memory_per_gpu or 0)}
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
