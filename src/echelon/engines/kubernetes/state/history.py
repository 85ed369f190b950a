"""A run's events, read from its record and from its leader's log. Pure.

Everything that happens in a run's ordinary life is an event line of the leader's log, in order, so that every
reader reads the same. What only the cluster knows (the node, how a pod was lost) is added here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from echelon.engines.decoding import convert
from echelon.engines.kubernetes.client.api import Object
from echelon.engines.kubernetes.fields import json_object
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state.outcome import explain, stopped_as_told
from echelon.engines.kubernetes.state.workers import disruption_of, is_running, last_loss, pods_by_worker
from echelon.model import ends
from echelon.model.copy import Manifest
from echelon.model.event import Disruption, Event, RootCause, bounded, is_sound
from echelon.model.output.log import EventLine, Line, is_gap


def opening_events(stored: Stored, *, has_jobs: bool, queue: str = "") -> list[Event]:
    """What the record contains: that the run exists, was queued, was admitted.

    A plan without Jobs belongs to a start that was cut off or is under way: the run is not admitted yet. One
    that waits in a `queue` of Kueue's has its Jobs, and waits for Kueue."""
    events = [Event(kind="recorded", at=stored.run.created)]
    for each in stored.queued:
        if each.admitted is not None:  # and rolled back
            events.append(Event(kind="admitted", at=each.admitted))
        events.append(Event(kind="queued", at=each.at, reason=each.reason))
    if stored.admitted is not None and stored.run.plan is not None and (has_jobs or stored.started):
        if queue:
            reason = f"queued in Kueue's queue {queue}"
            return [*events, Event(kind="queued", at=stored.admitted, reason=reason)]
        events.append(Event(kind="admitted", at=stored.admitted))
    return events


class LeaderEvents:
    """Turns the leader's event lines into events, one line after another, until its last. What `known` has,
    which another one has read, is reported no more, and does not count.
    """

    def __init__(self, known: set[str] | None = None) -> None:
        self.verdict: Event | None = None
        self._own_loss: tuple[str, Disruption | None] | None = None  # how worker 0 was lost the last time
        self.explained: RootCause | None = None  # of an eviction, as its pod told it, which is gone soon
        self.over = False  # its last line was read
        self.ended_at = 0.0
        self.held = False  # workers have kept results to be fetched
        self.alone: set[int] = set()  # workers that hold results without a leader, as their own logs say
        self.manifests: dict[int, tuple[Manifest, ...]] = {}  # what each worker stated at its end
        self.kept: set[int] = set()  # workers that say that the keeper has their results
        self.known = set[str]() if known is None else known  # a state line repeats events

    def read(self, line: EventLine, pods: Sequence[Object]) -> Iterator[Event]:
        """The events of one line. A state line repeats what still matters: only what was missed is new."""
        raw = json_object(line.payload.decode(errors="replace"))
        repeated = raw.get("events")
        for each in (repeated if isinstance(repeated, list) else []) if raw.get("kind") == "state" else [raw]:
            key = json.dumps(each, sort_keys=True)
            if key not in self.known:
                self.known.add(key)
                with contextlib.suppress(msgspec.ValidationError, RecursionError):  # written by a newer agent
                    yield from self._events(each, pods)

    def _events(self, raw: Mapping[str, object], pods: Sequence[Object]) -> Iterator[Event]:
        event = convert(raw, Event)
        if not is_sound(event):
            return
        event = bounded(event)
        if event.kind == "verdict":
            self.verdict = event
        self.held = self.held or event.kind == "holding"
        if event.kind == "holding" and event.worker is not None:
            self.alone.add(event.worker)
        if event.kind == "worker-ended" and event.worker == 0 and self.verdict is not None:
            self.over, self.ended_at = True, event.at
        if event.kind == "worker-kept" and event.worker is not None:
            self.kept.add(event.worker)
        elif event.worker is not None and event.manifests:
            self.manifests[event.worker] = event.manifests
        if event.kind == "worker-started" and event.worker is not None:
            event = replace(event, node=node_of(pods, event.worker))
        if event.kind == "worker-lost" and event.worker is not None:
            loss = last_loss(pods_by_worker(pods).get(event.worker, []))
            how = loss.how if loss is not None else _with_node(event, pods)
            event = replace(event, reason=how, disruption=disruption_of(loss))
            if event.worker == 0 and how:
                self._own_loss = how, event.disruption
        if event.cause is not None and event.cause.kind == "worker-left" and event.kind != "verdict":
            event = replace(event, cause=explain(event.cause, pods))
            if event.cause is not None and event.cause.disruption is not None:
                self.explained = event.cause
        elif event.kind == "restarting":
            event = self._with_own_loss(event, pods)
        yield event

    def _with_own_loss(self, event: Event, pods: Sequence[Object]) -> Event:
        """A leader that replaces another one knows only that worker 0 was lost; the cluster, or the one
        before, has told how.
        """
        cause = event.cause
        if cause is None or (cause.kind, cause.worker) != ("worker-lost", 0):
            return event
        loss = last_loss(pods_by_worker(pods).get(0, []))
        known = self._own_loss if loss is None else (loss.how, disruption_of(loss))
        return event if known is None else replace(event, cause=ends.with_loss(cause, 0, *known))


def since_last_gap(lines: Iterable[Line]) -> list[EventLine]:
    """The event lines of a log from its beginning; if part of it is missing, from the first state line after
    the gap, which contains all before it. Without one, what there is.
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
    return (mine[-1].get("spec") or {}).get("nodeName") if mine else None


def _with_node(event: Event, pods: Sequence[Object]) -> str | None:
    node = node_of(pods, event.worker) if event.worker is not None else None
    return f"{event.reason} (on node {node})" if node and event.reason else event.reason


def finish(leader: LeaderEvents, stored: Stored, pods: Sequence[Object]) -> Event:
    """The end, by the leader's verdict; a failure after a stop counts as the stop."""
    verdict, stop = leader.verdict, stored.stop
    assert verdict is not None
    at = leader.ended_at or verdict.at
    if stop is not None and verdict.outcome != "succeeded" and verdict.at >= stop.at:
        end = stopped_as_told(stop, verdict.outcome, verdict.reason, at=at)
    else:
        cause = explain(verdict.cause, pods) if verdict.cause is not None else None
        kept = stored.end.cause if stored.end is not None else None
        for known in (leader.explained, kept):  # explained when the pod was still there
            if cause is not None and known is not None:
                cause = known if (known.worker, known.rank) == (cause.worker, cause.rank) else cause
        end = ends.from_verdict(verdict, at=at, cause=cause)
    stated = tuple(each for _, mine in sorted(leader.manifests.items()) for each in mine)
    return replace(end, manifests=stated or None)


def with_results_gone(
    end: Event, leader: LeaderEvents, stored: Stored, pods: Sequence[Object], *, kept: bool = False
) -> Event:
    """The end, with what became of results that the workers held for a while and that were not fetched;
    `kept` if the run's keeper has any.
    """
    kept = kept or any(map(is_running, pods))
    if not leader.held or kept or stored.collected is not None or end.results == "gone":
        return end
    limit = stored.run.job.pod.linger
    note = f"its results are gone: they were not fetched in the {limit:g} s that its workers kept them"
    if leader.kept:
        note = "its results are gone: its workers gave them to the keeper, and that is gone"
    return ends.with_note(replace(end, results="gone"), note)
