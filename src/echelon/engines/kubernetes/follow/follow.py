"""Following a run: its record, Jobs and pods by watch, its agents by their logs, as one stream. Reads only.

Two kinds of events are not history but the state of things: `waiting` (why workers do not start, or that the
API server is away) and `holding` (workers that stay for their results): reported while they are so."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import chain

from echelon.engines.kubernetes import names, record
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.diagnose import Trouble
from echelon.engines.kubernetes.diagnose.kueue import waits_in
from echelon.engines.kubernetes.diagnose.queueing import find_suspended, find_untended
from echelon.engines.kubernetes.diagnose.trouble import told
from echelon.engines.kubernetes.fields import json_object
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.evidence import ask_keeper, confirm, evidence, glance, leads, may_tell
from echelon.engines.kubernetes.follow.keeper import KeeperView, find_keeper, keeping
from echelon.engines.kubernetes.follow.logs import read_pod
from echelon.engines.kubernetes.follow.mirror import Mirror, Mirrors
from echelon.engines.kubernetes.follow.pod_lines import PodLines
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
from echelon.engines.kubernetes.follow.troubles import explain_loss, find_troubles, out_of_touch
from echelon.engines.kubernetes.follow.view import BetweenRead, View
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import history, workers
from echelon.engines.kubernetes.state.standing import (
    LAST_LINES,
    Evidence,
    Source,
    Standing,
    Told,
    has_told,
    may_know,
    standing,
    told_end,
    waits_again,
)
from echelon.errors import Denied, EchelonError, Refused, Unreachable
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
    needed = of_pods and view.stored.end is not None
    known, keeper = yield from _read_logs(api, view, needed=needed, explain=partial(explain_loss, api))
    found = standing(known, time.time())
    if found.end is not None and view.stored.stop is None and found.end.outcome in _UNEXPLAINED:
        view = replace(view, stored=views.read_record(api, ref))  # it may have been stopped while we looked
        found = standing(replace(known, stored=view.stored), time.time())
    if (end := told_end(found, view.stored)) is not None:
        kept = keeper is not None and bool(keeper.kept)
        end = replace(end, released=workers.released(view.pods))
        yield history.with_results_gone(end, known.told, view.stored, view.pods, kept=kept)
        return
    stop = view.stored.stop
    if stop is not None:
        yield Event(kind="stopping", at=stop.at, reason=stop.reason)
    elif keeps := _untended(view) or find_suspended(view.stored, view.jobs):
        yield _waiting(keeps)
    elif troubles := find_troubles(api, view.jobs, view.pods, restarts=view.stored.run.job.restarts > 0):
        yield _waiting(troubles[0])


def examine(api: Api, view: View) -> Standing:
    """How a run stands, from all that can be read where its objects leave it open."""
    found = glance(api, evidence(view))
    reading = _read_logs(api, view)
    while found.lacks:
        try:
            next(reading)
        except StopIteration as done:
            return standing(done.value[0], time.time())
    return found


def _read_logs(
    api: Api, view: View, *, needed: bool = False, explain: history.Explain | None = None
) -> Generator[Event, None, tuple[Evidence, KeeperView | None]]:
    """The events in the logs of a run's agents, and what is known from then on; `needed` if the leader's log
    must be read.
    """
    leader, asked = history.LeaderEvents(explain=explain), set[Source]({"leader"})
    for pod in workers.leader_pods(view.pods):
        lines = history.since_last_gap(_log_of(api, pod, needed=needed))
        for line in lines:
            yield from _current(leader.read(line, view.pods), view)
        leader.told = replace(leader.told, has_lines=bool(lines))  # not by one that has just replaced another
    if not leader.told.over and not leads(view, leader.told):  # the others may know the end, and hold results
        yield from _current(_peers(api, view, leader), view)
        asked.add("peers")
    found = standing(evidence(view, leader.told, asked), time.time())
    keeper = _keeper(api, view.stored) if found.end is not None or "keeper" in found.lacks else None
    if keeper is not None:
        told = keeper.told if "keeper" in found.lacks else ()
        yield from _current(chain.from_iterable(leader.read(each, view.pods) for each in told), view)
        yield from keeping(keeper, at=round(time.time(), 3))
    asked.add("keeper")
    return evidence(view, leader.told, asked), keeper


def _keeper(api: Api, stored: Stored) -> KeeperView | None:
    """The keeper of a run whose results are not fetched."""
    if stored.may_have_run and stored.collected is None:
        with suppress(Denied, Refused):
            return find_keeper(api, stored)
    return None


def _peers(api: Api, view: View, leader: history.LeaderEvents) -> Iterator[Event]:
    """The events in logs that may have an end which the leader's has not, those of running pods first."""
    for pod in sorted(filter(may_know, view.pods), key=lambda pod: not workers.is_running(pod)):
        if leader.told.alone and not workers.is_running(pod):
            return
        for line in history.since_last_gap(_log_of(api, pod)):
            yield from leader.read(line, view.pods)


def _log_of(api: Api, pod: Pod, *, needed: bool = False) -> Iterator[Line]:
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
    explain = partial(explain_loss, api)
    leader = history.LeaderEvents(explain=explain)
    last_reason, began = "", time.monotonic()
    next_look = began + _FIRST_DIAGNOSIS
    reported: set[tuple[str, float]] = set()  # of the record's events
    quiet_since = began
    led = alone = False  # worker 0 has run; it does not run any more
    written: set[str] = set()  # pods whose logs have lines
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
            led = led or has_led(view)
            leader.told = replace(leader.told, has_lines=_has_lines(view, written))
            alone = led and _others_may_know(view, leader.told, quiet=time.monotonic() - quiet_since)
            for pod, line in lines.take(_TICK, view.pods):
                quiet_since = time.monotonic()
                written.add(pod.metadata.uid)
                if isinstance(line, EventLine):
                    for event in _current(leader.read(line, view.pods), view):
                        if last_reason == "unreachable" or event.kind in _SET_BACK:
                            last_reason = ""  # the same trouble again is another one
                        yield event
            silent = not lines.reading or time.monotonic() - quiet_since > LAST_LINES
            if silent or has_told(evidence(view, leader.told), time.time()):
                now = confirm(api, ref, _view(ref, mirror, uid, between) or view, leader)
                if now is not None and now.end is not None:
                    yield now.end
                    return
                leader = leader if now is None else history.LeaderEvents(leader.known, explain)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _DIAGNOSE
                ask_keeper(api, view, leader)
                claimed_soon = time.monotonic() - began < _CLAIMING
                trouble = _trouble(api, mirror, view, may_be_untended=not claimed_soon)
                if trouble is not None and _gist(trouble) != last_reason:
                    last_reason = _gist(trouble)
                    yield _waiting(trouble)
            if (deadline is not None and time.monotonic() >= deadline) or _is_abandoned(view):
                return


def _others_may_know(view: View, told: Told, *, quiet: float) -> bool:
    """Whether logs of other workers may have an end that worker 0's has not. While that one runs, and it is
    not `quiet` for long, its first lines are on their way: those of others would come before them.
    """
    coming = not told.has_lines and quiet <= LAST_LINES and workers.has_leader(view.pods)
    return not coming and may_tell("peers", view, told)


def _has_lines(view: View, written: Collection[str]) -> bool:
    """Whether lines have come of worker 0's newest pod, and not only of one that it has replaced."""
    return any(pod.metadata.uid in written for pod in workers.leader_pods(view.pods)[-1:])


def has_led(view: View) -> bool:
    """Whether worker 0 has run: it runs, it was lost, it is gone and the others are not, or the record has
    the run's end.
    """
    leaders = workers.leader_pods(view.pods)
    if view.stored.end is not None or not leaders:
        return view.stored.end is not None or any(map(workers.has_started, view.pods))
    return any(workers.has_started(pod) or workers.was_replaced(pod) for pod in leaders)


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
    leader, quiet_since = history.LeaderEvents(), time.monotonic()
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
        started: set[int] = set()  # workers, as the leader has told
        while (view := _view(ref, mirror, uid, between)) is not None and not left.is_set():
            silent = True
            for _pod, line in lines.take(_TICK, view.pods):
                silent, quiet_since = False, time.monotonic()
                if isinstance(line, LogLine):
                    yield line
                elif b'"verdict"' in line.payload:
                    collections.deque(leader.read(line, view.pods), maxlen=0)
                elif b'"worker-started"' in line.payload:
                    started |= _named_in(line)
            if not silent:
                continue
            # A worker that is cut off may never send its last line, and of one that has started the cluster
            # may learn late: the wait for them is limited.
            comes = lines.reading or (leader.told.verdict and lines.misses(started, view.pods))
            if comes and time.monotonic() - quiet_since < LAST_LINES:
                continue
            if waits_again(evidence(view, leader.told)):
                leader = history.LeaderEvents(leader.known)  # workers begin anew
            elif leader.told.verdict or _is_abandoned(view) or _is_all_read(api, ref, view, lines):
                return


def _named_in(line: EventLine) -> set[int]:
    """The worker that an event is about."""
    worker = json_object(line.payload.decode(errors="replace")).get("worker")
    return {worker} if type(worker) is int else set()


def _is_all_read(api: Api, ref: RunRef, view: View, lines: PodLines) -> bool:
    """Whether the run is over, as its objects show, and no pod of it is left to read: the watch on the pods
    may be behind the one on the Jobs.
    """
    now = confirm(api, ref, view, history.LeaderEvents())
    return now is not None and now.end is not None and not lines.finds_more(now.view.pods)


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
    return history.opening_events(view.stored, waits_in(view.jobs))


def _unreported(events: Sequence[Event], reported: set[tuple[str, float]]) -> list[Event]:
    """The events that are new; from now on they are reported."""
    new = [event for event in events if (event.kind, event.at) not in reported]
    reported.update((event.kind, event.at) for event in new)
    return new


def _is_leader(pod: Pod) -> bool:
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
    pods = mirror.pods()
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
    return record.is_abandoned(view.stored, time.time())
