"""Following a run: its record, Jobs and pods by watch, its agents by their logs, as one stream. Reads only.

Two kinds of events are not history but the state of things: `waiting` (why workers do not start, or that the
API server is away) and `holding` (workers that stay for their results): reported while they are so."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from itertools import chain

from echelon.engines.kubernetes import names, record
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.diagnose import Trouble
from echelon.engines.kubernetes.diagnose.queueing import find_untended
from echelon.engines.kubernetes.diagnose.trouble import told
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.logs import read_pod
from echelon.engines.kubernetes.follow.mirror import Mirror
from echelon.engines.kubernetes.follow.pod_lines import PodLines
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
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
_CLAIMING = 10.0  # seconds that a command which follows a run has to become its tender
_LAST_LINES = 20.0  # seconds of silence after which nothing more is expected of a run that is over


def read_events(api: Api, ref: RunRef) -> Iterator[Event]:
    """What has happened so far."""
    view = views.look(api, ref)
    yield from history.opening_events(view.stored, has_jobs=bool(view.jobs))
    leader = history.LeaderEvents()
    for pod in workers.leader_pods(view.pods):
        for line in history.since_last_gap(_log_of(api, pod)):
            yield from _current(leader.read(line, view.pods), view)
    if not leader.over and not workers.has_leader(view.pods):  # what it would have told, the others may know
        for pod in filter(workers.is_running, view.pods):
            for line in history.since_last_gap(_log_of(api, pod)):
                yield from _current(leader.read(line, view.pods), view)
    end = _end(view, leader)
    if end is not None:
        yield history.with_results_gone(end, leader, view.stored, view.pods)
        return
    stop = view.stored.stop
    if stop is not None:
        yield Event(kind="stopping", at=stop.at, reason=stop.reason)
    elif untended := find_untended(view.stored, has_jobs=bool(view.jobs), now=time.time()):
        yield _waiting(untended)
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
    reported, last_reason, next_look, began = 0, "", 0.0, time.monotonic()
    quiet_since = began
    led = alone = False  # worker 0 has run; it does not run any more
    with (
        _mirror(api, ref) as mirror,
        PodLines(api, mirror, lambda pod: alone or _is_leader(pod), events_only=True) as lines,
    ):
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
            leads = workers.has_leader(view.pods)
            led = led or leads
            alone = led and not leads and not leader.over
            for _pod, line in lines.take(_TICK, view.pods):
                quiet_since = time.monotonic()
                if isinstance(line, EventLine):
                    for event in _current(leader.read(line, view.pods), view):
                        last_reason = ""
                        yield event
            silent = not lines.reading or time.monotonic() - quiet_since > _LAST_LINES
            if leader.over or silent or (alone and _hold_alone(leader, view)):
                end = _end(_view(ref, mirror, uid) or view, leader)
                if end is not None and _responds(api, ref):
                    yield end
                    return
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _DIAGNOSE
                claimed_soon = time.monotonic() - began < _CLAIMING
                trouble = _trouble(api, mirror, view, may_be_untended=not claimed_soon)
                if trouble is not None and _gist(trouble) != last_reason:
                    last_reason = _gist(trouble)
                    yield _waiting(trouble)
            if (deadline is not None and time.monotonic() >= deadline) or _is_abandoned(view):
                return


def follow_logs(
    api: Api, ref: RunRef, streamed: StreamedLogs | None = None, left: threading.Event | None = None
) -> Iterator[LogLine]:
    """What the ranks write, until the run is over and every line has come, or `left` is set. With `streamed`
    the lines are written to this machine's disk as they come, however slowly they are taken here.
    """
    verdict, quiet_since = False, time.monotonic()
    left = left or threading.Event()
    with (
        closing(streamed) if streamed is not None else nullcontext(),
        _mirror(api, ref) as mirror,
        PodLines(api, mirror, streamed=streamed) as lines,
    ):
        while not mirror.is_ready(_TICK) and not left.is_set():
            pass
        if left.is_set():
            return
        uid = _uid_of_record(api, ref, mirror)
        while (view := _view(ref, mirror, uid)) is not None and not left.is_set():
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
        held = view.stored.collected is None and any(map(workers.is_running, view.pods))
        if held or event.kind != "holding":
            yield event


def _hold_alone(leader: history.LeaderEvents, view: View) -> bool:
    """Whether the run is over without its leader: every worker that is left holds its results by itself, or
    has had the time to stop its ranks.
    """
    if leader.verdict is None or not leader.alone:
        return False
    left = {
        workers.worker_of(pod) for pod in view.pods if workers.is_running(pod) and not workers.is_cut_off(pod)
    }
    return left - {0} <= leader.alone or time.time() - leader.verdict.at > _LAST_LINES


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
    if leader.over or _hold_alone(leader, view):
        return history.finish(leader, view.stored, view.pods)
    return view.stored.end or outcome.finished_event(view.stored, view.jobs, view.pods)


def _trouble(api: Api, mirror: Mirror, view: View, *, may_be_untended: bool) -> Trouble | None:
    """What keeps the run from running."""
    silence = mirror.trouble
    if silence is not None:
        return out_of_touch(silence)
    untended = find_untended(view.stored, has_jobs=bool(view.jobs), now=time.time())
    if untended is not None:
        return untended if may_be_untended else None
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
    return Event(
        kind="waiting",
        at=round(time.time(), 3),
        worker=trouble.worker,
        reason=told(trouble),
        trouble=trouble.kind,
    )


def _is_abandoned(view: View) -> bool:
    return record.is_abandoned(view.stored, has_jobs=bool(view.jobs), now=time.time())
