"""Following a run: its record, Jobs and pods by watch, its agents by their logs, as one stream. Reads only.

Two kinds of events are not history but the state of things: `waiting` (why workers do not start, or that the
API server is away) and `holding` (workers that stay for their results): reported while they are so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from echelon.engines.kubernetes import names, record
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.diagnose import Trouble, limit_note
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.logs import read_pod
from echelon.engines.kubernetes.follow.mirror import Mirror
from echelon.engines.kubernetes.follow.pod_lines import PodLines
from echelon.engines.kubernetes.follow.troubles import find_troubles, out_of_touch
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import history, outcome, workers
from echelon.errors import EchelonError, Refused, Unreachable
from echelon.model.event import Event
from echelon.model.log import EventLine, Line, LogLine
from echelon.model.run import RunRef

_TICK = 0.2  # seconds between two looks when nothing comes
_DIAGNOSE = 2.0  # seconds between two diagnoses of what does not start
_LAST_LINES = 20.0  # seconds of silence after which nothing more is expected of a run that is over


def read_events(api: Api, ref: RunRef) -> Iterator[Event]:
    """What has happened so far."""
    view = views.look(api, ref)
    yield from history.opening_events(view.stored, has_jobs=bool(view.jobs))
    leader = history.LeaderEvents()
    for pod in workers.leader_pods(view.pods):
        for line in history.since_last_gap(_log_of(api, pod)):
            yield from _current(leader.read(line, view.pods), view)
    end = _end(view, leader)
    if end is not None:
        yield history.with_results_gone(end, leader, view.stored, view.pods)
        return
    stop = view.stored.stop
    if stop is not None:
        yield Event(kind="stopping", at=stop.at, reason=stop.reason)
    elif troubles := find_troubles(api, view.jobs, view.pods):
        yield _waiting(troubles[0])


def _log_of(api: Api, pod: Object) -> Iterator[Line]:
    """What can be read of a log: nothing of a pod on a dead node, whose objects show its state."""
    with suppress(Unreachable, Refused):
        yield from chain.from_iterable(read_pod(api, pod) if workers.has_started(pod) else ())


def follow_events(api: Api, ref: RunRef, timeout: float | None) -> Iterator[Event]:
    """What happens, until the end or the time-out."""
    deadline = None if timeout is None else time.monotonic() + timeout
    leader = history.LeaderEvents()
    reported, last_reason, next_look, quiet_since = 0, "", 0.0, time.monotonic()
    with _mirror(api, ref) as mirror, _leader_lines(api, mirror) as lines:
        while not mirror.is_ready(_TICK):
            if mirror.trouble is not None and not last_reason:
                last_reason = _gist(out_of_touch(mirror.trouble))
                yield _waiting(out_of_touch(mirror.trouble))
            if deadline is not None and time.monotonic() >= deadline:
                return
        uid = _uid_of_record(api, ref, mirror)
        while (view := _view(ref, mirror, uid)) is not None:  # None if it was removed meanwhile
            opening = history.opening_events(view.stored, has_jobs=bool(view.jobs))
            yield from opening[reported:]
            reported = max(reported, len(opening))
            for _pod, line in lines.take(_TICK, view.pods):
                quiet_since = time.monotonic()
                if isinstance(line, EventLine):
                    for event in _current(leader.read(line, view.pods), view):
                        last_reason = ""
                        yield event
            if leader.over or not lines.reading or time.monotonic() - quiet_since > _LAST_LINES:
                end = _end(_view(ref, mirror, uid) or view, leader)
                if end is not None and _responds(api, ref):
                    yield end
                    return
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _DIAGNOSE
                trouble = _trouble(api, mirror, view)
                if trouble is not None and _gist(trouble) != last_reason:
                    last_reason = _gist(trouble)
                    yield _waiting(trouble)
            if (deadline is not None and time.monotonic() >= deadline) or _is_abandoned(view):
                return


def follow_logs(api: Api, ref: RunRef) -> Iterator[LogLine]:
    """What the ranks write, until the run is over and every line has come."""
    verdict, quiet_since = False, time.monotonic()
    with _mirror(api, ref) as mirror, PodLines(api, mirror) as lines:
        while not mirror.is_ready(_TICK):
            pass
        uid = _uid_of_record(api, ref, mirror)
        while (view := _view(ref, mirror, uid)) is not None:
            silent = True
            for _pod, line in lines.take(_TICK, view.pods):
                silent, quiet_since = False, time.monotonic()
                if isinstance(line, LogLine):
                    yield line
                elif b'"verdict"' in line.payload:
                    verdict = True
            if not silent:
                continue
            # A worker that is cut off may never send its last line: the wait for it is limited.
            if lines.reading and time.monotonic() - quiet_since < _LAST_LINES:
                continue
            if verdict or _is_abandoned(view) or _end(view, history.LeaderEvents()) is not None:
                return


def _mirror(api: Api, ref: RunRef) -> Mirror:
    """Watches on the kinds of every dialect: which one the run is of is in its record."""
    workers_of = names.selector(ref.name, names.WORKER)
    selectors = {"ConfigMap": names.selector(ref.name, names.RECORD)}
    selectors |= dict.fromkeys((*dialects.all_kinds(), "Pod"), workers_of)
    return Mirror(api, selectors)


def _is_leader(pod: Object) -> bool:
    return workers.worker_of(pod) == 0


def _uid_of_record(api: Api, ref: RunRef, mirror: Mirror) -> str:
    """Which record this run has: another of the same name, made later, is another run's."""
    records = mirror.of("ConfigMap")
    if not records:
        raise views.missing(api, ref)
    return str(records[-1]["metadata"]["uid"])


def _view(ref: RunRef, mirror: Mirror, uid: str) -> View | None:
    obj = next((each for each in mirror.of("ConfigMap") if each["metadata"]["uid"] == uid), None)
    if obj is None:
        return None
    stored = record.read(obj, ref)
    jobs = views.own_jobs(stored, [job for kind in dialects.all_kinds() for job in mirror.of(kind)])
    return View(stored=stored, jobs=jobs, pods=views.own_pods(stored, jobs, mirror.of("Pod")))


def _current(events: Iterator[Event], view: View) -> Iterator[Event]:
    """Leave out that workers are held when they are not any more."""
    for event in events:
        if event.kind == "holding":
            leader = workers.leader_pods(view.pods)
            if view.stored.collected or not leader or not workers.is_running(leader[-1]):
                continue
        yield event


def _leader_lines(api: Api, mirror: Mirror) -> PodLines:
    return PodLines(api, mirror, wanted=_is_leader, events_only=True)


def _responds(api: Api, ref: RunRef) -> bool:
    """Whether the API server is there: an end that arrived over a connection which outlived it is reported
    when what follows the end, such as fetching results, can be done.
    """
    try:
        api.find("ConfigMap", ref.name)
    except Unreachable:
        return False
    except EchelonError:
        pass
    return True


def _end(view: View, leader: history.LeaderEvents) -> Event | None:
    if leader.over:
        return history.finish(leader, view.stored, view.pods)
    return view.stored.end or outcome.finished_event(view.stored, view.jobs, view.pods)


def _trouble(api: Api, mirror: Mirror, view: View) -> Trouble | None:
    """What keeps the run from running."""
    silence = mirror.trouble
    if silence is not None:
        return out_of_touch(silence)
    try:
        found = find_troubles(api, view.jobs, view.pods)
    except Unreachable as error:
        return out_of_touch(error)
    except EchelonError:
        return None  # a right is missing; the run is followed all the same
    return found[0] if found else None


def _gist(trouble: Trouble) -> str:
    """By what troubles differ; the reason why a cluster does not respond changes with every try."""
    return trouble.kind if trouble.kind == "unreachable" else trouble.sentence


def _waiting(trouble: Trouble) -> Event:
    more = "; ".join(filter(None, (trouble.hint, limit_note(trouble))))
    hint = f" ({more})" if more else ""
    return Event(
        kind="waiting", at=round(time.time(), 3), worker=trouble.worker, reason=f"{trouble.sentence}{hint}"
    )


def _is_abandoned(view: View) -> bool:
    return record.is_abandoned(view.stored, has_jobs=bool(view.jobs), now=time.time())
