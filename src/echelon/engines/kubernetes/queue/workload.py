"""A run of several Jobs in a queue of Kueue's: its Workload is made, read, and given back.

The Jobs wait as for our own admission. That Kueue has admitted the Workload takes the place of a look
for free nodes; what it says until then is why the run waits. If Kueue takes the quota back, all Jobs wait
again, and another Workload asks anew. When the run is over the Workload is deleted: that frees its quota.

What Kueue does for the Workload of a Job is done for this one here: its priority is looked up, and a
condition says when its pods are ready. Without that Kueue takes the quota back after the administrator's
`waitForPodsReady`, which is half an hour by default since 0.19."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime

from echelon.engines.base import NotAdmitted
from echelon.engines.kubernetes import names, objects, shapes
from echelon.engines.kubernetes.client.api import Api, Conflict, NotThere, Object
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render.workload import Priority, class_of, with_priority
from echelon.errors import Denied, Unavailable
from echelon.model.pods.pod import JOB

_DECIDES = 3.0  # seconds within which Kueue has looked at a Workload
_LOOK = 0.2
_READY = "PodsReady"


def is_in(stored: Stored) -> bool:
    """Whether Kueue admits the run by a Workload of its own."""
    plan = stored.shape or stored.run.plan
    several = plan is not None and len(plan.world.groups) > 1
    return several and stored.dialect == JOB and stored.run.job.pod.queue is not None


def make(api: Api, wanted: Object, owner: Object) -> None:
    """Ask Kueue for the run; `owner` is its record. What is there of an earlier run of its name goes."""
    try:
        objects.create(api, as_served(api, wanted), owner, kind=names.KUEUE_WORKLOADS)
    except Denied as error:
        raise Denied(
            f"a run of several Jobs needs a Workload of its own in Kueue's queue: {error.message}",
            hint="ask for the right to create and delete workloads.kueue.x-k8s.io, and to patch their "
            "status; or leave --role out, and use equal shares: a single Job needs no such right",
        ) from None


def as_served(api: Api, wanted: Object) -> Object:
    """The Workload in the newest version that the cluster serves, with the priority of its class."""
    wanted = {**wanted, "apiVersion": api.version_of(names.KUEUE_WORKLOADS)}
    name, of_pods = class_of(wanted)
    if not name:
        return wanted
    kind = "PriorityClass" if of_pods else names.KUEUE_PRIORITIES
    found = api.find_shape(kind, shapes.PriorityClass, name)
    if found is None:
        words = "priority class" if of_pods else "WorkloadPriorityClass"
        raise Unavailable(f"there is no {words} {name}", hint="name another one")
    return with_priority(wanted, Priority(name=name, value=found.value, of_pods=of_pods))


def wait_for_answer(api: Api, stored: Stored) -> dict[str, Object]:
    """What Kueue wants of the pods of each Job, once it has admitted all of them. Raises NotAdmitted, with
    what Kueue says, as long as it has not.
    """
    deadline = time.monotonic() + _DECIDES
    while True:
        found = find(api, stored)
        if found is not None and _is_admitted(found):
            return _assigned(api, found)
        if (found is not None and _is_decided(found)) or time.monotonic() > deadline:
            said = _reason_of([found] if found is not None else [])
            raise NotAdmitted(f"queued in Kueue's queue {stored.run.job.pod.queue}: {said}")
        time.sleep(_LOOK)


def eviction_of(found: shapes.Workload | None) -> str:
    """Why a run that Kueue admitted must wait again; "" if it need not."""
    if found is None:
        return "Kueue's Workload of it was deleted"
    return "" if _is_admitted(found) else f"Kueue has taken its quota back: {_reason_of([found])}"


def say_ready(api: Api, workload: shapes.Workload) -> bool:
    """Set the condition by which Kueue knows that all pods are at work, and leave the others as they are;
    False if Kueue has written at the same time.
    """
    if _holds(workload, _READY):
        return True
    name = workload.metadata.name
    now = api.get(names.KUEUE_WORKLOADS, name)
    others = [each for each in now["status"]["conditions"] if each["type"] != _READY]
    ready = {
        "type": _READY,
        "status": "True",
        "reason": "Started",
        "message": "All pods were ready or succeeded since the workload admission",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    change = {
        "metadata": {"resourceVersion": now["metadata"]["resourceVersion"]},
        "status": {"conditions": [*others, ready]},
    }
    try:
        api.patch(names.KUEUE_WORKLOADS, name, change, subresource="status", uid=workload.metadata.uid)
    except (Conflict, NotThere):
        return False
    return True


def free(api: Api, stored: Stored) -> None:
    """Give back what Kueue has given to the run."""
    if is_in(stored):
        with suppress(Denied, NotThere):
            if (found := find(api, stored)) is not None:
                api.delete(names.KUEUE_WORKLOADS, stored.run.ref.name, uid=found.metadata.uid)


def find(api: Api, stored: Stored) -> shapes.Workload | None:
    """The run's own Workload: anybody may make one of its name."""
    found = api.find_shape(names.KUEUE_WORKLOADS, shapes.Workload, stored.run.ref.name)
    return found if found is not None and stored.uid in found.metadata.owners else None


def _is_admitted(workload: shapes.Workload) -> bool:
    return _holds(workload, "Admitted") and not _holds(workload, "Evicted")


def _holds(workload: shapes.Workload, condition: str) -> bool:
    found = shapes.condition(workload.status.conditions, condition)
    return found is not None and found.status == "True"


def _is_decided(workload: shapes.Workload) -> bool:
    return shapes.condition(workload.status.conditions, "QuotaReserved") is not None


def _assigned(api: Api, workload: shapes.Workload) -> dict[str, Object]:
    """The node labels and tolerations of the flavors that each pod set was given. Flavors that the user may
    not read count for nothing: the pods go where the scheduler finds room.
    """
    found: dict[str, Object] = {}
    known: dict[str, shapes.FlavorSpec] = {}
    for each in workload.status.admission.pod_set_assignments:
        labels: dict[str, str] = {}
        tolerations: list[Object] = []
        for flavor in dict.fromkeys(each.flavors.values()):
            if flavor not in known:
                known[flavor] = _flavor(api, flavor)
            labels |= known[flavor].node_labels
            tolerations += known[flavor].tolerations
        found[each.name] = {"nodeSelector": labels, "tolerations": tolerations}
    return found


def _flavor(api: Api, name: str) -> shapes.FlavorSpec:
    with suppress(Denied, NotThere):
        if (found := api.find_shape(names.KUEUE_FLAVORS, shapes.Flavor, name)) is not None:
            return found.spec
    return shapes.FlavorSpec()


def _reason_of(workloads: list[shapes.Workload]) -> str:
    from echelon.engines.kubernetes.diagnose.kueue import reason_of  # a run that starts at once needs none

    return reason_of(workloads)
