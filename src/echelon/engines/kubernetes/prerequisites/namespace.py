"""What the namespace must have before a run is submitted: the objects that the job names, and quotas that can
hold all of its workers. A run that lacks one of them would wait for ever, or be given up after minutes.

Each is one small read, and all are made at once. What may not be read is unknown, not missing.
`objects_named` is pure; what quotas allow is in `quotas.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from shlex import quote

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.engines.kubernetes.client.beside import beside
from echelon.engines.kubernetes.prerequisites import controllers
from echelon.engines.kubernetes.prerequisites.asked import Asked, unless_denied
from echelon.engines.kubernetes.prerequisites.priorities import most_priority
from echelon.engines.kubernetes.prerequisites.quotas import beyond_quota, unsaid_limits, without_limits
from echelon.engines.kubernetes.shapes import Claim
from echelon.errors import Denied, InvalidJob, Unavailable
from echelon.model.job import Job
from echelon.model.pods.pod import split_claim
from echelon.values import frozen

_CLAIM = "PersistentVolumeClaim"
_HERE = "lists what there is"
_OF_CLUSTERS = ("PriorityClass", "StorageClass", names.KUEUE_PRIORITIES)  # and of no namespace


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
        made = f"`echelon volume create {quote(name)}` makes one; `echelon volume ls` {_HERE}"
        yield Named(kind=_CLAIM, name=name, flag=flag, words="volume claim", hint=made)
    if pod.output is not None and pod.output.storage_class:
        yield _plain("StorageClass", pod.output.storage_class, "--output", "storage class")
    for each in pod.mounts:
        if each.kind == "configmap":
            yield _plain("ConfigMap", each.source, "--mount", "ConfigMap")
        elif each.kind == "secret":
            yield _plain("Secret", each.source, "--mount", "Secret")
    for name in pod.pull_secrets:
        hint = f"`kubectl create secret docker-registry {quote(name)} ...` makes it"
        yield Named(kind="Secret", name=name, flag="--pull-secret", words="Secret", hint=hint)
    if pod.service_account:
        yield _plain("ServiceAccount", pod.service_account, "--service-account", "service account")
    if pod.priority_class:
        yield _plain("PriorityClass", pod.priority_class, "--priority-class", "priority class")
    if pod.queue is not None and (of_class := pod.labels.get(names.KUEUE_PRIORITY)):
        listed = f"`kubectl get workloadpriorityclass` {_HERE}"
        words = "WorkloadPriorityClass of Kueue's"
        yield Named(kind=names.KUEUE_PRIORITIES, name=of_class, flag="--label", words=words, hint=listed)


def _plain(kind: str, name: str, flag: str, words: str) -> Named:
    listed = f"`kubectl get {kind.lower()}` {_HERE}"
    return Named(kind=kind, name=name, flag=flag, words=words, hint=listed)


def check(api: Api, job: Job, asked: Asked, coming: Collection[tuple[str, str]] = ()) -> bool:
    """Raise Unavailable for what the job names and is neither there nor `coming`, Unplaceable for a quota
    that can never hold it; returns whether the user may execute in pods, by which results are fetched.
    """
    check_priority(api, job)
    check_queue(api, job)
    controllers.check_kind(api, job)
    wanted = [each for each in objects_named(job) if (each.kind, each.name) not in coming]
    looks = [beside(partial(unless_denied, _look(api, each))) for each in wanted]
    quotas = asked.quotas()
    missing = [found for look in looks if (found := look()) is not None]
    for quota in quotas or ():
        if (beyond := beyond_quota(job, quota)) is not None:
            raise beyond
    if any(unsaid_limits(job, quota) for quota in quotas or ()):
        ranges = unless_denied(lambda: api.list("LimitRange").items)
        if ranges is not None and (refusal := without_limits(job, quotas or (), ranges)) is not None:
            raise refusal
    if missing:
        said = "; ".join(each.message for each in missing)
        raise Unavailable(said, hint="; ".join(dict.fromkeys(each.hint for each in missing)))
    return asked.may_execute() is not False


def check_priority(api: Api, job: Job) -> None:
    """Raise InvalidJob for more priority than the namespace says it allows, or where Kueue, which has its
    own, would not heed it. A namespace that may not be read is not judged.
    """
    if job.priority and job.pod.queue is not None:
        raise InvalidJob(
            "priority",
            job.priority,
            f"has no effect in Kueue's queue {job.pod.queue}",
            hint="Kueue goes by --priority-class NAME (`kubectl get priorityclass` lists them), or by a "
            f"class of its own: --label {names.KUEUE_PRIORITY}=NAME (`kubectl get workloadpriorityclass`); "
            "leave --priority out",
        )
    if job.priority <= 0:
        return
    try:
        found = api.find("Namespace", api.namespace)
    except Denied:
        return
    most = most_priority(found)
    if most is not None and job.priority > most:
        allow = f"kubectl annotate namespace {quote(api.namespace)} {names.MOST_PRIORITY}={job.priority}"
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
            "--local-queue: Kueue is not installed in this cluster",
            hint="leave --local-queue out: echelon has a queue of its own (`echelon queue`)",
        ) from None
    except Denied:
        return
    if not there:
        listed = f"`kubectl get localqueues -n {quote(api.namespace)}` {_HERE}"
        raise Unavailable(
            f"--local-queue: Kueue has no LocalQueue {queue} in namespace {api.namespace}", hint=listed
        )


def _look(api: Api, named: Named) -> Callable[[], Unavailable | None]:
    """A look at an object. Of a claim its state counts as well: one that is being deleted takes no pod."""

    def look_at_claim() -> Unavailable | None:
        from echelon.engines.kubernetes.diagnose.claims import claim_trouble
        from echelon.engines.kubernetes.diagnose.cluster_events import Events

        found = api.find_shape(_CLAIM, Claim, named.name)
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
    where = "" if named.kind in _OF_CLUSTERS else f" in namespace {api.namespace}"
    return Unavailable(f"{named.flag}: {named.words} {named.name} does not exist{where}", hint=named.hint)
