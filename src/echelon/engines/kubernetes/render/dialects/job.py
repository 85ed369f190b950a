"""Workers as plain Kubernetes Jobs: one Indexed Job for each group of equal workers.

The agents count restarts; the Job replaces pods until the leader's exit code means that the run is over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import field

from echelon.agent.task import NO_LEADER, RUN_OVER
from echelon.engines.decoding import decode
from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.fields import conditions, moment, one_line, whole_number
from echelon.engines.kubernetes.render.dialects.end import End
from echelon.engines.kubernetes.render.dialects.place import Place
from echelon.engines.kubernetes.render.payload import layout
from echelon.engines.kubernetes.render.pod import planned_nodes, pod_template

if TYPE_CHECKING:
    from echelon.engines.kubernetes.record import Shipped
    from echelon.model.plan import Plan
    from echelon.model.run import Record

Object = dict[str, Any]
KINDS: tuple[str, ...] = ("Job",)
_MOST_WORKERS = 100_000  # more than Kubernetes runs; a Job may be given any number
_ENDS = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")


class _Annotations(shapes.Shape, frozen=True):
    """The planned nodes of the workers: a JSON list."""

    nodes: str = field(name=names.NODES, default="")


class _Meta(shapes.Shape, frozen=True):
    """A Job's name, labels and annotations."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: _Annotations = _Annotations()
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


def render(
    record: Record, plan: Plan, shipped: Shipped, *, security_level: str = "", suspend: bool = False
) -> list[Object]:
    """One Indexed Job for each group of equal workers."""
    job_names = names.job_names(plan.run, plan.world)
    found = []
    for number, first_worker in enumerate(names.first_workers(plan.world)):
        group = plan.world.groups[number]
        about = names.metadata(plan.run, record.owner, job_names[number], names.WORKER)
        about["labels"][names.ROLE] = group.role
        about["annotations"][names.FIRST_WORKER] = str(first_worker)
        nodes = planned_nodes(plan, group, first_worker)
        if any(nodes):
            about["annotations"][names.NODES] = json.dumps(nodes)
        spec = {
            "completionMode": "Indexed",
            "completions": group.workers,
            "parallelism": group.workers,
            "suspend": suspend,
            # The agents count restarts; the Job only must not give up before they do.
            "backoffLimitPerIndex": plan.restarts + 1,
            "maxFailedIndexes": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [_run_is_over(), _is_taken_away()]},
            "ttlSecondsAfterFinished": int(record.job.pod.ttl),
            "template": pod_template(
                record,
                plan,
                number,
                bundles=len(layout(shipped)),
                first_worker=first_worker,
                security_level=security_level,
            ),
        }
        found.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec})
    return found


def leader_selector(run: str) -> dict[str, str]:
    """The labels of worker 0's pod."""
    return {names.JOB_NAME: run, names.COMPLETION_INDEX: "0"}


def index_of(pod: Mapping[str, Any]) -> int | None:
    """The pod's completion index."""
    about = pod["metadata"]
    notes, marks = about.get("annotations") or {}, about.get("labels") or {}
    return whole_number(notes.get(names.COMPLETION_INDEX) or marks.get(names.COMPLETION_INDEX))


def places(obj: Shape) -> Iterator[Place]:
    """The indexes of a started Job whose pods exist or will exist. A Job may be given any number of them:
    those without a planned node are told as one.
    """
    ended = any(each.type in _ENDS and each.status == "True" for each in obj.status.conditions or ())
    if ended or obj.spec.suspend or obj.metadata.deletion_timestamp is not None:
        return
    about = obj.metadata
    nodes = _planned_nodes(about.annotations.nodes)
    for index in _unfinished(obj):
        yield Place(
            namespace=about.namespace,
            run=about.labels.get(names.RUN, ""),
            pod=(about.name, str(index)),
            node=nodes[index] if index < len(nodes) else "",
            spec=obj.spec.template.spec,
        )
        if index >= len(nodes):
            return


def pod_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The names of a pod's Job and index."""
    index = labels.get(names.COMPLETION_INDEX)
    return () if index is None else (labels.get(names.JOB_NAME, ""), index)


def wanted(obj: Mapping[str, Any]) -> int:
    """A Job's completions."""
    return min(max(1, (obj.get("spec") or {}).get("completions") or 1), _MOST_WORKERS)


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
    """A deadline that has passed: the Job controller ends the pods and keeps the Job."""
    return {"spec": {"activeDeadlineSeconds": 1}}


def _unfinished(obj: Shape) -> Iterator[int]:
    count, index = obj.spec.completions or 0, 0
    for first, last in sorted([*_ranges(obj.status.completed_indexes), *_ranges(obj.status.failed_indexes)]):
        yield from range(index, min(first, count))
        index = max(index, last + 1)
    yield from range(index, count)


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
        reason=str(condition.get("reason") or ""),
        message=one_line(condition.get("message")),
        at=_changed(condition),
        final=final,
    )


def _changed(condition: Mapping[str, Any]) -> float:
    return moment(condition.get("lastTransitionTime")) or 0.0


def _is_taken_away() -> Object:
    """A pod that the cluster evicted or preempted, or whose node was drained, counts as no failure."""
    condition = {"type": "DisruptionTarget", "status": "True"}
    return {"action": "Ignore", "onPodConditions": [condition]}


def _run_is_over() -> Object:
    """Any other end of an agent is made good by another pod in its place."""
    codes = {"containerName": names.CONTAINER, "operator": "In", "values": [RUN_OVER, NO_LEADER]}
    return {"action": "FailJob", "onExitCodes": codes}
