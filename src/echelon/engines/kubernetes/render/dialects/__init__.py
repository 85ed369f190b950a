"""Dialects: the kinds of objects that a run's workers can be made of.

A dialect is one module that offers what `Dialect` names; a plain Job is the first. Nothing outside this
package assumes one: other code asks the dialect that a run's record names, or that an object's kind belongs
to. A further one is a module here, a line in `DIALECTS` and a golden file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from echelon.engines.kubernetes.render.dialects import job
from echelon.engines.kubernetes.render.dialects.end import End
from echelon.engines.kubernetes.render.dialects.place import Place
from echelon.errors import StateTrouble

if TYPE_CHECKING:
    from echelon.engines.kubernetes.record import Shipped
    from echelon.model.plan import Plan
    from echelon.model.run import Record

Object = dict[str, Any]
__all__ = [
    "DIALECTS",
    "Dialect",
    "End",
    "Place",
    "all_kinds",
    "end_of",
    "index_of",
    "named",
    "of",
    "pod_of",
    "wanted",
]


class Dialect(Protocol):
    """What a module of this package offers."""

    KINDS: tuple[str, ...]
    """The kinds of the objects that it makes, as the API client names them."""

    Shape: type[Any]
    """The fields of such an object that `places` reads: a cluster's are many."""

    def render(
        self, record: Record, plan: Plan, shipped: Shipped, *, security_level: str = "", suspend: bool = False
    ) -> list[Object]:
        """The objects whose controller makes the pods of a run, one for each group of equal workers."""
        ...

    def leader_selector(self, run: str) -> dict[str, str]:
        """The labels of worker 0's pod."""
        ...

    def index_of(self, pod: Mapping[str, Any]) -> int | None:
        """Which pod of its object a pod is; None if it is not one of this dialect's."""
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

    def end_of(self, objects: Sequence[Mapping[str, Any]]) -> End | None:
        """How the controller ended a run's objects; None while they may still bring it to its end."""
        ...

    def is_suspended(self, obj: Mapping[str, Any]) -> bool:
        """Whether the object waits for admission."""
        ...

    def suspended(self, *, suspend: bool) -> Object:
        """The change that makes an object wait, or start."""
        ...

    def ended(self) -> Object:
        """The change that lets the controller end the pods; unlike a deletion it leaves record and logs."""
        ...


DIALECTS: Mapping[str, Dialect] = {"job": job}


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


def all_kinds() -> tuple[str, ...]:
    """The kinds of all dialects."""
    return tuple(dict.fromkeys(kind for each in DIALECTS.values() for kind in each.KINDS))


def index_of(pod: Mapping[str, Any]) -> int:
    """Which pod of its object a pod is."""
    found = (each.index_of(pod) for each in DIALECTS.values())
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
