"""The end of a run that is followed: told by its agents' logs, by its keeper, or by its objects alone. Reads
only.

Watches and logs each show their own moment, so that an end is looked at again before it is told."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.keeper import KeeperView, find_keeper
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state import history, outcome, workers
from echelon.errors import Denied, EchelonError, Refused, Unreachable
from echelon.model.event import Event
from echelon.model.run import RunRef

LAST_LINES = 20.0  # seconds of silence after which nothing more is expected of a run that is over


def keeper_of(api: Api, view: View, leader: history.LeaderEvents) -> KeeperView | None:
    """The keeper of a run that is over, or whose leader cannot tell, while its results are not fetched."""
    if view.stored.collected is not None or not view.stored.started:
        return None
    if not leader.over and not is_leaderless(view):
        return None
    with suppress(Denied, Refused):
        return find_keeper(api, view.stored)
    return None


def is_said_over(view: View) -> bool:
    """Whether the record has an end, which its leader's log must bear out as long as it is there."""
    return view.stored.end is not None


def is_leaderless(view: View) -> bool:
    """Whether worker 0 cannot tell how the run stands: it does not run or, of a run that is said to be over,
    may have been replaced since.
    """
    return not workers.has_leader(view.pods) or is_said_over(view)


def told_by_keeper(api: Api, view: View, leader: history.LeaderEvents) -> Event | None:
    """The end as the keeper knows it, where the leader's log did not bring it: its pod may be deleted."""
    keeper = None if leader.over else keeper_of(api, view, leader)
    for line in keeper.told if keeper is not None else ():
        for _ in leader.read(line, view.pods):
            pass
    return history.finish(leader, view.stored, view.pods) if leader.over else None


def hear_keeper(api: Api, view: View, leader: history.LeaderEvents) -> None:
    """Learn the end from the keeper of a run that is said to be over, and whose leader does not tell."""
    if is_said_over(view) and not leader.over:
        with suppress(EchelonError):
            told_by_keeper(api, view, leader)


def hold_alone(leader: history.LeaderEvents, view: View) -> bool:
    """Whether the run is over without its leader: every worker that is left holds its results by itself, or
    has had the time to stop its ranks.
    """
    if leader.verdict is None or not leader.alone:
        return False
    left = {
        workers.worker_of(pod) for pod in view.pods if workers.is_running(pod) and not workers.is_cut_off(pod)
    }
    return left - {0} <= leader.alone or time.time() - leader.verdict.at > LAST_LINES


def record_now(api: Api, ref: RunRef, known: Stored) -> Stored | None:
    """The record, read again before an end is reported: the watch on the Jobs may be ahead of the one that
    brings the stop. None if the API server is not there: an end that arrived over a connection which outlived
    it is reported when what follows the end, such as fetching results, can be done.
    """
    try:
        found = views.find_record(api, ref)
    except Unreachable:
        return None
    except EchelonError:
        return known
    return found if found is not None and found.uid == known.uid else known


def looked_again(api: Api, ref: RunRef, view: View, leader: history.LeaderEvents) -> View | None:
    """The run as it is now, if the watches show its end, or that it waits again; None if they do not, or the
    API server is not there. Each watch shows its own moment: Jobs may be seen to have failed before the loss
    of the pod is seen by which they did, or be seen later than the record that says that they were made.
    """
    if end_of(view, leader) is None and not waits_again(view, leader):
        return None
    if (stored := record_now(api, ref, view.stored)) is None:
        return None
    known = replace(view, stored=stored)
    if has_told(leader, view) and view.jobs:
        return known
    try:
        found = views.look(api, ref)
    except Unreachable:
        return None
    except EchelonError:  # it was removed, or may not be listed: what the watches have shown is all there is
        return known
    return found if found.stored.uid == stored.uid else known


def final_end(api: Api, view: View, leader: history.LeaderEvents) -> Event | None:
    """The end to report, from what is there now; None if there is none after all."""
    end = end_of(view, leader)
    return None if end is None else told_by_keeper(api, view, leader) or end


def waits_again(view: View, leader: history.LeaderEvents) -> bool:
    """Whether the workers begin anew whose leader told an end."""
    cause = leader.verdict.cause if leader.verdict is not None else None
    return outcome.waits_again(view.stored, [*view.jobs, *view.waiting], cause)


def has_told(leader: history.LeaderEvents, view: View) -> bool:
    """Whether the agents have told the end."""
    return leader.over or hold_alone(leader, view)


def end_of(view: View, leader: history.LeaderEvents) -> Event | None:
    """The end as what is known tells it; None if it tells none."""
    if waits_again(view, leader):
        return None
    if has_told(leader, view):
        end: Event | None = history.finish(leader, view.stored, view.pods)
    else:
        end = outcome.settled_end(view.stored, view.jobs, view.pods, view.waiting)
        end = outcome.as_told(end, view.stored, view.jobs, view.pods)
    collected = view.stored.collected
    if end is None or collected is None:
        return end
    where = f"{collected.host}:{collected.path}" if collected.path else None
    return replace(end, missing=collected.missing or None, fetched_to=where)
