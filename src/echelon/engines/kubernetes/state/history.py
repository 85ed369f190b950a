"""A run's events, read from its record and from its leader's log. Pure; the engine brings both.

Everything that happens in a run's ordinary life is told in the leader's log, in order, so that whoever reads
it again reads the same. What only the cluster knows (which node, how a pod was lost) is added here."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Object
from echelon.engines.kubernetes.client.fields import json_object
from echelon.engines.kubernetes.follow.logs import Line, is_gap
from echelon.engines.kubernetes.state.outcome import explain, read_stop, stopped
from echelon.engines.kubernetes.state.workers import is_running, leader_pods, loss_of, pods_by_worker
from echelon.errors import StateTrouble
from echelon.model.event import Event
from echelon.model.log import EventLine
from echelon.model.plan import Plan
from echelon.model.run import SCHEMA, Record, RunRef

_GONE = "its results are gone"
SUBMISSION = 10.0  # seconds within which whoever has recorded a run has put it in line or started it


def read_record(obj: Object, ref: RunRef) -> Record:
    """What was recorded, and the plan if there is one."""
    found = obj["metadata"].get("annotations", {}).get(names.SCHEMA)
    if found != str(SCHEMA):
        raise StateTrouble(
            f"run {ref.name!r} was recorded by another version of echelon (schema {found}, ours is {SCHEMA})",
            hint="use that version for it, or upgrade this one: pip install -U echelon",
        )
    data = obj.get("data") or {}
    try:
        record = msgspec.json.decode(data[names.RECORD_KEY], type=Record)
        plan = msgspec.json.decode(data[names.PLAN_KEY], type=Plan) if names.PLAN_KEY in data else None
    except (KeyError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateTrouble(
            f"the record of run {ref.name!r} cannot be read: {error}",
            hint=f"`echelon rm {ref.name}` forgets this run",
        ) from error
    return replace(record, ref=ref, plan=plan)


def opening_events(obj: Object, record: Record, jobs: Sequence[Object]) -> list[Event]:
    """What the record tells: that the run exists, was in line, was let in.

    A plan without Jobs is of a start that was cut off, or goes on at this moment: not yet a start."""
    events = [Event(kind="recorded", at=record.created)]
    with contextlib.suppress(ValueError, TypeError, KeyError):
        told = json.loads((obj.get("data") or {}).get(names.QUEUED_KEY, "[]"))
        events += [Event(kind="queued", at=float(each["at"]), reason=str(each["reason"])) for each in told]
    admitted = annotation(obj, names.ADMITTED)
    if admitted and record.plan is not None and (jobs or was_started(obj)):
        events.append(Event(kind="admitted", at=float(admitted)))
    return events


def was_started(obj: Object) -> bool:
    """Whether the run has had Jobs: its record belongs to them from then on."""
    return any(each["kind"] == "Job" for each in obj["metadata"].get("ownerReferences") or [])


def is_being_started(obj: Object) -> bool:
    """Whether somebody has just written the plan, and is probably making the Jobs."""
    admitted = annotation(obj, names.ADMITTED)
    return not was_started(obj) and admitted is not None and time.time() - float(admitted) < SUBMISSION


def annotation(obj: Object, name: str) -> str | None:
    """An annotation's text."""
    value = (obj["metadata"].get("annotations") or {}).get(name)
    return str(value) if value is not None else None


class LeaderEvents:
    """Turns the leader's event lines into events, one line after another, until its last."""

    def __init__(self) -> None:
        self.verdict: Event | None = None
        self.over = False  # it has said its last word
        self.ended_at = 0.0
        self.held = False  # workers have kept results for whoever fetches them
        self._told: set[str] = set()  # so that a state, which repeats, tells nothing twice

    def hear(self, line: EventLine, pods: Sequence[Object]) -> Iterator[Event]:
        """The events of one line. A state repeats what still matters: only what was missed is told of it."""
        raw = json_object(line.payload.decode(errors="replace"))
        repeated = raw.get("events")
        for each in (repeated if isinstance(repeated, list) else []) if raw.get("kind") == "state" else [raw]:
            known = json.dumps(each, sort_keys=True)
            if known not in self._told:
                self._told.add(known)
                with contextlib.suppress(msgspec.ValidationError):  # of an agent that is newer than we are
                    yield from self._tell(each, pods)

    def _tell(self, raw: Mapping[str, object], pods: Sequence[Object]) -> Iterator[Event]:
        event = msgspec.convert(raw, Event, strict=False)
        if event.kind == "verdict":
            self.verdict = event
        self.held = self.held or event.kind == "holding"
        if event.kind == "worker-ended" and event.worker == 0 and self.verdict is not None:
            self.over, self.ended_at = True, event.at
        if event.kind == "worker-started" and event.worker is not None:
            event = replace(event, node=node_of(pods, event.worker))
        if event.kind == "worker-lost" and event.worker is not None:
            event = replace(event, reason=how_lost(pods, event.worker) or _with_node(event, pods))
        yield event


def since_last_gap(lines: Iterable[Line]) -> list[EventLine]:
    """The event lines of a log from its beginning; if part of it is missing, from the last state that was
    repeated since, which tells all before it. Without one, what there is.
    """
    found: list[EventLine] = []
    torn = False
    for line in lines:
        torn = torn or is_gap(line)
        if isinstance(line, EventLine):
            if torn and _is_state(line):
                found, torn = [], False
            found.append(line)
    return found


def _is_state(line: EventLine) -> bool:
    return bool(json_object(line.payload.decode(errors="replace")).get("kind") == "state")


def node_of(pods: Sequence[Object], worker: int) -> str | None:
    """The node of a worker's newest pod."""
    mine = pods_by_worker(pods).get(worker, [])
    return mine[-1]["spec"].get("nodeName") if mine else None


def _with_node(event: Event, pods: Sequence[Object]) -> str | None:
    node = node_of(pods, event.worker) if event.worker is not None else None
    return f"{event.reason} (on node {node})" if node and event.reason else event.reason


def how_lost(pods: Iterable[Object], worker: int) -> str | None:
    """What the cluster says of a worker that the gang has lost."""
    said = [loss_of(pod) for pod in pods_by_worker(pods).get(worker, [])]
    return next((each for each in reversed(said) if each), None)


def finish(heard: LeaderEvents, obj: Object, pods: Sequence[Object]) -> Event:
    """The end, as the leader's verdict has it; a failure that came with a stop is the stop's doing."""
    verdict, stop = heard.verdict, read_stop(obj)
    assert verdict is not None
    if stop is not None and verdict.outcome != "succeeded" and verdict.at >= stop.at:
        return stopped(stop, at=heard.ended_at or verdict.at)
    cause = explain(verdict.cause, pods) if verdict.cause is not None else None
    return replace(verdict, kind="finished", at=heard.ended_at or verdict.at, cause=cause)


def written_end(obj: Object) -> Event | None:
    """The end, as whoever fetched the results has written it into the record."""
    text = (obj.get("data") or {}).get(names.FINISHED_KEY)
    with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(text, type=Event) if text else None
    return None


def with_results_gone(
    end: Event, heard: LeaderEvents, record: Record, obj: Object, pods: Sequence[Object]
) -> Event:
    """The end, with a word on results that the workers kept for a while, and nobody has fetched."""
    kept = any(map(is_running, leader_pods(pods)))
    said = end.cause.summary if end.cause is not None else end.reason or ""
    if not heard.held or kept or annotation(obj, names.COLLECTED) is not None or _GONE in said:
        return end
    words = f"{_GONE}: nobody fetched them in the {record.job.pod.linger:g} s that its workers kept them"
    if end.cause is not None:
        return replace(end, cause=replace(end.cause, summary=f"{said}; {words}"))
    return replace(end, reason=f"{said}; {words}" if said else words)
