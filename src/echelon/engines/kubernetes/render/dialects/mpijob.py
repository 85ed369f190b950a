"""Workers as an MPIJob of mpi-operator (v2beta1): worker 0 is the Launcher, all others are Workers.

The Launcher is the pod of a Job of its own, which its controller makes, and its end is the job's. It counts
as a worker: it has the index 0, and GPUs. No pod runs sshd, since the agents are mpirun's remote shell; the
operator's keys are mounted where nothing looks for them. Of Workers, the operator replaces those whose pods
were deleted, and none that ended: one that is lost ends the run. It forgets no job, and heeds a deadline only
as long as the Launcher has not begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.render.dialects import suspension
from echelon.engines.kubernetes.render.dialects.kubeflow import Replicated

if TYPE_CHECKING:
    from echelon.engines.kubernetes.render.dialects.end import End
    from echelon.model.plan import Plan
    from echelon.model.run import Record
    from echelon.model.world import World

Object = dict[str, Any]


class _MpiJob(Replicated):
    """What mpi-operator does in another way than the training operator."""

    VERSION = "kubeflow.org/v2beta1"
    TASK: Mapping[str, Any] = {**Replicated.TASK, "replaced": False}

    def restart_policy(self, first: int, plan: Plan) -> str:  # noqa: ARG002 - a controller's
        """A container that starts again would number its lines anew."""
        return "Never"

    def run_policy(self, record: Record) -> Object:  # noqa: ARG002 - a controller's
        """A time to live would take the Launcher's pod alone, which has the verdict."""
        return {"cleanPodPolicy": "Running", "backoffLimit": 0}

    def for_controller(self, template: Object, first: int, record: Record) -> Object:
        """Pods are numbered through, from the Launcher on, and the agent's container is the first, to which
        the operator adds what it adds. The Launcher's pod shows whose it is.
        """
        made = super().for_controller(template, first, record)
        about, spec = made["metadata"], made["spec"]
        mine = next(each for each in spec["containers"] if each["name"] == self.CONTAINER)
        zero = {"name": names.ENV_FIRST_WORKER, "value": "0"}
        env = [zero if each["name"] == names.ENV_FIRST_WORKER else each for each in mine["env"]]
        others = [each for each in spec["containers"] if each is not mine]
        return {
            "metadata": {
                **about,
                "labels": {**about["labels"], names.FIRST_WORKER: "0"},
                "annotations": {**about["annotations"], names.CREATED: str(record.created)},
            },
            "spec": {**spec, "containers": [{**mine, "env": env}, *others]},
        }

    def leader_service(self, run: str) -> str:
        """Not the run's name: the operator makes a headless Service of that name."""
        return names.leader_beside(run)

    def makers(self, run: str, world: World) -> tuple[str, ...]:  # noqa: ARG002 - a dialect's
        """The Launcher's Job."""
        return (f"{run}-launcher",)

    def end_of(self, objects: Sequence[Mapping[str, Any]]) -> End | None:
        """The job's own end, or the one that a stop made."""
        return super().end_of(objects) or (suspension.end_by_suspension(objects[0]) if objects else None)

    def is_suspended(self, obj: Mapping[str, Any]) -> bool:
        """Whether the job waits, and was not ended so."""
        return super().is_suspended(obj) and not suspension.is_marked(obj)

    def ended(self) -> Object:
        """It is suspended for good."""
        return suspension.ending(self.suspended(suspend=True))

    def withdrawn(self) -> Object:
        """The same: it is suspended already."""
        return self.ended()

    def lasting(self, obj: Mapping[str, Any], seconds: int) -> Object | None:  # noqa: ARG002 - a dialect's
        """It stays until it is removed."""
        return None


def _slots(plan: Plan) -> Object:
    """What a script that reads the operator's hostfile finds there."""
    return {
        "slotsPerWorker": plan.world.groups[-1].procs,
        "runLauncherAsWorker": True,
        "sshAuthMountPath": names.SSH_DIR,
    }


DIALECT = _MpiJob(
    kind="MPIJob",
    specs="mpiReplicaSpecs",
    container=names.CONTAINER,
    types={"launcher": "Launcher", "worker": "Worker"},
    lead="Launcher",
    more=_slots,
)
