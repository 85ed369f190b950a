"""Events of the Kubernetes API in one form, whichever of its two recorders wrote them. Pure.

The kubelet and the controllers write `count` and `lastTimestamp`, the scheduler `series` and `eventTime`; an
event that repeats often begins with "(combined from similar events)"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.fields import moment, one_line
from echelon.values import frozen

_COMBINED = "(combined from similar events): "


@frozen
class ClusterEvent:
    """An event of an object, with its first and last time."""

    reason: str
    message: str
    first: float
    last: float


class Events:
    """All events, indexed by their object; a namespace can have thousands. They are not `known` where the
    user may not list them.
    """

    def __init__(self, events: Iterable[shapes.Event] | None) -> None:
        self.known = events is not None
        self._by_object: dict[tuple[str, str], list[shapes.Event]] = {}
        for event in events or ():
            target = event.involved_object
            self._by_object.setdefault((target.kind, target.name), []).append(event)

    def of(self, kind: str, name: str, uid: str | None) -> list[ClusterEvent]:
        """The events of one object, the latest last."""
        found = []
        for event in self._by_object.get((kind, name), ()):
            theirs = event.involved_object.uid
            if theirs and uid and theirs != uid:
                continue  # of an earlier object of the same name
            found.append(read_event(event))
        return sorted(found, key=lambda each: each.last)


def last_of(events: Sequence[ClusterEvent], *reasons: str) -> ClusterEvent | None:
    """The last event with one of these reasons."""
    return next((each for each in reversed(events) if each.reason in reasons), None)


def read_event(event: shapes.Event) -> ClusterEvent:
    """An event as the API has it."""
    repeated = event.series.last_observed_time if event.series is not None else None
    made = moment(event.event_time) or moment(event.metadata.creation_timestamp)
    first = moment(event.first_timestamp) or made or 0.0
    last = moment(repeated) or moment(event.last_timestamp) or first
    return ClusterEvent(
        reason=one_line(event.reason),
        message=one_line(event.message).removeprefix(_COMBINED),
        first=first,
        last=last,
    )
