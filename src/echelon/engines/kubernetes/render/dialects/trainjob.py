"""Workers as a TrainJob of Kubeflow's second generation, and the TrainingRuntime that it is made from.

Trainer makes a JobSet of the two, and its controller one Indexed Job for each group of equal workers: these
are as echelon's own Jobs are, and heed the same exit codes. The runtime holds all of it, belongs to the
record and goes with it. If one of several Jobs fails, the others are deleted: so the worker of a failed rank
leaves with 0, and the leader ends the run. A running TrainJob has no condition; none is ever forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.fields import conditions, has_conditions
from echelon.engines.kubernetes.render.dialects import job as plain
from echelon.engines.kubernetes.render.dialects import suspension
from echelon.engines.kubernetes.render.dialects.indexed import indexed_spec
from echelon.engines.kubernetes.render.dialects.kubeflow import (
    Unread,
    metadata_of_all,
    to_end,
    workers_of_all,
)
from echelon.engines.kubernetes.render.payload import map_names
from echelon.engines.kubernetes.render.pod import pod_template
from echelon.errors import InvalidJob
from echelon.model.world import World

if TYPE_CHECKING:
    from echelon.engines.kubernetes.record import Shipped
    from echelon.engines.kubernetes.render.dialects.end import End
    from echelon.engines.kubernetes.render.dialects.place import InKueue, InQueue, Place
    from echelon.model.job import Job
    from echelon.model.plan import Plan
    from echelon.model.run import Record

Object = dict[str, Any]
VERSION = "trainer.kubeflow.org/v1alpha1"
RUNTIME = "TrainingRuntime"
KINDS: tuple[str, ...] = ("TrainJob",)
CONTAINER = "node"  # Trainer's name for it, and for its Job
KEEPS_PLACES = False
MADE_FROM: tuple[str, ...] = (RUNTIME,)
TASK: Mapping[str, Any] = {"show_failure": False, "leader_pod": None}
Shape: type[Any] = Unread


def check(job: Job) -> None:
    """Raise InvalidJob for workers that are not alike."""
    if job.shape is not None and job.shape.shares != "equal":
        raise InvalidJob("as", "trainjob", "has equal workers alone", hint="leave --shares or --as out")


def render(
    record: Record,
    plan: Plan,
    shipped: Shipped,
    *,
    security_level: str = "",
    task: str | None = None,
    waits: bool = False,
) -> list[Object]:
    """The runtime with the Jobs of all groups, and the TrainJob that names it."""
    assert not waits, "the controller admits it"
    jobs = []
    firsts = names.first_workers(plan.world)
    for number, (name, first) in enumerate(zip(_job_names(plan.world), firsts, strict=True)):
        template = pod_template(
            record,
            plan,
            number,
            bundles=map_names(record.ref.name, shipped),
            first_worker=first,
            security_level=security_level,
            task=task,
        )
        spec = indexed_spec(record, plan, number, first, CONTAINER)
        made: Object = {"spec": {**spec, "template": _for_trainer(template, record)}}
        if number == 0:
            made = {"metadata": {"labels": {names.TRAINER_STEP: "trainer"}}, **made}
        jobs.append({"name": name, "template": made})
    workers, run = plan.world.groups[0].workers, record.job.name
    about = metadata_of_all(record, plan)
    runtime = {
        "apiVersion": VERSION,
        "kind": RUNTIME,
        "metadata": names.metadata(run, record.owner, run, names.RUNTIME, record.job),
        "spec": {"mlPolicy": {"numNodes": workers}, "template": {"spec": {"replicatedJobs": jobs}}},
    }
    reference = {"apiGroup": VERSION.partition("/")[0], "kind": RUNTIME, "name": run}
    spec = {"runtimeRef": reference, "trainer": {"numNodes": workers}}
    return [runtime, {"apiVersion": VERSION, "kind": KINDS[0], "metadata": about, "spec": spec}]


def _job_names(world: World) -> list[str]:
    """The name of every group's Job in the JobSet: the first is Trainer's, the others are their roles."""
    found = [CONTAINER, *(group.role for group in world.groups[1:])]
    if len(set(found)) < len(found):
        raise InvalidJob("as", "trainjob", "has one Job for each role", hint="leave --as out")
    return found


def _for_trainer(template: Object, record: Record) -> Object:
    """A pod template with the container's name that Trainer wants, and the sign of whose pod it is."""
    about, spec = template["metadata"], template["spec"]
    containers = [
        {**each, "name": CONTAINER} if each["name"] == names.CONTAINER else each
        for each in spec["containers"]
    ]
    notes = {**about["annotations"], names.CREATED: str(record.created)}
    return {"metadata": {**about, "annotations": notes}, "spec": {**spec, "containers": containers}}


def leader_selector(run: str) -> dict[str, str]:
    """The first pod of the first Job."""
    return {names.JOB_NAME: f"{run}-{CONTAINER}-0", names.COMPLETION_INDEX: "0"}


def leader_service(run: str) -> str:
    """Not the run's name: the JobSet's controller makes a headless Service of that name."""
    return names.leader_beside(run)


def makers(run: str, world: World) -> tuple[str, ...]:
    """The JobSet's Jobs."""
    return tuple(f"{run}-{name}-0" for name in _job_names(world))


def index_of(about: shapes.ObjectMeta) -> int | None:
    """The pod's completion index."""
    return plain.index_of(about)


def pod_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The names of a pod's Job and index."""
    return plain.pod_of(labels)


def in_kueue(obj: Any) -> InKueue | None:  # noqa: ARG001 - a dialect's
    """It keeps no places, and is not looked at."""
    return None


def in_queue(obj: Any) -> InQueue | None:  # noqa: ARG001 - a dialect's
    """It does not wait in our queue."""
    return None


def places(obj: Any) -> Iterator[Place]:  # noqa: ARG001 - a dialect's
    """It keeps none: Kubernetes' scheduler places its pods."""
    return iter(())


def wanted(obj: Mapping[str, Any]) -> int:
    """The workers of all groups."""
    return workers_of_all(obj)


def template_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG001 - a dialect's
    """Its runtime has the templates."""
    return {}


def is_known(obj: Mapping[str, Any]) -> bool:
    """Whether its JobSet has Jobs, which needs both controllers; or an end, or a reason why it has none."""
    return has_conditions(obj) or bool((obj.get("status") or {}).get("jobsStatus"))


def end_of(objects: Sequence[Mapping[str, Any]]) -> End | None:
    """The job's own end, or the one that a stop made; pods of a failed one may still be leaving."""
    found = conditions(objects[0]) if objects else {}
    if (failed := found.get("Failed")) is not None:
        return to_end(failed, final=False, succeeded=False)
    if (met := found.get("Complete")) is not None:
        return to_end(met, final=True, succeeded=True)
    return suspension.end_by_suspension(objects[0]) if objects else None


def is_suspended(obj: Mapping[str, Any]) -> bool:
    """Whether the job waits, and was not ended so."""
    return bool((obj.get("spec") or {}).get("suspend")) and not suspension.is_marked(obj)


def suspended(*, suspend: bool) -> Object:
    """Suspending a running job deletes its pods."""
    return {"spec": {"suspend": suspend}}


def ended() -> Object:
    """It is suspended for good."""
    return suspension.ending(suspended(suspend=True))


def withdrawn() -> Object:
    """The same: it is suspended already."""
    return ended()


def is_withdrawn(obj: Mapping[str, Any]) -> bool:  # noqa: ARG001 - a dialect's
    """It ends with a condition."""
    return False


def lasting(obj: Mapping[str, Any], seconds: int) -> Object | None:  # noqa: ARG001 - a dialect's
    """It stays until it is removed."""
    return None
