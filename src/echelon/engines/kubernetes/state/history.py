"""A run's events, read from its record and from its leader's log. Pure.

Everything that happens in a run's ordinary life is an event line of the leader's log, in order, so that every
reader reads the same. What only the cluster knows (the node, how a pod was lost) is added here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from echelon.engines.decoding import convert
from echelon.engines.kubernetes.fields import json_object
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state.outcome import GONE, explain
from echelon.engines.kubernetes.state.standing import Told
from echelon.engines.kubernetes.state.workers import (
    Loss,
    disruption_of,
    is_running,
    last_loss,
    pods_by_worker,
    taken_away,
)
from echelon.model import ends
from echelon.model.event import Disruption, Event, bounded, is_sound
from echelon.model.output.log import EventLine, Line, is_gap

Explain = Callable[[Sequence[Pod], float], Loss | None]


def opening_events(stored: Stored, queue: str = "") -> list[Event]:
    """What record and Jobs tell: that the run exists, was queued, was admitted. One that waits in a `queue`
    of Kueue's is admitted by us, and waits for Kueue.
    """
    events = [Event(kind="recorded", at=stored.run.created)]
    for each in stored.queued:
        if each.admitted is not None:  # and rolled back
            events.append(Event(kind="admitted", at=each.admitted))
        events.append(Event(kind="queued", at=each.at, reason=each.reason))
    if stored.admitted is not None:
        if queue:
            reason = f"queued in Kueue's queue {queue}"
            return [*events, Event(kind="queued", at=stored.admitted, reason=reason)]
        events.append(Event(kind="admitted", at=stored.admitted))
    return events


class LeaderEvents:
    """Turns the leader's event lines into events, one line after another, until its last; `told` is what they
    tell of the end. What `known` has, which another one has read, is reported no more, and does not count.
    `explain` tells how worker 0 was lost before a moment, where its pods do not show it.
    """

    def __init__(self, known: set[str] | None = None, explain: Explain | None = None) -> None:
        self.told = Told()
        self._explain = explain
        self._own_loss: tuple[str, Disruption | None] | None = None  # how worker 0 was lost the last time
        self.known = set[str]() if known is None else known  # a state line repeats events

    def read(self, line: EventLine, pods: Sequence[Pod]) -> Iterator[Event]:
        """The events of one line. A state line repeats what still matters: only what was missed is new."""
        if not self.told.has_lines:
            self.told = replace(self.told, has_lines=True)
        raw = json_object(line.payload.decode(errors="replace"))
        repeated = raw.get("events")
        for each in (repeated if isinstance(repeated, list) else []) if raw.get("kind") == "state" else [raw]:
            key = json.dumps(each, sort_keys=True)
            if key not in self.known:
                self.known.add(key)
                with contextlib.suppress(msgspec.ValidationError, RecursionError):  # written by a newer agent
                    yield from self._events(each, pods)

    def _events(self, raw: Mapping[str, object], pods: Sequence[Pod]) -> Iterator[Event]:
        event = convert(raw, Event)
        if not is_sound(event):
            return
        event = bounded(event)
        self._note(event)
        if event.kind == "worker-started" and event.worker is not None:
            event = replace(event, node=node_of(pods, event.worker))
        if event.kind == "worker-lost" and event.worker is not None:
            loss = last_loss(pods_by_worker(pods).get(event.worker, []))
            how = loss.how if loss is not None else _with_node(event, pods)
            event = replace(event, reason=how, disruption=disruption_of(loss))
            if event.worker == 0 and how:
                self._own_loss = how, event.disruption
        if event.kind == "notice" and event.worker is not None:
            mine = pods_by_worker(pods).get(event.worker, [])
            loss = next(filter(None, map(taken_away, reversed(mine))), None)
            if loss is not None:
                event = replace(event, reason=loss.how, disruption=disruption_of(loss))
        if event.cause is not None and event.cause.kind == "worker-left" and event.kind != "verdict":
            event = replace(event, cause=explain(event.cause, pods))
            if event.cause is not None and event.cause.disruption is not None:
                self.told = replace(self.told, explained=event.cause)
        elif event.kind == "restarting":
            event = self._with_own_loss(event, pods)
        yield event

    def _note(self, event: Event) -> None:
        """Learn from an event what matters of it at the end."""
        told, worker = self.told, event.worker
        if event.kind == "verdict":
            known = told.verdict  # that of a leader which replaced another one does not count
            if known is None or (known.cause is not None and known.cause.kind in GONE):
                told = replace(told, verdict=event)
        elif event.kind == "holding":
            told = replace(told, held=True, alone=told.alone if worker is None else told.alone | {worker})
        elif event.kind == "worker-ended" and worker == 0 and told.verdict is not None:
            told = replace(told, over=True, ended_at=event.at)
        if worker is not None and event.kind == "worker-kept":
            told = replace(told, kept=told.kept | {worker})
        elif worker is not None and event.manifests:
            told = replace(told, manifests={**told.manifests, worker: event.manifests})
        self.told = told

    def _with_own_loss(self, event: Event, pods: Sequence[Pod]) -> Event:
        """A leader that replaces another one knows only that worker 0 was lost; the cluster, or the one
        before, has told how.
        """
        cause = event.cause
        if cause is None or (cause.kind, cause.worker) != ("worker-lost", 0):
            return event
        loss = last_loss(pods_by_worker(pods).get(0, []))
        if loss is None and self._own_loss is None and self._explain is not None:
            loss = self._explain(pods_by_worker(pods).get(0, []), event.at)
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


def node_of(pods: Sequence[Pod], worker: int) -> str | None:
    """The node of a worker's newest pod."""
    mine = pods_by_worker(pods).get(worker, [])
    return mine[-1].spec.node_name or None if mine else None


def _with_node(event: Event, pods: Sequence[Pod]) -> str | None:
    node = node_of(pods, event.worker) if event.worker is not None else None
    return f"{event.reason} (on node {node})" if node and event.reason else event.reason


def with_results_gone(
    end: Event, told: Told, stored: Stored, pods: Sequence[Pod], *, kept: bool = False
) -> Event:
    """The end, with what became of results that the workers held for a while and that were not fetched;
    `kept` if the run's keeper has any.
    """
    kept = kept or any(map(is_running, pods))
    if not told.held or kept or stored.collected is not None or end.results == "gone":
        return end
    limit = stored.run.job.pod.linger
    note = f"its results are gone: they were not fetched in the {limit:g} s that its workers kept them"
    if told.kept:
        note = "its results are gone: its workers gave them to the keeper, and that is gone"
    return ends.with_note(replace(end, results="gone"), note)
