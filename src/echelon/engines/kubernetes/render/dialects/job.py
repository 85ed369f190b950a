"""Workers as plain Kubernetes Jobs: one Indexed Job for each group of equal workers.

The agents count restarts; the Job replaces pods until the leader's exit code means that the run is over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import field

from echelon.engines.decoding import decode
from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.fields import conditions, moment, one_line, whole_number
from echelon.engines.kubernetes.render.dialects.end import End
from echelon.engines.kubernetes.render.dialects.indexed import indexed_spec
from echelon.engines.kubernetes.render.dialects.lifetime import time_to_live
from echelon.engines.kubernetes.render.dialects.place import InKueue, InQueue, Place
from echelon.engines.kubernetes.render.payload import map_names
from echelon.engines.kubernetes.render.pod import planned_nodes, pod_template

if TYPE_CHECKING:
    from echelon.engines.kubernetes.record import Shipped
    from echelon.model.job import Job
    from echelon.model.plan import Plan
    from echelon.model.run import Record
    from echelon.model.world import World

Object = dict[str, Any]
KINDS: tuple[str, ...] = ("Job",)
CONTAINER = names.CONTAINER
KEEPS_PLACES = True
MADE_FROM: tuple[str, ...] = ()
TASK: Mapping[str, Any] = {}
_MOST_WORKERS = 100_000  # more than Kubernetes runs; a Job may be given any number
_ENDS = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")


class _Annotations(shapes.Shape, frozen=True):
    """The planned nodes of the workers, a JSON list; and how the run stands in the queue."""

    nodes: str = field(name=names.NODES, default="")
    waits: str = field(name=names.WAITS, default="")
    created: str = field(name=names.CREATED, default="")
    priority: str = field(name=names.PRIORITY, default="")
    tried: str = field(name=names.TRIED, default="")
    plan: str = field(name=names.PLAN, default="")
    timeout: str = field(name=names.TIMEOUT, default="")
    admitted: str = field(name=names.ADMITTED, default="")
    whole: str = field(name=names.WHOLE, default="")
    owner: str = field(name=names.OWNER, default="")
    in_kueue: str = field(name=names.IN_KUEUE, default="")


class _Meta(shapes.Shape, frozen=True):
    """A Job's name, labels and annotations."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: _Annotations = _Annotations()
    uid: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class _Template(shapes.Shape, frozen=True):
    """A Job's pod template."""

    spec: shapes.PodSpec = shapes.PodSpec()


class _Spec(shapes.Shape, frozen=True):
    """How many pods a Job creates, and whether it is suspended."""

    completions: int | None = None
    suspend: bool = False
    template: _Template = _Template()


class _Status(shapes.Shape, frozen=True):
    """A Job's conditions, and the indexes that have ended for good: `0-3,7`."""

    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: list[shapes.Condition] | None = None


class Shape(shapes.Shape, frozen=True):
    """A Job, as far as its places are concerned."""

    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def check(job: Job) -> None:
    """Jobs can be whatever a plan says."""


def render(
    record: Record,
    plan: Plan,
    shipped: Shipped,
    *,
    security_level: str = "",
    task: str | None = None,
    waits: bool = False,
) -> list[Object]:
    """One Indexed Job for each group of equal workers. All that depends on the plan is in fields that may
    change until it starts.
    """
    job_names = names.job_names(record.job.name, plan.world)
    found = []
    for number, first_worker in enumerate(names.first_workers(plan.world)):
        group = plan.world.groups[number]
        about = names.metadata(record.job.name, record.owner, job_names[number], names.WORKER, record.job)
        about["labels"][names.ROLE] = group.role
        if record.job.pod.queue is not None and len(job_names) == 1:  # several are admitted by one Workload
            about["labels"][names.KUEUE_QUEUE] = record.job.pod.queue
        about["annotations"][names.FIRST_WORKER] = str(first_worker)
        nodes = planned_nodes(plan, group, first_worker)
        if any(nodes):
            about["annotations"][names.NODES] = json.dumps(nodes)
        template = pod_template(
            record,
            plan,
            number,
            bundles=map_names(record.ref.name, shipped),
            first_worker=first_worker,
            security_level=security_level,
            task=task,
        )
        suspend = waits or record.job.pod.queue is not None
        spec = {
            **indexed_spec(record, plan, number, first_worker, names.CONTAINER, suspend=suspend),
            "ttlSecondsAfterFinished": int(time_to_live(record)),
            "template": template,
        }
        # So that the leader's pod has a name in DNS; a user's own Service is more important.
        spec["template"]["spec"].setdefault("subdomain", names.leader_host(record.job.name))
        found.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec})
    return found


def leader_selector(run: str) -> dict[str, str]:
    """The labels of worker 0's pod."""
    return {names.JOB_NAME: run, names.COMPLETION_INDEX: "0"}


def leader_service(run: str) -> str:
    """The run's own name."""
    return names.leader_host(run)


def makers(run: str, world: World) -> tuple[str, ...]:  # noqa: ARG001 - a dialect's
    """A Job makes its pods itself."""
    return ()


def index_of(about: shapes.ObjectMeta) -> int | None:
    """The pod's completion index."""
    index = about.annotations.get(names.COMPLETION_INDEX) or about.labels.get(names.COMPLETION_INDEX)
    return whole_number(index)


def places(obj: Shape) -> Iterator[Place]:
    """The indexes of a started Job whose pods exist or will exist. A Job may be given any number of them:
    those without a planned node are told as one.
    """
    ended = any(each.type in _ENDS and each.status == "True" for each in obj.status.conditions or ())
    if ended or obj.spec.suspend or obj.metadata.deletion_timestamp is not None:
        return
    about = obj.metadata
    notes = about.annotations
    nodes = _planned_nodes(notes.nodes)
    for index in _unfinished(obj):
        planned = index < len(nodes)
        yield Place(
            namespace=about.namespace,
            run=about.labels.get(names.RUN, ""),
            pod=(about.name, str(index)),
            node=nodes[index] if planned else "",
            spec=obj.spec.template.spec,
            count=1 if planned else max(1, (obj.spec.completions or 0) - index),
            owner=notes.owner,
            timeout=_number(notes.timeout),
            admitted=_number(notes.admitted),
            whole=bool(notes.whole),
            made=moment(about.creation_timestamp) or 0.0,
        )
        if not planned:
            return


def in_queue(obj: Shape) -> InQueue | None:
    """The place in the queue of the run whose first Job this is, if it waits there."""
    about, notes = obj.metadata, obj.metadata.annotations
    run = about.labels.get(names.RUN, "")
    if not obj.spec.suspend or about.deletion_timestamp is not None or about.name != run or not notes.waits:
        return None
    if notes.in_kueue:  # it keeps no run waiting that Kueue does not admit
        return None
    if _number(notes.admitted) > _number(notes.tried):  # suspended from outside since
        return None
    waits = _read_waits(notes.waits)
    return InQueue(
        namespace=about.namespace,
        run=run,
        created=_number(notes.created),
        priority=int(_number(notes.priority)),
        tried=_number(notes.tried),
        again=any(each.get("admitted") is not None for each in waits),
        uid=about.uid,
        stamp=moment(about.creation_timestamp) or 0.0,
        owner=notes.owner,
        reason=one_line(waits[-1].get("reason")) if waits else "",
        plan=notes.plan,
        timeout=_number(notes.timeout),
    )


def in_kueue(obj: Shape) -> InKueue | None:
    """The run whose first Job this is, if it waits for Kueue."""
    about, notes = obj.metadata, obj.metadata.annotations
    run, queue = about.labels.get(names.RUN, ""), about.labels.get(names.KUEUE_QUEUE, "") or notes.in_kueue
    if not queue or not obj.spec.suspend or about.deletion_timestamp is not None or about.name != run:
        return None
    return InKueue(
        namespace=about.namespace,
        run=run,
        queue=queue,
        spec=obj.spec.template.spec,
        count=obj.spec.completions or 1,
        plan=notes.plan,
        made=moment(about.creation_timestamp) or 0.0,
        owner=notes.owner,
    )


def _read_waits(text: str) -> list[dict[str, Any]]:
    try:
        return decode(text, list[dict[str, Any]])
    except (msgspec.DecodeError, RecursionError):
        return []


def pod_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The names of a pod's Job and index."""
    index = labels.get(names.COMPLETION_INDEX)
    return () if index is None else (labels.get(names.JOB_NAME, ""), index)


def wanted(obj: Mapping[str, Any]) -> int:
    """A Job's completions."""
    return min(max(1, (obj.get("spec") or {}).get("completions") or 1), _MOST_WORKERS)


def template_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Job's pod template."""
    found: Mapping[str, Any] = (obj.get("spec") or {}).get("template") or {}
    return found


def is_known(obj: Mapping[str, Any]) -> bool:  # noqa: ARG001 - a dialect's
    """Every cluster has a Job controller."""
    return True


def lasting(obj: Mapping[str, Any], seconds: int) -> Object | None:
    """The change of the time to live."""
    if (obj.get("spec") or {}).get("ttlSecondsAfterFinished") == seconds:
        return None
    return {"spec": {"ttlSecondsAfterFinished": seconds}}


def end_of(objects: Sequence[Mapping[str, Any]]) -> End | None:
    """A run fails with its first Job, and is complete with its last."""
    found = [conditions(obj) for obj in objects]
    for name, final in (("Failed", True), ("FailureTarget", False)):
        failed = [each[name] for each in found if name in each]
        if failed:
            return _to_end("failed", min(failed, key=_changed), final=final)
    met = [each.get("Complete") or each.get("SuccessCriteriaMet") for each in found]
    if met and all(met):
        last = max((each for each in met if each), key=_changed)
        return _to_end("complete", last, final=all("Complete" in each for each in found))
    return None


def is_suspended(obj: Mapping[str, Any]) -> bool:
    """Whether the Job waits."""
    return bool((obj.get("spec") or {}).get("suspend"))


def suspended(*, suspend: bool) -> Object:
    """Suspending a running Job deletes its pods."""
    return {"spec": {"suspend": suspend}}


def ended() -> Object:
    """A deadline that has passed: the Job controller ends the pods and keeps the Job. While a Job is
    suspended it is ignored.
    """
    return {"spec": {"activeDeadlineSeconds": 1}}


def withdrawn() -> Object:
    """Nothing is left to do: a suspended Job is complete without a pod, and its time to live begins."""
    return {"spec": {"suspend": False, "completions": 0, "parallelism": 0, "maxFailedIndexes": 0}}


def is_withdrawn(obj: Mapping[str, Any]) -> bool:
    """Whether the Job was made to end without a pod."""
    return (obj.get("spec") or {}).get("completions") == 0


def _unfinished(obj: Shape) -> Iterator[int]:
    count, index = obj.spec.completions or 0, 0
    for first, last in sorted([*_ranges(obj.status.completed_indexes), *_ranges(obj.status.failed_indexes)]):
        yield from range(index, min(first, count))
        index = max(index, last + 1)
    yield from range(index, count)


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if -1e12 < found < 1e12 else 0.0


def _planned_nodes(text: str) -> list[str]:
    try:
        return decode(text or "[]", list[str])
    except (msgspec.DecodeError, RecursionError):
        return []


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    """The ranges in a Job's list of indexes: `0,3-5`; first and last of each."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = whole_number(first), whole_number(last or first)
        if begin is not None and end is not None:
            yield begin, end


def _to_end(outcome: Literal["complete", "failed"], condition: Mapping[str, Any], *, final: bool) -> End:
    return End(
        outcome=outcome,
        reason=one_line(condition.get("reason")),
        message=one_line(condition.get("message")),
        at=_changed(condition),
        final=final,
    )


def _changed(condition: Mapping[str, Any]) -> float:
    return moment(condition.get("lastTransitionTime")) or 0.0
