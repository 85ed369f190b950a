"""Workers as one job of Kubeflow's with replica specs: what PyTorchJob, TFJob and MPIJob have in common, and
how the controller of the first two runs them.

Its controller makes the pod of every replica, `NAME-TYPE-INDEX`, and labels it. It decides by exit codes
alone: worker 0, whose agent leads, is never replaced, and its end is the job's; any other worker is replaced
if it was killed or evicted (a code of 128 or more). So the worker of a failed rank leaves with 0, the leader
ends the run, and no gang gives way to other runs. Of a job that is over, the controller deletes what runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.fields import (
    below,
    conditions,
    has_conditions,
    moment,
    one_line,
    whole_number,
)
from echelon.engines.kubernetes.render.dialects.end import End
from echelon.engines.kubernetes.render.dialects.lifetime import time_to_live
from echelon.engines.kubernetes.render.payload import map_names
from echelon.engines.kubernetes.render.pod import pod_template
from echelon.errors import InvalidJob
from echelon.model.world import Group, World, worker_count
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.engines.kubernetes.record import Shipped
    from echelon.engines.kubernetes.render.dialects.place import InKueue, InQueue, Place
    from echelon.model.job import Job
    from echelon.model.plan import Plan
    from echelon.model.run import Record

Object = dict[str, Any]
MOST_WORKERS = 100_000
_OF_JOBS = (names.ENV_FAILURES, names.ENV_EVICTIONS)  # variables that only the Job controller can fill
_NOT = "leave --as out: Jobs have no such limit"


@frozen
class Replicas:
    """The workers of one replica type, as a group of their own, and the number of the first of them."""

    type: str
    group: Group
    first: int


class Unread(shapes.Shape, frozen=True):
    """Nothing is read of such objects where they are many: their pods show what is used."""


class Replicated:
    """The dialect of a kind with replica specs. `types` has the replica type of each role that it knows;
    `lead`, if there is one, is the type of worker 0 alone. `more` are further fields of the spec.
    """

    KEEPS_PLACES = False
    MADE_FROM: tuple[str, ...] = ()
    TASK: Mapping[str, Any] = {"show_failure": False, "give_way": 0.0, "leader_pod": None}
    Shape: type[Any] = Unread
    VERSION = "kubeflow.org/v1"

    def __init__(
        self,
        *,
        kind: str,
        specs: str,
        container: str,
        types: Mapping[str, str],
        lead: str | None = None,
        more: Callable[[Plan], Object] = lambda _plan: {},
    ) -> None:
        self.KINDS: tuple[str, ...] = (kind,)
        self.CONTAINER = container
        self._kind, self._specs, self._types, self._lead, self._more = kind, specs, types, lead, more

    def check(self, job: Job) -> None:
        """Raise InvalidJob for roles that the kind does not have, and for workers that are not alike."""
        for role in job.roles:
            if role.name not in self._types:
                raise self.refused(f"has no replicas for the role {role.name}")
        if job.shape is not None and job.shape.shares != "equal":
            raise self.refused("has equal workers alone", hint="leave --shares or --as out")

    def replicas(self, world: World) -> list[Replicas]:
        """The replica types of a world, in the order of its workers; InvalidJob for one that has a type
        twice.
        """
        groups = list(world.groups)
        types = [self._types.get(group.role, "") for group in groups]
        if self._lead is not None and types[0] != self._lead:
            rest = replace(groups[0], workers=groups[0].workers - 1)
            groups[:1] = [replace(groups[0], workers=1), *([rest] if rest.workers else [])]
            types[:1] = [self._lead, *([types[0]] if rest.workers else [])]
        if "" in types or len(set(types)) < len(types):
            raise self.refused("has replicas of other types than this run has groups of workers")
        firsts = names.first_workers(World(groups=tuple(groups)))
        return [
            Replicas(type=kind, group=group, first=first)
            for kind, group, first in zip(types, groups, firsts, strict=True)
        ]

    def render(
        self,
        record: Record,
        plan: Plan,
        shipped: Shipped,
        *,
        security_level: str = "",
        task: str | None = None,
        waits: bool = False,
    ) -> list[Object]:
        """One job for all workers."""
        assert not waits, "the controller admits it"
        found = self.replicas(plan.world)
        split = replace(plan, world=World(groups=tuple(each.group for each in found)))
        about = metadata_of_all(record, plan)
        specs = {}
        for number, each in enumerate(found):
            template = pod_template(
                record,
                split,
                number,
                bundles=map_names(record.ref.name, shipped),
                first_worker=each.first,
                security_level=security_level,
                task=task,
            )
            specs[each.type] = {
                "replicas": each.group.workers,
                "restartPolicy": self.restart_policy(each.first, plan),
                "template": self.for_controller(template, each.first, record),
            }
        policy = self.run_policy(record)
        if (queue := record.job.pod.queue) is not None:
            about["labels"][names.KUEUE_QUEUE] = queue
            policy["suspend"] = True  # Kueue starts it
        spec = {**self._more(plan), "runPolicy": policy, self._specs: specs}
        return [{"apiVersion": self.VERSION, "kind": self._kind, "metadata": about, "spec": spec}]

    def restart_policy(self, first: int, plan: Plan) -> str:  # noqa: ARG002 - a controller's
        """What the controller does with pods of these replicas that end: worker 0 is not replaced."""
        return "Never" if first == 0 else "ExitCode"

    def run_policy(self, record: Record) -> Object:
        """What the controller does once the job has ended."""
        return {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": int(time_to_live(record))}

    def for_controller(self, template: Object, first: int, record: Record) -> Object:  # noqa: ARG002
        """A pod template as the controller needs it: its container's name is fixed, the restart policy is the
        replicas', and the index of a pod is in a label.
        """
        about, spec = template["metadata"], dict(template["spec"])
        del spec["restartPolicy"]
        index = {"fieldRef": {"fieldPath": f"metadata.labels['{names.REPLICA_INDEX}']"}}
        containers = []
        for each in spec["containers"]:
            if each["name"] == names.CONTAINER:
                kept = [var for var in each["env"] if var["name"] not in _OF_JOBS]
                env = [*kept, {"name": names.ENV_INDEX, "valueFrom": index}]
                containers.append({**each, "name": self.CONTAINER, "env": env})
            else:
                containers.append(each)
        labels = {**about["labels"], names.FIRST_WORKER: str(first)}
        return {"metadata": {**about, "labels": labels}, "spec": {**spec, "containers": containers}}

    def leader_selector(self, run: str) -> dict[str, str]:
        """The first of the first replicas."""
        return {names.RUN: run, names.FIRST_WORKER: "0", names.REPLICA_INDEX: "0"}

    def leader_service(self, run: str) -> str:
        """The run's own name: the controller makes a Service for every replica, and none for the job."""
        return names.leader_host(run)

    def makers(self, run: str, world: World) -> tuple[str, ...]:  # noqa: ARG002 - a dialect's
        """The controller makes all pods itself."""
        return ()

    def index_of(self, about: shapes.ObjectMeta) -> int | None:
        """The pod's index among the replicas of its type."""
        return whole_number(about.labels.get(names.REPLICA_INDEX))

    def pod_of(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """The job, type and index of a pod."""
        index = labels.get(names.REPLICA_INDEX)
        if index is None:
            return ()
        return (labels.get(names.REPLICATED_JOB, ""), labels.get(names.REPLICA_TYPE, ""), index)

    def in_kueue(self, obj: Any) -> InKueue | None:  # noqa: ARG002 - a dialect's
        """It keeps no places, and is not looked at."""
        return None

    def in_queue(self, obj: Any) -> InQueue | None:  # noqa: ARG002 - a dialect's
        """It does not wait in our queue."""
        return None

    def places(self, obj: Any) -> Iterator[Place]:  # noqa: ARG002 - a dialect's
        """It keeps none: Kubernetes' scheduler places its pods."""
        return iter(())

    def wanted(self, obj: Mapping[str, Any]) -> int:
        """The workers of all types; a list of runs reads no replica specs."""
        return workers_of_all(obj)

    def template_of(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """The template of worker 0's pod."""
        specs = (obj.get("spec") or {}).get(self._specs)
        first = next(iter(specs.values()), None) if isinstance(specs, Mapping) else None
        found = first.get("template") if isinstance(first, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def is_known(self, obj: Mapping[str, Any]) -> bool:
        """Whether the controller has written a condition: Created is the first."""
        return has_conditions(obj)

    def end_of(self, objects: Sequence[Mapping[str, Any]]) -> End | None:
        """The job's own end; while it is failed, a leader that the controller deletes may still report."""
        found = conditions(objects[0]) if objects else {}
        if (failed := found.get("Failed")) is not None:
            return to_end(failed, final=False, succeeded=False)
        if (met := found.get("Succeeded")) is not None:
            return to_end(met, final=True, succeeded=True)
        return None

    def is_suspended(self, obj: Mapping[str, Any]) -> bool:
        """Whether the job waits."""
        return bool(below(obj, "spec", "runPolicy").get("suspend"))

    def suspended(self, *, suspend: bool) -> Object:
        """Suspending a running job deletes its pods."""
        return {"spec": {"runPolicy": {"suspend": suspend}}}

    def ended(self) -> Object:
        """A deadline that has passed: the controller deletes what runs, and keeps the job."""
        return {"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}}

    def withdrawn(self) -> Object:
        """The same for a job that waits: it counts its time from when it goes on."""
        return {"spec": {"runPolicy": {"suspend": False, "activeDeadlineSeconds": 1}}}

    def is_withdrawn(self, obj: Mapping[str, Any]) -> bool:  # noqa: ARG002 - a dialect's
        """It ends with a condition."""
        return False

    def lasting(self, obj: Mapping[str, Any], seconds: int) -> Object | None:
        """The change of the time to live."""
        if below(obj, "spec", "runPolicy").get("ttlSecondsAfterFinished") == seconds:
            return None
        return {"spec": {"runPolicy": {"ttlSecondsAfterFinished": seconds}}}

    def refused(self, why: str, *, hint: str = _NOT) -> InvalidJob:
        """The error for a run that the kind cannot express."""
        return InvalidJob("as", self._kind.lower(), why, hint=hint)


def metadata_of_all(record: Record, plan: Plan) -> Object:
    """The metadata of one object that stands for all workers of a run."""
    about = names.metadata(record.job.name, record.owner, record.job.name, names.WORKER, record.job)
    about["annotations"] |= {names.FIRST_WORKER: "0", names.WORKERS: str(worker_count(plan.world))}
    return about


def workers_of_all(obj: Mapping[str, Any]) -> int:
    """How many workers such an object stands for."""
    notes = obj["metadata"].get("annotations") or {}
    return min(max(1, whole_number(notes.get(names.WORKERS)) or 1), MOST_WORKERS)


def to_end(condition: Mapping[str, Any], *, succeeded: bool, final: bool) -> End:
    """The end that a condition of the job stands for."""
    return End(
        outcome="complete" if succeeded else "failed",
        reason=one_line(condition.get("reason")),
        message=one_line(condition.get("message")),
        at=moment(condition.get("lastTransitionTime")) or 0.0,
        final=final,
    )
