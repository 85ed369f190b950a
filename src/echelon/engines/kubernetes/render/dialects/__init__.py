"""Dialects: the kinds of objects that a run's workers can be made of.

A dialect is one module that offers what `Dialect` names; a plain Job is the first. Nothing outside this
package assumes one: other code asks the dialect that a run's record names, or that an object's kind belongs
to. A further one is a module here, a line in `DIALECTS` and a golden file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from echelon.engines.kubernetes.render.dialects import job, mpijob, pytorchjob, tfjob, trainjob
from echelon.engines.kubernetes.render.dialects.end import End
from echelon.engines.kubernetes.render.dialects.place import InKueue, InQueue, Place
from echelon.errors import StateTrouble

if TYPE_CHECKING:
    from echelon.engines.kubernetes.record import Shipped
    from echelon.engines.kubernetes.shapes import ObjectMeta
    from echelon.model.job import Job
    from echelon.model.plan import Plan
    from echelon.model.run import Record
    from echelon.model.world import World

Object = dict[str, Any]
__all__ = [
    "DIALECTS",
    "Dialect",
    "End",
    "InKueue",
    "InQueue",
    "Place",
    "end_of",
    "index_of",
    "kinds_of",
    "leader_service",
    "made_from",
    "makers_of",
    "named",
    "of",
    "pod_of",
    "wanted",
]


class Dialect(Protocol):
    """What a module of this package offers."""

    KINDS: tuple[str, ...]
    """The kinds of the objects that it makes, as the API client names them."""

    MADE_FROM: tuple[str, ...]
    """Kinds of what they are made from; it has the run's name."""

    Shape: type[Any]
    """The fields of such an object that `places` reads: a cluster's are many."""

    CONTAINER: str
    """The name of the container in which the agent runs."""

    KEEPS_PLACES: bool
    """Whether its objects keep places for pods that are not there yet, and may wait in our queue."""

    TASK: Mapping[str, Any]
    """What the agents' task has beside the rest, since its controller needs it so."""

    def check(self, job: Job) -> None:
        """Raise InvalidJob for a job that its objects cannot express."""
        ...

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
        """The objects whose controller makes the pods of a run, one for each group of equal workers; before
        them, what they are made from, of other kinds. The agents' `task` is with the pods, or, without it, in
        the record. Objects that have to be admitted first `wait`, and a change that is sent before they start
        may give them another plan.
        """
        ...

    def in_queue(self, obj: Any) -> InQueue | None:
        """The place in the queue of the run whose first object, a `Shape`, this is; None if it waits not."""
        ...

    def in_kueue(self, obj: Any) -> InKueue | None:
        """The run whose first object, a `Shape`, this is; None unless it waits for Kueue."""
        ...

    def leader_selector(self, run: str) -> dict[str, str]:
        """The labels of worker 0's pod."""
        ...

    def leader_service(self, run: str) -> str:
        """The name of the Service by which worker 0 is found."""
        ...

    def makers(self, run: str, world: World) -> tuple[str, ...]:
        """The names of Jobs that its controller makes of its objects, and that make pods in their place."""
        ...

    def index_of(self, about: ObjectMeta) -> int | None:
        """Which pod of its object a pod with this metadata is; None if it is not one of this dialect's."""
        ...

    def places(self, obj: Any) -> Iterator[Place]:
        """The workers of a started object, a `Shape`, that have not ended for good."""
        ...

    def pod_of(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """What identifies a pod within its namespace, as `Place.pod` does; empty for a pod of no dialect."""
        ...

    def wanted(self, obj: Mapping[str, Any]) -> int:
        """How many workers an object stands for."""
        ...

    def template_of(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """The pod template of the first worker of an object."""
        ...

    def is_known(self, obj: Mapping[str, Any]) -> bool:
        """Whether a controller has taken the object up."""
        ...

    def lasting(self, obj: Mapping[str, Any], seconds: int) -> Object | None:
        """The change by which the object stays so long after its end; None if it does."""
        ...

    def end_of(self, objects: Sequence[Mapping[str, Any]]) -> End | None:
        """How the controller ended a run's objects; None while they may still bring it to its end."""
        ...

    def is_suspended(self, obj: Mapping[str, Any]) -> bool:
        """Whether the object waits for admission."""
        ...

    def suspended(self, *, suspend: bool) -> Object:
        """The change that makes an object wait, or start."""
        ...

    def withdrawn(self) -> Object:
        """The change that lets the controller end an object that waits, without a pod."""
        ...

    def is_withdrawn(self, obj: Mapping[str, Any]) -> bool:
        """Whether an object was ended so."""
        ...

    def ended(self) -> Object:
        """The change that lets the controller end the pods; unlike a deletion it leaves record and logs."""
        ...


DIALECTS: Mapping[str, Dialect] = {
    "job": job,
    "pytorchjob": pytorchjob.DIALECT,
    "tfjob": tfjob.DIALECT,
    "mpijob": mpijob.DIALECT,
    "trainjob": trainjob,
}


def named(name: str) -> Dialect:
    """The dialect of that name; StateTrouble for one that this version does not have."""
    if name not in DIALECTS:
        raise StateTrouble(
            f"a run's workers are made of objects that this version does not know: {name!r}",
            hint="upgrade this one: pip install -U echelon",
        )
    return DIALECTS[name]


def of(obj: Mapping[str, Any]) -> Dialect:
    """The dialect that an object of the API belongs to."""
    return next((each for each in DIALECTS.values() if obj.get("kind") in each.KINDS), job)


def kinds_of(used: Iterable[str]) -> tuple[str, ...]:
    """The kinds of some dialects, by their names, and Jobs; of a dialect that this version does not have,
    none.
    """
    known = [job, *(DIALECTS[name] for name in used if name in DIALECTS)]
    return tuple(dict.fromkeys(kind for each in known for kind in each.KINDS))


def made_from(name: str) -> tuple[str, ...]:
    """Kinds of what a dialect's objects are made from, by its name, whether this version has it or not."""
    return DIALECTS.get(name, job).MADE_FROM


def leader_service(name: str, run: str) -> str:
    """The Service of a run's worker 0, by the name of its dialect, whether this version has it or not."""
    return DIALECTS.get(name, job).leader_service(run)


def makers_of(name: str, run: str, world: World) -> tuple[str, ...]:
    """The names of Jobs in between that make a run's pods, by the name of its dialect."""
    return DIALECTS.get(name, job).makers(run, world)


def index_of(about: ObjectMeta) -> int:
    """Which pod of its object a pod with this metadata is."""
    found = (each.index_of(about) for each in DIALECTS.values())
    return next((index for index in found if index is not None), 0)


def pod_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    """What identifies a pod within its namespace; empty for a pod of no dialect."""
    return next(filter(None, (each.pod_of(labels) for each in DIALECTS.values())), ())


def wanted(objects: Sequence[Mapping[str, Any]]) -> int:
    """How many workers a run's objects stand for."""
    return sum(of(obj).wanted(obj) for obj in objects)


def end_of(objects: Sequence[Mapping[str, Any]]) -> End | None:
    """How the controller ended a run's objects; None while they may still bring it to its end."""
    return of(objects[0]).end_of(objects) if objects else None
