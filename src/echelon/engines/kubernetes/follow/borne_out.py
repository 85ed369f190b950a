"""Whether the end that a record has is true, where the run's objects leave that open. It only reads.

Anybody who may write in the namespace can write an end into a record, and one that is over may have workers
that stay for their results: both look alike from outside. What tells them apart is the leader's log, whose
last line is written when the run is over."""

from __future__ import annotations

from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.client.http.stream import split_lines
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.follow.logs import is_last_line
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.ownership.belonging import maker_of
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state import outcome, workers
from echelon.engines.kubernetes.suspended import all_suspended
from echelon.model.output.log import parse_line

_LAST = 3  # lines, of which one is the agent's last if it was written


def says_over(api: Api, leader: Object) -> bool | None:
    """Whether the leader, given by its pod, has written its last line; it may stay to keep its results. None
    if its log has no line, as when the kubelet has just begun another file for it.
    """
    name, container = leader["metadata"]["name"], workers.container_name(leader)
    with api.logs(name, container=container, tail=_LAST) as pieces:
        lines = [parse_line(raw, 0) for raw in split_lines(pieces, with_rest=True)]
    return any(is_last_line(line, 0) for line in lines) if lines else None


def is_refuted(api: Api, view: View) -> bool:
    """Whether a run goes on though its record has an end: nothing of it has begun, or the leader that it
    began with is at work. Of one that may have been replaced, or cannot be asked, the end may be true.
    """
    stored = view.stored
    if stored.end is None or outcome.settled_end(stored, view.jobs, view.pods, view.waiting) is not None:
        return False
    if any(map(workers.was_replaced, view.pods)):
        return False
    if not any(map(workers.has_started, view.pods)):
        jobs = [*view.jobs, *view.waiting]
        return bool(view.pods) or all_suspended(jobs) or (not jobs and outcome.never_began(stored))
    leaders = workers.leader_pods(view.pods)
    if len(leaders) != 1 or not workers.is_running(leaders[0]) or _may_be_new(leaders[0], stored):
        return False
    return says_over(api, leaders[0]) is False


def _may_be_new(leader: Object, stored: Stored) -> bool:
    """Whether a leader may have been replaced after the end that the record has, by a controller that does
    not number the pods which it makes: those of Jobs are numbered.
    """
    if maker_of(leader).get("kind") == "Job":
        return False
    began = moment((leader.get("status") or {}).get("startTime"))
    return began is None or stored.end is None or began > stored.end.at
