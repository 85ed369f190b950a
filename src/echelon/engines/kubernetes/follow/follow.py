"""Following a run: its record, Jobs and pods by watch, its agents by their logs, as one stream.

The engine's `events` and `logs` come through here. Two kinds of events are not history but the state of
things: `waiting` (why workers do not start, or that the API server is away) and `holding` (workers that stay
for their results); they are told while they are so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import msgspec

from echelon.engines.base import unknown_run
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.diagnose import Trouble, gives_up, limit_words
from echelon.engines.kubernetes.follow.listing import list_names
from echelon.engines.kubernetes.follow.logs import Line, read_pod
from echelon.engines.kubernetes.follow.mirror import Mirror
from echelon.engines.kubernetes.follow.pod_lines import PodLines
from echelon.engines.kubernetes.follow.troubles import find_troubles, free_places, out_of_touch
from echelon.engines.kubernetes.state import history, outcome, workers
from echelon.errors import Denied, EchelonError, Refused, Unreachable
from echelon.model.event import Event
from echelon.model.log import EventLine, LogLine
from echelon.model.run import Record, RunRef

_TICK = 0.2  # seconds between two looks when nothing comes
_DIAGNOSE = 2.0  # seconds between two diagnoses of what does not start
_LAST_WORDS = 20.0  # seconds of silence after which nothing more is expected of a run that is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A run, the way to it, and who ends it when it waits for what will not come."""

    api: Api
    ref: RunRef
    give_up: Callable[[Record, Trouble], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """All objects of a run at one moment."""

    record: Record
    obj: Object
    jobs: list[Object]
    pods: list[Object]


def read_events(run: Followed) -> Iterator[Event]:
    """What has happened so far."""
    api, name = run.api, run.ref.name
    selector = names.selector(name, names.WORKER)
    obj = api.find("ConfigMap", name)
    if obj is None:
        raise missing(run)
    view = _View(
        record=history.read_record(obj, run.ref),
        obj=obj,
        jobs=api.list("Job", selector=selector).items,
        pods=api.list("Pod", selector=selector).items,
    )
    yield from history.opening_events(view.obj, view.record, view.jobs)
    heard = history.LeaderEvents()
    for pod in workers.leader_pods(view.pods):
        for line in history.since_last_gap(_log_of(api, pod)):
            yield from _current(heard.hear(line, view.pods), view)
    end = _end(view, heard)
    if end is not None:
        yield history.with_results_gone(end, heard, view.record, view.obj, view.pods)
        return
    stop = outcome.read_stop(view.obj)
    if stop is not None:
        yield Event(kind="stopping", at=stop.at, reason=stop.reason)
    elif troubles := find_troubles(api, view.jobs, view.pods):
        yield _waiting(troubles[0])


def _log_of(api: Api, pod: Object) -> Iterator[Line]:
    """What can be read of a log: of a pod on a dead node nothing, and its objects tell how it stands."""
    with suppress(Unreachable, Refused):
        yield from chain.from_iterable(read_pod(api, pod) if workers.has_started(pod) else ())


def follow_events(run: Followed, timeout: float | None) -> Iterator[Event]:
    """What happens, until the end or the time-out."""
    deadline = None if timeout is None else time.monotonic() + timeout
    heard = history.LeaderEvents()
    told, last_reason, next_look, quiet_since = 0, "", 0.0, time.monotonic()
    with _mirror(run) as mirror, _leader_lines(run, mirror) as lines:
        while not mirror.is_ready(_TICK):
            if mirror.trouble is not None and not last_reason:
                last_reason = _gist(out_of_touch(mirror.trouble))
                yield _waiting(out_of_touch(mirror.trouble))
            if deadline is not None and time.monotonic() >= deadline:
                return
        uid = _uid_of_record(run, mirror)
        while (view := _view(run, mirror, uid)) is not None:  # None if it was removed meanwhile
            opening = history.opening_events(view.obj, view.record, view.jobs)
            yield from opening[told:]
            told = max(told, len(opening))
            for _pod, line in lines.take(_TICK):
                quiet_since = time.monotonic()
                if isinstance(line, EventLine):
                    for event in _current(heard.hear(line, view.pods), view):
                        last_reason = ""
                        yield event
            if heard.over or not lines.reading or time.monotonic() - quiet_since > _LAST_WORDS:
                end = _end(_view(run, mirror, uid) or view, heard)
                if end is not None and _is_kept(run, view, end):
                    yield end
                    return
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _DIAGNOSE
                trouble = _trouble(run, mirror, view)
                if trouble is not None and _gist(trouble) != last_reason:
                    last_reason = _gist(trouble)
                    yield _waiting(trouble)
            if (deadline is not None and time.monotonic() >= deadline) or _is_abandoned(view):
                return


def follow_logs(run: Followed) -> Iterator[LogLine]:
    """What the ranks write, until the run is over and all is told."""
    verdict, quiet_since = False, time.monotonic()
    with _mirror(run) as mirror, PodLines(run.api, mirror) as lines:
        while not mirror.is_ready(_TICK):
            pass
        uid = _uid_of_record(run, mirror)
        while (view := _view(run, mirror, uid)) is not None:
            silent = True
            for _pod, line in lines.take(_TICK):
                silent, quiet_since = False, time.monotonic()
                if isinstance(line, LogLine):
                    yield line
                elif b'"verdict"' in line.payload:
                    verdict = True
            if not silent:
                continue
            # A worker that is cut off may never say its last word, and nobody is to wait for it for ever.
            if lines.reading and time.monotonic() - quiet_since < _LAST_WORDS:
                continue
            if verdict or _is_abandoned(view) or _end(view, history.LeaderEvents()) is not None:
                return


def missing(run: Followed) -> Exception:
    """The error for a run that is not there, with the nearest name."""
    there = run.api.namespace
    where = f"`echelon ps -a -A --on k8s` lists those of namespace {there}; --namespace names another"
    return unknown_run(run.ref.name, list_names(run.api), where)


def _mirror(run: Followed) -> Mirror:
    name = run.ref.name
    pods = names.selector(name, names.WORKER)
    return Mirror(run.api, {"ConfigMap": names.selector(name, names.RECORD), "Job": pods, "Pod": pods})


def _is_leader(pod: Object) -> bool:
    return workers.worker_of(pod) == 0


def _uid_of_record(run: Followed, mirror: Mirror) -> str:
    """Which record this run has: another of the same name, made later, is another run's."""
    records = mirror.of("ConfigMap")
    if not records:
        raise missing(run)
    return str(records[-1]["metadata"]["uid"])


def _view(run: Followed, mirror: Mirror, uid: str) -> _View | None:
    obj = next((each for each in mirror.of("ConfigMap") if each["metadata"]["uid"] == uid), None)
    if obj is None:
        return None
    return _View(
        record=history.read_record(obj, run.ref),
        obj=obj,
        jobs=mirror.of("Job"),
        pods=mirror.of("Pod"),
    )


def _current(events: Iterator[Event], view: _View) -> Iterator[Event]:
    """Leave out that workers are held when they are not any more."""
    for event in events:
        if event.kind == "holding":
            leader = workers.leader_pods(view.pods)
            collected = history.annotation(view.obj, names.COLLECTED)
            if collected or not leader or not workers.is_running(leader[-1]):
                continue
        yield event


def _leader_lines(run: Followed, mirror: Mirror) -> PodLines:
    return PodLines(run.api, mirror, wanted=_is_leader, events_only=True)


def _is_kept(run: Followed, view: _View, end: Event) -> bool:
    """Keep the end with the record: the log that tells it may be turned over a moment later, or its node be
    out of reach when the results are fetched. An API server that is away is waited for, as ever.
    """
    if view.jobs and history.written_end(view.obj) is None:
        change = {"data": {names.FINISHED_KEY: msgspec.json.encode(end).decode()}}
        try:
            run.api.patch("ConfigMap", run.ref.name, change)
        except Unreachable:
            return False
        except EchelonError:
            pass  # who may only look leaves it to others
    return True


def _end(view: _View, heard: history.LeaderEvents) -> Event | None:
    if heard.over:
        return history.finish(heard, view.obj, view.pods)
    return history.written_end(view.obj) or outcome.finished_event(
        view.record, view.obj, view.jobs, view.pods
    )


def _trouble(run: Followed, mirror: Mirror, view: _View) -> Trouble | None:
    """What keeps the run from running; a run that waits in vain is given up."""
    silence = mirror.trouble
    if silence is not None:
        return out_of_touch(silence)
    try:
        found = free_places(run.api, view.pods, time.time())
        found += find_troubles(run.api, view.jobs, view.pods)
    except Unreachable as error:
        return out_of_touch(error)
    except EchelonError:
        return None  # it may not be known; the run is followed all the same
    hopeless = gives_up(found, time.time())
    if hopeless is not None and outcome.read_stop(view.obj) is None:
        with suppress(Denied, NotThere):  # who may only look leaves it to others
            run.give_up(view.record, hopeless)
    return hopeless or (found[0] if found else None)


def _gist(trouble: Trouble) -> str:
    """What makes a trouble another one; how exactly nothing is heard of a cluster changes with every try."""
    return trouble.kind if trouble.kind == "unreachable" else trouble.sentence


def _waiting(trouble: Trouble) -> Event:
    words = "; ".join(filter(None, (trouble.hint, limit_words(trouble))))
    hint = f" ({words})" if words else ""
    return Event(
        kind="waiting", at=round(time.time(), 3), worker=trouble.worker, reason=f"{trouble.sentence}{hint}"
    )


def _is_abandoned(view: _View) -> bool:
    """Recorded a while ago, and neither started nor in line: its submission was interrupted."""
    data = view.obj.get("data") or {}
    last = float(history.annotation(view.obj, names.ADMITTED) or view.record.created)
    waits = names.QUEUED_KEY in data and names.PLAN_KEY not in data
    return (
        not view.jobs
        and not waits
        and not history.was_started(view.obj)
        and time.time() - last > history.SUBMISSION
    )
