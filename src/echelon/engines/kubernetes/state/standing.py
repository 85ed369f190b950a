"""Whether a run is over, and how: the one answer, from what is known of it at a moment. Pure.

`ps`, `status`, `wait`, `stop`, `rm`, upkeep and the fetching of results ask here. What they know differs: the
objects alone, the last lines of the leader's log, all of its log, the other workers' and the keeper's. A
`Standing` names what was not read and could decide (`lacks`). A caller that can read it does
(`follow/evidence.py`), and asks again; an end that lacks nothing is never changed by more evidence. Only a
list of thousands reads no pods that have ended: it believes a record and Jobs that agree.

The order of what counts: what agents have told in their logs; a verdict that an object has; the record where
nothing is left that could go on, since any user who may write records may have written its end; the other
objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import outcome, workers
from echelon.model import ends
from echelon.model.copy import Manifest
from echelon.model.event import Event, RootCause
from echelon.model.state import State
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object

LAST_LINES = 20.0  # seconds of silence after which nothing more is expected of a run that is over

Source = Literal["pods", "leader", "peers", "keeper"]  # the pods that have ended, or whose log


@frozen
class Told:
    """What the agents have told in the logs that were read. Of a leader of which only the last lines were
    read, `over` is known and the verdict is not.
    """

    has_lines: bool = False  # the leader's log has a line
    over: bool = False  # it has its last one
    verdict: Event | None = None
    ended_at: float = 0.0
    explained: RootCause | None = None  # an eviction, as its pod told it, which is gone soon
    held: bool = False  # workers have kept results to be fetched
    alone: frozenset[int] = frozenset()  # workers that hold results without a leader
    manifests: Mapping[int, tuple[Manifest, ...]] = field(default_factory=dict)  # as each worker stated
    kept: frozenset[int] = frozenset()  # workers that say that the keeper has their results


@frozen
class Evidence:
    """What is known of a run: its record, the objects that its workers are made of (or `waiting`, if it was
    not admitted), its pods, and what was told in the logs of those that were `asked`.
    """

    stored: Stored
    jobs: Sequence[Object] = ()
    pods: Sequence[Pod] = ()
    waiting: Sequence[Object] = ()
    told: Told = Told()
    asked: frozenset[Source] = frozenset()
    ended_pods: bool = True  # False if pods that have ended were not listed
    keeper: bool = True  # False if no pod of a keeper is left


@frozen
class Standing:
    """How a run stands. `doubt` is why nothing but the record says how it ended; `lacks` is what may say
    otherwise, the most likely first.
    """

    state: State
    reason: str | None = None
    end: Event | None = None
    doubt: str = ""
    lacks: tuple[Source, ...] = ()


def standing(known: Evidence, now: float) -> Standing:
    """How a run stands, as far as it is known."""
    stored, jobs, pods = known.stored, known.jobs, known.pods
    if waits_again(known):
        return _going_on(known)
    if has_told(known, now):
        return _over(finish(known.told, stored, pods))
    shown, claimed = outcome.finished_event(stored, jobs, pods), _claimed(known)
    if shown is None and (claimed is None or (_may_go_on(known) and not known.told.over)):
        return replace(_going_on(known), lacks=_could_tell(known))
    if claimed is None or (shown is not None and _is_denied(claimed, shown, known)):
        assert shown is not None
        return _over(shown, lacks=() if _is_proof(shown, known) else _could_tell(known))
    doubt = _doubt(claimed, known)
    proven = shown is not None and not doubt and (_is_proof(shown, known) or not known.ended_pods)
    return _over(claimed, doubt=doubt, lacks=() if proven else _could_tell(known))


def told_end(found: Standing, stored: Stored) -> Event | None:
    """The end for a person: with where the results are, and whether nothing but the record tells it."""
    end, collected = found.end, stored.collected
    if end is None:
        return None
    if collected is not None:
        where = f"{collected.host}:{collected.path}" if collected.path else None
        missing = tuple(dict.fromkeys((*(end.missing or ()), *collected.missing)))
        end = replace(end, missing=missing or None, fetched_to=where)
    return with_doubt(end, found)


def with_doubt(end: Event, found: Standing) -> Event:
    """An end that nothing but the record tells, told as that."""
    return ends.with_note(end, f"only its record says so: {found.doubt}") if found.doubt else end


def has_told(known: Evidence, now: float) -> bool:
    """Whether the agents have told the end: the leader, or, over without it, every worker that is left holds
    its results by itself, or has had the time to stop its ranks.
    """
    told = known.told
    if told.verdict is None or told.over or not told.alone:
        return told.verdict is not None and told.over
    running = (pod for pod in known.pods if workers.is_running(pod) and not workers.is_cut_off(pod))
    left = set(map(workers.worker_of, running)) - {0}
    return left <= told.alone or now - told.verdict.at > LAST_LINES


def waits_again(known: Evidence) -> bool:
    """Whether the workers begin anew whose leader has told an end: who suspends a run's Jobs, as Kueue does
    when it takes quota back, ends its workers so.
    """
    verdict = known.told.verdict
    cause = verdict.cause if verdict is not None else None
    return outcome.waits_again(known.stored, [*known.jobs, *known.waiting], cause)


def finish(told: Told, stored: Stored, pods: Sequence[Pod]) -> Event:
    """The end by the leader's verdict; a failure after a stop counts as the stop."""
    verdict, stop = told.verdict, stored.stop
    assert verdict is not None
    at = told.ended_at or verdict.at
    if stop is not None and verdict.outcome != "succeeded" and verdict.at >= stop.at:
        end = outcome.stopped_as_told(stop, verdict.outcome, verdict.reason, at=at)
    else:
        cause = outcome.explain(verdict.cause, pods) if verdict.cause is not None else None
        kept = stored.end.cause if stored.end is not None else None
        for known in (told.explained, kept):  # explained when the pod was still there
            if cause is not None and known is not None:
                cause = known if (known.worker, known.rank) == (cause.worker, cause.rank) else cause
        end = ends.from_verdict(verdict, at=at, cause=cause)
    end = replace(end, missing=verdict.missing)
    stated = tuple(each for _, mine in sorted(told.manifests.items()) for each in mine)
    return replace(end, manifests=stated or None)


def _over(end: Event, *, doubt: str = "", lacks: tuple[Source, ...] = ()) -> Standing:
    return Standing(state=end.outcome or "lost", reason=end.reason, end=end, doubt=doubt, lacks=lacks)


def _going_on(known: Evidence) -> Standing:
    state, reason = outcome.going_on(known.stored, known.jobs, known.pods)
    return Standing(state=state, reason=reason)


def _claimed(known: Evidence) -> Event | None:
    """The end that the record has. One that was never admitted has none, but that it was withdrawn, which is
    a stop. The plan of one whose end was not kept is in its Jobs; how its results came stays.
    """
    stored = known.stored
    never_began = not stored.may_have_run and stored.collected is None
    return None if never_began and not known.jobs and not known.pods else stored.end


def _may_go_on(known: Evidence) -> bool:
    """Whether something of a run is at work, or will be: a pod that has not ended, unless its node does not
    respond and no client can ask it; or a Job that may make another. A pod that was to replace a lost one,
    and has not begun, or is deleted before it has said anything, tells nothing: the run may have ended with
    that one.
    """
    left = [pod for pod in known.pods if not workers.has_ended(pod)]
    asked = [pod for pod in left if not workers.was_replaced(pod) or _has_a_say(pod, known)]
    return not all(map(workers.is_cut_off, asked)) or (bool(known.jobs or known.waiting) and not left)


def _has_a_say(pod: Pod, known: Evidence) -> bool:
    """Whether a pod that has replaced another may know of the run what that one did not."""
    silent = "leader" in known.asked and not known.told.has_lines
    return workers.has_started(pod) and not (silent and pod.metadata.deletion_timestamp)


def _is_denied(claimed: Event, shown: Event, known: Evidence) -> bool:
    """Whether the objects say that a run ended otherwise than its record has it, and how. The record has a
    cause and manifests that objects do not have; how it ended, the leader knows best, and after it the Job,
    which knows whether its workers have done their part.
    """
    if shown.outcome == claimed.outcome:
        return False
    if outcome.has_decided(known.pods) or shown.outcome == "succeeded":
        return True
    if outcome.verdict_of(known.pods) is not None:
        return False  # by a leader that came too late
    ending = dialects.end_of(known.jobs)
    # An agent gives the code by which a Job fails at once only if its run did not succeed.
    given = ending is not None and ending.reason == "PodFailurePolicy"
    return claimed.outcome == "succeeded" and (given or outcome.left_alone(known.pods) is not None)


def _doubt(claimed: Event, known: Evidence) -> str:
    """Why nothing but the record says how a run ended; "" if something else does."""
    if outcome.has_decided(known.pods):
        return ""
    if not known.jobs and not known.pods:
        proven = known.stored.stop is not None and claimed.outcome != "succeeded"
        return "" if proven else "its Jobs and pods are gone"
    # A leader that stays with its results, and is lost then, takes the Job of a run that succeeded with it.
    ending = dialects.end_of(known.jobs)
    if claimed.outcome == "succeeded" and ending is not None and ending.outcome == "failed":
        return f"its Job failed{f' ({ending.reason})' if ending.reason else ''}"
    return ""


def _is_proof(shown: Event, known: Evidence) -> bool:
    """Whether objects that tell an end say how it came, too: no log says otherwise."""
    return outcome.has_decided(known.pods) or shown.outcome == "succeeded"


def _could_tell(known: Evidence) -> tuple[Source, ...]:
    """What was not read and may have the end. While a leader is at work, no other log has it."""
    if not known.ended_pods and known.jobs:
        return ("pods",)
    leaders, stored = workers.leader_pods(known.pods), known.stored
    found: list[Source] = ["leader"] if any(map(workers.has_started, leaders)) else []
    if known.told.over:
        return tuple(found)
    if workers.has_leader(known.pods) and not _may_be_new(leaders[-1], known):
        if known.told.has_lines:
            return ()
        if "leader" not in known.asked:
            return ("leader",)
    if any(map(may_know, known.pods)):
        found.append("peers")
    keeps = stored.run.job.pod.keeper is not None and stored.collected is None
    if known.keeper and keeps and stored.may_have_run:
        found.append("keeper")
    return tuple(each for each in found if each not in known.asked)


def may_know(pod: Pod) -> bool:
    """Whether a pod's log may have an end that the leader's has not: a worker that is told to leave once its
    results are fetched has told the end before. One whose pod is deleted tells nothing: who suspends the Job
    ends its workers so.
    """
    there = workers.has_started(pod) and not pod.metadata.leaves
    return there and (workers.is_running(pod) or workers.worker_of(pod) != 0)


def _may_be_new(leader: Pod, known: Evidence) -> bool:
    """Whether a leader may have come after the end that the record has, and not know of it: in place of
    another one, or made by a controller that does not number the pods which it makes, as those of Jobs are.
    """
    end = known.stored.end
    if end is None:
        return False
    if any(map(workers.was_replaced, known.pods)):
        return True
    if leader.metadata.maker.kind == "Job":
        return False
    began = moment(leader.status.start_time)
    return began is None or began > end.at
