"""Following a run: its record, Jobs and pods by watch, its agents by their logs, as one stream. Reads only.

Two kinds of events are not history but the state of things: `waiting` (why workers do not start, or that the
API server is away) and `holding` (workers that stay for their results): reported while they are so."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from itertools import chain

from echelon.engines.kubernetes import names, record
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.diagnose import Trouble
from echelon.engines.kubernetes.diagnose.kueue import waits_in
from echelon.engines.kubernetes.diagnose.queueing import find_suspended, find_untended
from echelon.engines.kubernetes.diagnose.trouble import told
from echelon.engines.kubernetes.follow import ends
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.keeper import keeping
from echelon.engines.kubernetes.follow.logs import read_pod
from echelon.engines.kubernetes.follow.mirror import Mirror, Mirrors
from echelon.engines.kubernetes.follow.pod_lines import PodLines
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
from echelon.engines.kubernetes.follow.troubles import find_troubles, out_of_touch
from echelon.engines.kubernetes.follow.view import BetweenRead, View
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import history, workers
from echelon.engines.kubernetes.suspended import begins_anew
from echelon.errors import EchelonError, Refused, Unreachable
from echelon.model.event import Event
from echelon.model.output.log import EventLine, Line, LogLine
from echelon.model.run import RunRef

_TICK = 0.2  # seconds between two looks when nothing comes
_DIAGNOSE = 2.0  # seconds between two diagnoses of what does not start
_FIRST_DIAGNOSIS = 1.0  # seconds that most workers need to start: before, nothing is wrong with them
_CLAIMING = 10.0  # seconds that a command which follows a run has to become its tender
_SET_BACK = ("restarting", "worker-lost", "gave-way")
_UNEXPLAINED = ("lost", "timed-out")  # ends that a stop would explain


def read_events(api: Api, ref: RunRef, *, of_pods: bool = False) -> Iterator[Event]:
    """What has happened so far. With `of_pods`, whatever the record says of results that were fetched: only
    the pods show whether they still hold some. Then, too, an end that the record has is told only if the
    leader's log can be read: Unreachable is raised, since the log decides whether it is true.
    """
    view = views.look(api, ref)
    if of_pods:
        view = replace(view, stored=replace(view.stored, collected=None))
    yield from _opening(view)
    leader, silent = history.LeaderEvents(), True
    for pod in workers.leader_pods(view.pods):
        lines = history.since_last_gap(_log_of(api, pod, needed=of_pods and ends.is_said_over(view)))
        silent = not lines  # as the newest one is that has just replaced another
        for line in lines:
            yield from _current(leader.read(line, view.pods), view)
    if not leader.over and (silent or ends.is_leaderless(view)):  # the others may know what it has not told
        for pod in _may_know(view.pods):
            if leader.alone and not workers.is_running(pod):
                break
            for line in history.since_last_gap(_log_of(api, pod)):
                yield from _current(leader.read(line, view.pods), view)
    keeper = ends.keeper_of(api, view, leader)
    if keeper is not None:
        for line in keeper.told if not leader.over else ():
            yield from _current(leader.read(line, view.pods), view)
        yield from keeping(keeper, at=round(time.time(), 3))
    end = ends.end_of(view, leader)
    if end is not None and view.stored.stop is None and end.outcome in _UNEXPLAINED:
        view = replace(view, stored=views.read_record(api, ref))  # it may have been stopped while we looked
        end = ends.end_of(view, leader)
    if end is not None:
        kept = keeper is not None and bool(keeper.kept)
        end = replace(end, released=workers.released(view.pods))
        yield history.with_results_gone(end, leader, view.stored, view.pods, kept=kept)
        return
    stop = view.stored.stop
    if stop is not None:
        yield Event(kind="stopping", at=stop.at, reason=stop.reason)
    elif keeps := _untended(view) or find_suspended(view.stored, view.jobs):
        yield _waiting(keeps)
    elif troubles := find_troubles(api, view.jobs, view.pods, restarts=view.stored.run.job.restarts > 0):
        yield _waiting(troubles[0])


def _may_know(pods: Sequence[Object]) -> list[Object]:
    """The pods whose logs may have an end that the leader's has not, those that run first: a worker that is
    told to leave once its results are fetched has told the end before, and its log stays. One whose pod is
    deleted tells nothing: who suspends the Job ends its workers so.
    """
    there = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    told = [pod for pod in there if workers.is_running(pod) or not _is_leader(pod)]
    return sorted(told, key=lambda pod: not workers.is_running(pod))


def _log_of(api: Api, pod: Object, *, needed: bool = False) -> Iterator[Line]:
    """What can be read of a log: nothing of a pod on a dead node, whose objects show its state. If it is
    `needed` and the pod runs, Unreachable is raised.
    """
    try:
        yield from chain.from_iterable(read_pod(api, pod) if workers.has_started(pod) else ())
    except (Unreachable, Refused) as error:
        if needed and workers.is_running(pod) and not workers.is_cut_off(pod):
            why = f"the log of worker 0 cannot be read: {error.message}"
            raise Unreachable(why, hint=error.hint) from error


def follow_events(api: Api, ref: RunRef, timeout: float | None, mirrors: Mirrors) -> Iterator[Event]:
    """What happens, until the end or the time-out."""
    deadline = None if timeout is None else time.monotonic() + timeout
    leader = history.LeaderEvents()
    last_reason, began = "", time.monotonic()
    next_look = began + _FIRST_DIAGNOSIS
    reported: set[tuple[str, float]] = set()  # of the record's events
    quiet_since = began
    led = alone = False  # worker 0 has run; it does not run any more
    with (
        _mirror(api, ref, mirrors) as mirror,
        PodLines(api, mirror, lambda pod: alone or _is_leader(pod), events_only=True) as lines,
    ):
        while not (mirror.is_ready(_TICK) and _watch_makers(ref, mirror)):
            if mirror.trouble is not None and not last_reason:
                last_reason = _gist(out_of_touch(mirror.trouble))
                yield _waiting(out_of_touch(mirror.trouble))
            if deadline is not None and time.monotonic() >= deadline:
                return
        uid, between = _uid_of_record(api, ref, mirror), BetweenRead(api)
        while (view := _view(ref, mirror, uid, between)) is not None:  # None if it was removed meanwhile
            yield from _unreported(_opening(view), reported)
            leads = workers.has_leader(view.pods)
            led = led or leads
            doubted = ends.is_said_over(view) and time.monotonic() - quiet_since > _DIAGNOSE
            alone = ((led and not leads) or doubted) and not leader.over
            for _pod, line in lines.take(_TICK, view.pods):
                quiet_since = time.monotonic()
                if isinstance(line, EventLine):
                    for event in _current(leader.read(line, view.pods), view):
                        if last_reason == "unreachable" or event.kind in _SET_BACK:
                            last_reason = ""  # the same trouble again is another one
                        yield event
            silent = not lines.reading or time.monotonic() - quiet_since > ends.LAST_LINES
            if leader.over or silent or (alone and ends.hold_alone(leader, view)):
                now = ends.looked_again(api, ref, _view(ref, mirror, uid, between) or view, leader)
                if now is not None and ends.waits_again(now, leader):
                    leader = history.LeaderEvents(leader.known)  # workers begin anew
                elif now is not None and (end := ends.final_end(api, now, leader)) is not None:
                    yield end
                    return
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _DIAGNOSE
                ends.hear_keeper(api, view, leader)
                claimed_soon = time.monotonic() - began < _CLAIMING
                trouble = _trouble(api, mirror, view, may_be_untended=not claimed_soon)
                if trouble is not None and _gist(trouble) != last_reason:
                    last_reason = _gist(trouble)
                    yield _waiting(trouble)
            if (deadline is not None and time.monotonic() >= deadline) or _is_abandoned(view):
                return


def follow_logs(
    api: Api,
    ref: RunRef,
    mirrors: Mirrors,
    streamed: StreamedLogs | None = None,
    left: threading.Event | None = None,
) -> Iterator[LogLine]:
    """What the ranks write, until the run is over and every line has come, or `left` is set. With `streamed`
    the lines are written to this machine's disk as they come, however slowly they are taken here.
    """
    verdict, quiet_since = False, time.monotonic()
    left = left or threading.Event()
    with (
        closing(streamed) if streamed is not None else nullcontext(),
        _mirror(api, ref, mirrors) as mirror,
        PodLines(api, mirror, streamed=streamed) as lines,
    ):
        while not (mirror.is_ready(_TICK) and _watch_makers(ref, mirror)) and not left.is_set():
            pass
        if left.is_set():
            return
        uid, between = _uid_of_record(api, ref, mirror), BetweenRead(api)
        while (view := _view(ref, mirror, uid, between)) is not None and not left.is_set():
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
            if lines.reading and time.monotonic() - quiet_since < ends.LAST_LINES:
                continue
            if verdict and begins_anew(view.stored, [*view.jobs, *view.waiting]):
                verdict = False  # of workers that begin anew
            elif verdict or _is_abandoned(view) or _is_all_read(api, ref, view, lines):
                return


def _is_all_read(api: Api, ref: RunRef, view: View, lines: PodLines) -> bool:
    """Whether the run is over, as its objects show, and no pod of it is left to read: the watch on the pods
    may be behind the one on the Jobs.
    """
    now = ends.looked_again(api, ref, view, history.LeaderEvents())
    if now is None or lines.finds_more(now.pods):
        return False
    return ends.end_of(now, history.LeaderEvents()) is not None


def _mirror(api: Api, ref: RunRef, mirrors: Mirrors) -> AbstractContextManager[Mirror]:
    """Watches on the run's record and pods, and on Jobs, which most runs are made of."""
    workers_of = names.selector(ref.name, names.WORKER)
    selectors = {"ConfigMap": names.selector(ref.name, names.RECORD)}
    selectors |= dict.fromkeys((*dialects.kinds_of(()), "Pod"), workers_of)
    return mirrors.reading(ref.name, lambda: Mirror(api, selectors))


def _watch_makers(ref: RunRef, mirror: Mirror) -> bool:
    """Whether the objects are watched that the run's workers are made of: its record says which kind."""
    used = map(record.dialect_of, mirror.of("ConfigMap"))
    mirror.watch(dict.fromkeys(dialects.kinds_of(used), names.selector(ref.name, names.WORKER)))
    return mirror.is_ready(_TICK)


def _opening(view: View) -> list[Event]:
    return history.opening_events(view.stored, has_jobs=bool(view.jobs), queue=waits_in(view.jobs))


def _unreported(events: Sequence[Event], reported: set[tuple[str, float]]) -> list[Event]:
    """The events that are new; from now on they are reported."""
    new = [event for event in events if (event.kind, event.at) not in reported]
    reported.update((event.kind, event.at) for event in new)
    return new


def _is_leader(pod: Object) -> bool:
    return workers.worker_of(pod) == 0


def _uid_of_record(api: Api, ref: RunRef, mirror: Mirror) -> str:
    """Which record this run has: another of the same name, made later, is another run's."""
    records = mirror.of("ConfigMap")
    if not records:
        raise views.missing(api, ref)
    return str(records[-1]["metadata"]["uid"])


def _view(ref: RunRef, mirror: Mirror, uid: str, between: BetweenRead) -> View | None:
    obj = next((each for each in mirror.of("ConfigMap") if each["metadata"]["uid"] == uid), None)
    if obj is None:
        return None
    stored = record.read(obj, ref)
    jobs = [job for kind in dialects.kinds_of([stored.dialect]) for job in mirror.of(kind)]
    pods = mirror.of("Pod")
    return views.to_view(stored, jobs, pods, between.of(stored, pods))


def _current(events: Iterator[Event], view: View) -> Iterator[Event]:
    """Leave out that workers are held when they are not any more."""
    for event in events:
        held = view.stored.collected is None and any(map(workers.is_running, view.pods))
        if held or event.kind != "holding":
            yield event


def _trouble(api: Api, mirror: Mirror, view: View, *, may_be_untended: bool) -> Trouble | None:
    """What keeps the run from running."""
    silence = mirror.trouble
    if silence is not None:
        return out_of_touch(silence)
    untended = _untended(view)
    if untended is not None:
        return untended if may_be_untended else None
    if (suspended := find_suspended(view.stored, view.jobs)) is not None:
        return suspended
    try:
        found = find_troubles(api, view.jobs, view.pods, restarts=view.stored.run.job.restarts > 0)
    except Unreachable as error:
        return out_of_touch(error)
    except EchelonError:
        return None  # a right is missing; the run is followed all the same
    return found[0] if found else None


def _untended(view: View) -> Trouble | None:
    return find_untended(view.stored, view.jobs, now=time.time())


def _gist(trouble: Trouble) -> str:
    """By what troubles differ; the reason why a cluster does not respond changes with every try, and what is
    used of a quota with every pod.
    """
    return trouble.kind if trouble.kind in ("unreachable", "quota") else trouble.sentence


def _waiting(trouble: Trouble) -> Event:
    return Event(
        kind="queued" if trouble.kind == "suspended" else "waiting",  # it has no worker any more
        at=round(time.time(), 3),
        worker=trouble.worker,
        reason=told(trouble),
        trouble=trouble.kind,
    )


def _is_abandoned(view: View) -> bool:
    return record.is_abandoned(view.stored, has_jobs=bool(view.jobs), now=time.time())
