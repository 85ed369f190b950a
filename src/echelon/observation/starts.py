"""When a run was started again, and why: by itself after a failure, or by `resume`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from echelon.engines.base import Engine
from echelon.errors import EchelonError
from echelon.model.event import Event
from echelon.model.run import RunRef
from echelon.values import frozen


@frozen
class Start:
    """A start that was not the first."""

    at: float
    why: str
    part: str = ""  # the step that it is one of, of a run that is made of runs


def later_starts(engine: Engine, ref: RunRef) -> list[Start]:
    """All starts but the first, in order, as far as they can be read."""

    def events() -> Iterator[Event]:
        with suppress(EchelonError):  # they are beside what is shown, which may be whole
            yield from engine.earlier_events(ref)
            yield from engine.events(ref)

    return of_events(events())


def of_events(events: Iterable[Event]) -> list[Start]:
    """The same of what happened since the run was first recorded."""
    found: list[Start] = []
    ended: Event | None = None
    for event in events:
        reason = event.cause.summary if event.cause is not None else event.reason
        if event.kind == "restarting":
            found.append(Start(at=event.at, why=f"restart {event.restart or ''}: {reason or 'it failed'}"))
        elif event.kind == "finished":
            ended = event
        elif event.kind == "recorded" and ended is not None:
            cause = ended.cause.summary if ended.cause is not None else ended.reason
            how = f"{ended.outcome or 'lost'}: {cause}" if cause else ended.outcome or "lost"
            found.append(Start(at=event.at, why=f"resumed; before that it had ended: {how}"))
    return found
