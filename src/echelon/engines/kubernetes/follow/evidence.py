"""What is known of a run, read as far as it decides: its objects, the last lines of its leader's log, its
keeper's. `state/standing.py` says what it means. It only reads.

Watches and logs each show their own moment: an end is looked at again before it is told (`confirm`)."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.engines.kubernetes.client.http.stream import split_lines
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.state import workers
from echelon.engines.kubernetes.state.standing import (
    Evidence,
    Source,
    Standing,
    Told,
    standing,
    told_end,
    waits_again,
)
from echelon.errors import Denied, EchelonError, Refused, Unreachable
from echelon.model.event import Event
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api
    from echelon.engines.kubernetes.state import history
    from echelon.model.run import RunRef

STREAMED: tuple[Source, ...] = ("leader",)  # whose log is read as it comes
_LAST = 3  # lines, of which one is the agent's last if it was written
_AT_ONCE = 8
_MOST = 64  # runs that are looked at; `top` shows no more on any screen


def evidence(view: View, told: Told | None = None, asked: Collection[Source] = ()) -> Evidence:
    """What the objects of a run show, and what was told in the logs of those that were `asked`."""
    return Evidence(
        stored=view.stored,
        jobs=view.jobs,
        pods=view.pods,
        waiting=view.waiting,
        told=told or Told(),
        asked=frozenset(asked),
    )


def last_lines(api: Api, pod: str, container: str) -> Told:
    """What the last lines of a leader's log tell, given by its pod: it may be over, and stay to keep its
    results. Nothing if the log has no line, as when the kubelet has just begun another file for it.
    """
    from echelon.engines.kubernetes.follow.logs import is_last_line
    from echelon.model.output.log import parse_line

    with api.logs(pod, container=container, tail=_LAST) as pieces:
        lines = [parse_line(raw, 0) for raw in split_lines(pieces, with_rest=True)]
    return Told(has_lines=bool(lines), over=any(is_last_line(line, 0) for line in lines))


def glance(api: Api, known: Evidence) -> Standing:
    """How a run stands by its objects and, where it decides, the last lines of its leader's log."""
    found = standing(known, time.time())
    if found.lacks[:1] == ("leader",):
        leaders = [pod for pod in workers.leader_pods(known.pods) if workers.is_running(pod)]
        with suppress(EchelonError):  # a log that cannot be read tells nothing
            if leaders:
                name, container = leaders[-1].metadata.name, workers.container_name(leaders[-1])
                return standing(replace(known, told=last_lines(api, name, container)), time.time())
    return found


def find_over(api: Api, leaders: Mapping[str, tuple[str, str]]) -> set[str]:
    """Of runs, given with the pods and containers of their leaders, those that are over while workers stay
    for results.
    """
    if not leaders:
        return set()
    from concurrent.futures import ThreadPoolExecutor

    def look(leader: tuple[str, str]) -> bool:
        try:
            return last_lines(api, *leader).over
        except EchelonError:  # its pod has just gone, or its log may not be read
            return False

    runs = sorted(leaders)[:_MOST]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(look, [leaders[run] for run in runs])
        return {run for run, over in zip(runs, found, strict=True) if over}


def leads(view: View, told: Told) -> bool:
    """Whether worker 0 is at work, as its log shows, and the record says nothing else: no other log has the
    run's end then. It costs one look at the pods, and a judgement several.
    """
    return view.stored.end is None and told.has_lines and workers.has_leader(view.pods)


def may_tell(source: Source, view: View, told: Told) -> bool:
    """Whether logs that were not read may have an end which worker 0's has not."""
    if leads(view, told):
        return False
    return source in standing(evidence(view, told, STREAMED), time.time()).lacks


def ask_keeper(api: Api, view: View, leader: history.LeaderEvents) -> None:
    """Learn from the keeper how the run stands, if it may know better and can be asked."""
    if not may_tell("keeper", view, leader.told):
        return
    from echelon.engines.kubernetes.follow.keeper import find_keeper

    with suppress(Denied, Refused, Unreachable):
        keeper = find_keeper(api, view.stored)
        for line in keeper.told if keeper is not None else ():
            for _ in leader.read(line, view.pods):
                pass


@frozen
class Confirmed:
    """A run that was looked at again, and its end; None if it waits again, and its workers begin anew."""

    view: View
    end: Event | None


def confirm(api: Api, ref: RunRef, view: View, leader: history.LeaderEvents) -> Confirmed | None:
    """The run as it is now, if the watches show its end, or that it waits again; None if they do not, or the
    API server is not there: an end that arrived over a connection which outlived it is reported when what
    follows the end, such as fetching results, can be done.

    The watch on the Jobs may be ahead of the one that brings a stop. Jobs may be seen to have failed before
    the loss of the pod is seen by which they did, or be seen later than the record that says that they were
    made."""
    if not _is_conclusive(evidence(view, leader.told, STREAMED)):
        return None
    try:
        view = _look_again(api, ref, view, leader.told)
    except Unreachable:
        return None
    if not _is_conclusive(evidence(view, leader.told, STREAMED)):
        return None
    ask_keeper(api, view, leader)
    found = standing(evidence(view, leader.told, STREAMED), time.time())
    return Confirmed(view=view, end=told_end(found, view.stored))


def _is_conclusive(known: Evidence) -> bool:
    return waits_again(known) or standing(known, time.time()).end is not None


def _look_again(api: Api, ref: RunRef, view: View, told: Told) -> View:
    """The run, read again: all of it, unless its agents have told the end, and only a stop could explain it.
    What was removed, or may not be read, is as the watches have shown it.
    """
    try:
        if told.over and view.jobs:
            stored = views.find_record(api, ref)
            same = stored is not None and stored.uid == view.stored.uid
            return replace(view, stored=stored) if stored is not None and same else view
        found = views.look(api, ref)
    except Unreachable:
        raise
    except EchelonError:
        return view
    return found if found.stored.uid == view.stored.uid else view
