"""That a run's events are read from its record and its leader's log, also when part of the log is lost."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.engines.kubernetes.small import RECORD, RUNNING, pod, stored
from tests.engines.kubernetes.taken import load

from echelon.admission import plan_anywhere
from echelon.engines.decoding import convert
from echelon.engines.kubernetes.follow.logs import gap
from echelon.engines.kubernetes.state import history
from echelon.engines.kubernetes.state.history import LeaderEvents, opening_events
from echelon.engines.kubernetes.state.standing import finish
from echelon.engines.kubernetes.state.workers import Loss
from echelon.model.copy import Manifest
from echelon.model.event import Event, RootCause
from echelon.model.output.log import EventLine, Line, LogLine
from echelon.model.run import RunRef

REF = RunRef(engine="k8s", name="demo", namespace="ours")


def said(kind: str, at: float, **more: object) -> dict[str, object]:
    return {"kind": kind, "at": at, **more}


def line(number: int, event: dict[str, object]) -> EventLine:
    return EventLine(sequence=number, at=1.0, payload=json.dumps(event).encode())


# The record


def test_a_run_that_kueue_has_not_admitted_is_queued() -> None:
    plan = plan_anywhere(replace(RECORD.job, framework="plain"))
    made = stored()
    found = replace(made, run=replace(made.run, plan=plan), admitted=5.0)
    waiting = opening_events(found, "team")[-1]
    assert (waiting.kind, waiting.reason) == ("queued", "queued in Kueue's queue team")
    assert opening_events(found)[-1].kind == "admitted"


# The leader's log


def kinds(leader: LeaderEvents, *lines: EventLine) -> list[str]:
    return [event.kind for each in lines for event in leader.read(each, [])]


def test_the_end_is_the_leaders_own_after_the_verdict() -> None:
    leader = LeaderEvents()
    assert kinds(leader, line(0, said("worker-ended", 1.0, worker=0))) == ["worker-ended"]
    assert not leader.told.over
    verdict = said("verdict", 2.0, outcome="succeeded", exit_code=0)
    assert kinds(leader, line(1, verdict), line(2, said("worker-ended", 3.0, worker=1))) != []
    assert not leader.told.over
    assert kinds(leader, line(3, said("worker-ended", 4.0, worker=0)))
    assert leader.told.over
    end = finish(leader.told, stored(), [])
    assert (end.kind, end.outcome, end.at) == ("finished", "succeeded", 4.0)


def test_workers_that_begin_anew_have_not_ended_and_repeat_nothing() -> None:
    first = LeaderEvents()
    verdict = said("verdict", 2.0, outcome="failed", exit_code=117)
    old = (line(0, verdict), line(1, said("worker-ended", 3.0, worker=0)))
    assert kinds(first, *old)
    assert first.told.over
    again = LeaderEvents(first.known)
    assert (again.told.over, again.told.verdict, kinds(again, *old)) == (False, None, [])
    assert kinds(again, line(2, said("worker-started", 9.0, worker=0))) == ["worker-started"]


def test_the_end_has_what_every_worker_stated() -> None:
    """Also if a worker's replacement, which holds nothing, ends after it."""
    leader = LeaderEvents()
    manifest = {"worker": 1, "root": "/out", "files": 3, "size": 5, "digest": "abc"}
    lines = [
        said("verdict", 2.0, outcome="succeeded", exit_code=0),
        said("worker-ended", 3.0, worker=1, manifests=[manifest]),
        said("worker-ended", 4.0, worker=1),
        said("worker-ended", 5.0, worker=0),
    ]
    assert kinds(leader, *(line(number, each) for number, each in enumerate(lines)))
    assert finish(leader.told, stored(), []).manifests == (convert(manifest, Manifest),)


def test_a_loss_that_was_explained_stays_explained() -> None:
    """When the pod is gone, nothing but the record knows how."""
    leader = LeaderEvents()
    cause = {"summary": "worker 1 was lost: its agent left", "kind": "worker-left", "worker": 1}
    lines = [
        said("verdict", 2.0, outcome="failed", exit_code=1, cause=cause),
        said("worker-ended", 5.0, worker=0),
    ]
    assert kinds(leader, *(line(number, each) for number, each in enumerate(lines)))
    kept = RootCause(summary="worker 1 was lost: its pod was deleted", kind="worker-left", worker=1)
    known = replace(stored(), end=Event(kind="finished", at=5.0, outcome="failed", cause=kept))
    assert finish(leader.told, known, []).cause == kept
    other = replace(stored(), end=Event(kind="finished", at=5.0, cause=replace(kept, worker=2)))
    assert finish(leader.told, other, []).cause == convert(cause, RootCause)


def test_a_leader_that_replaces_another_does_not_know_how_it_was_lost_and_the_cluster_does() -> None:
    guess = {"summary": "worker 0 was lost: its agent had to be replaced", "kind": "worker-lost", "worker": 0}
    began_again = line(1, said("restarting", 3.0, restart=1, cause=guess))
    (alone,) = LeaderEvents().read(began_again, [])
    assert alone.cause == convert(guess, RootCause)
    leader = LeaderEvents()
    seen = load("lost-preempted")
    (lost,) = leader.read(
        line(0, said("worker-lost", 2.0, worker=0, reason="told to leave")), seen.read_pods()
    )
    assert "preempted" in (lost.reason or "")
    for pods in ([], [pod(0, state=RUNNING)]):  # the pod that knows it is gone
        (again,) = LeaderEvents.read(leader, began_again, pods)
        leader.known.clear()
        assert again.cause is not None
        assert (again.cause.summary, again.cause.kind) == (
            f"worker 0 was lost: {lost.reason}",
            "worker-evicted",
        )
    asked: list[float] = []

    def explain(_pods: object, until: float) -> Loss:
        asked.append(until)
        return Loss(kind="preempted", how="it was preempted by a pod of higher priority")

    joined = LeaderEvents(explain=explain)  # by a command that did not see it
    (again,) = joined.read(began_again, [pod(0, state=RUNNING)])
    assert again.cause is not None
    assert again.cause.summary == "worker 0 was lost: it was preempted by a pod of higher priority"
    assert (again.cause.kind, again.cause.disruption, asked) == ("worker-evicted", "preempted", [3.0])
    other = {**guess, "worker": 1, "summary": "worker 1 was lost: its connection broke"}
    (of_another,) = leader.read(line(2, said("restarting", 4.0, restart=2, cause=other)), [])
    assert of_another.cause == convert(other, RootCause)


def test_a_repeated_state_tells_only_what_was_missed() -> None:
    leader = LeaderEvents()
    first, second = said("worker-started", 1.0, worker=0), said("worker-running", 2.0, worker=0)
    assert kinds(leader, line(0, first)) == ["worker-started"]
    state = said("state", 3.0, events=[first, second])
    assert kinds(leader, line(9, state), line(10, state)) == ["worker-running"]


def test_odd_lines_are_passed_over() -> None:
    leader = LeaderEvents()
    odd = [b"", b"{", b"[]", b'{"kind": "no-such"}', b'{"kind": "state", "events": 3}', b'"verdict"']
    assert kinds(leader, *(EventLine(sequence=at, at=1.0, payload=text) for at, text in enumerate(odd))) == []


def test_what_the_cluster_knows_is_added() -> None:
    leader = LeaderEvents()
    pods = [pod(1, state=RUNNING)]
    (event,) = leader.read(line(0, said("worker-started", 1.0, worker=1)), pods)
    assert event.node == "node-a"


@given(before=st.integers(0, 5), lost=st.integers(0, 6), after=st.integers(0, 5))
def test_what_is_lost_is_told_by_the_next_state(before: int, lost: int, after: int) -> None:
    """The state that the leader repeats says all that came before it; what was read of that is left out."""
    events = [said("worker-started", float(at), worker=at) for at in range(before + after)]
    state = said("state", 50.0, events=events[:before])
    lines = [line(at, each) for at, each in enumerate([*events[:before], state, *events[before:]])]
    lost = min(lost, before)
    torn: list[Line] = (
        [gap(0, lost, 1.0), LogLine(text="x", at=1.0, worker=0), *lines[lost:]] if lost else [*lines]
    )
    found = history.since_last_gap(torn)
    assert found == (lines[before:] if lost else lines)
    leader = LeaderEvents()
    assert [event.worker for each in found for event in leader.read(each, [])] == list(range(before + after))


def test_a_log_without_any_state_tells_what_it_has() -> None:
    lines: list[Line] = [gap(0, 3, 1.0), line(3, said("worker-lost", 1.0, worker=1))]
    assert history.since_last_gap(lines) == lines[1:]


# Evictions


def test_a_worker_that_was_taken_away_is_told_with_its_kind() -> None:
    pods = load("lost-drained").read_pods()
    cause = {"summary": "worker 0 was lost: told to leave", "kind": "worker-left", "worker": 0}
    lines = [
        line(0, said("worker-lost", 1.0, worker=0, reason="told to leave")),
        line(1, said("restarting", 2.0, restart=1, spared=1, cause=cause)),
    ]
    lost, restarting = (event for each in lines for event in LeaderEvents().read(each, pods))
    assert lost.disruption == "drained"
    assert restarting.cause is not None
    assert (restarting.spared, restarting.cause.kind) == (1, "worker-evicted")


def test_a_notice_says_how_the_worker_is_taken_away() -> None:
    told = said("notice", 2.0, worker=0, reason="its agent was told to leave (SIGTERM)", grace=30.0)
    (event,) = LeaderEvents().read(line(0, told), load("lost-preempted").read_pods())
    assert "preempted" in (event.reason or "")
    assert (event.disruption, event.grace) == ("preempted", 30.0)
    (unknown,) = LeaderEvents().read(line(0, told), [])
    assert (unknown.reason, unknown.disruption) == ("its agent was told to leave (SIGTERM)", None)


def test_an_eviction_is_known_at_the_end_though_its_pod_is_gone() -> None:
    cause = {"summary": "worker 0 was lost: told to leave", "kind": "worker-left", "worker": 0}
    leader, pods = LeaderEvents(), load("lost-drained").read_pods()
    assert list(leader.read(line(0, said("failed", 1.0, cause=cause)), pods))
    assert list(leader.read(line(1, said("verdict", 2.0, outcome="failed", exit_code=1, cause=cause)), []))
    found = finish(leader.told, stored(), []).cause
    assert found is not None
    assert (found.kind, found.disruption) == ("worker-evicted", "drained")


# Without a leader


def test_workers_that_hold_results_without_a_leader_are_known_by_their_own_logs() -> None:
    leader = LeaderEvents()
    verdict = said("verdict", 2.0, outcome="failed", exit_code=117)
    held = said("holding", 3.0, worker=1, until=300.0)
    state = said("state", 4.0, events=[verdict, held])
    assert kinds(leader, line(0, state), line(1, state)) == ["verdict", "holding"]
    assert leader.told.alone == {1}
    assert not leader.told.over
