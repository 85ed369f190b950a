"""How runs stand and ended, read from objects of a real cluster (see `taken.py`), and from odd ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testbed.kubectl import Object
from tests.engines.kubernetes.small import RUNNING, WAITING, ended, job, pod, stored
from tests.engines.kubernetes.taken import load

from echelon.agent.task import GAVE_WAY, TOLD_TO_LEAVE
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render.dialects import end_of as end_of_jobs
from echelon.engines.kubernetes.state.outcome import explain, finished_event
from echelon.engines.kubernetes.state.standing import Evidence, Standing, standing
from echelon.model.event import Event, RootCause


def stand(found: Stored, jobs: Sequence[Object], pods: Sequence[Pod]) -> Standing:
    return standing(Evidence(stored=found, jobs=jobs, pods=pods), 1e9)


# Ends
def end_of(name: str, **about: Any) -> Event | None:
    seen = load(name)
    return finished_event(stored(**about), seen.jobs, seen.read_pods())


@pytest.mark.parametrize(
    ("name", "outcome", "code", "words"),
    [
        ("end-done", "succeeded", 0, None),
        ("end-broken", "failed", 3, "rank 1 exited with code 3: boom"),
        ("end-halted", "stopped", 143, "stopped by ann"),
        ("end-leaderless", "failed", 117, "worker 0 was lost: its agent exited with code 1"),
        ("end-worn-out", "failed", 117, "worker 0 was lost: its agent exited with code 7"),
        ("end-overdue", "timed-out", 118, "its Job has a deadline, which has passed (activeDeadlineSeconds)"),
    ],
)
def test_how_a_run_ended(name: str, outcome: str, code: int, words: str | None) -> None:
    end = end_of(name)
    assert end is not None
    assert (end.outcome, end.exit_code) == (outcome, code)
    assert (end.cause.summary if end.cause else end.reason) == words
    seen = load(name)
    found = stand(stored(), seen.jobs, seen.read_pods())
    assert (found.state, found.end) == (outcome, end)
    assert 0 <= seen.at - end.at < 60


def test_a_deadline_that_a_stop_has_set_is_the_stops() -> None:
    """Where the agents cannot be told, the engine ends a Job by its deadline."""
    end = end_of("end-overdue", stop={"at": 10.0, "reason": "stopped by ann", "now": True})
    assert end is not None
    assert (end.outcome, end.exit_code, end.reason) == ("stopped", 143, "stopped by ann")


def verdict(outcome: str, code: int, **more: object) -> str:
    return json.dumps({"outcome": outcome, "exit_code": code, **more})


LOST = {"summary": "worker 1 was lost: its connection broke off", "worker": 1, "exit_code": 117}


def test_the_leader_tells_how_it_ended_before_its_job_does() -> None:
    leader = pod(state=ended(0, reason="Completed", message=verdict("succeeded", 0)))
    end = finished_event(stored(), [job()], [leader])
    assert end == Event(
        kind="finished", at=moment("2026-01-01T00:01:00Z") or 0, outcome="succeeded", exit_code=0
    )


def test_who_suspends_its_job_ends_its_workers_and_not_the_run() -> None:
    """As Kueue does when it takes quota back. A rank that failed by itself has ended it all the same."""
    left = pod(state=ended(3, message=verdict("failed", 117, cause={**LOST, "kind": "worker-left"})))
    assert finished_event(stored(), [job(suspend=True)], [left]) is None
    assert finished_event(stored(), [job()], [left]) is not None
    asked = stored(stop={"at": 10.0, "reason": "stopped by ann", "now": True})
    assert finished_event(asked, [job(suspend=True)], [left]) is not None
    rank = {"summary": "rank 0 exited with code 1", "kind": "rank", "rank": 0, "exit_code": 1}
    failed = pod(state=ended(3, message=verdict("failed", 1, cause=rank)))
    assert finished_event(stored(), [job(suspend=True)], [failed]) is not None


def test_a_leader_that_left_well_without_a_readable_verdict_has_succeeded() -> None:
    end = finished_event(stored(), [job()], [pod(state=ended(0, message="{"))])
    assert end is not None
    assert (end.outcome, end.exit_code) == ("succeeded", 0)


def test_a_leader_that_ended_the_run_without_a_readable_verdict() -> None:
    end = finished_event(stored(), [job("Failed")], [pod(state=ended(193, message="{"))])
    assert end is not None
    assert end.cause is not None
    assert (end.outcome, end.exit_code) == ("failed", 117)
    assert end.cause.summary == "worker 0 ended the run and left no verdict; its log has its last lines"


def test_the_cluster_knows_more_of_a_lost_worker_than_the_leader() -> None:
    leader = pod(0, state=ended(193, message=verdict("failed", 117, cause=LOST)))
    limits = {"resources": {"limits": {"memory": "2Gi"}}}
    lost = pod(1, state=ended(137, reason="OOMKilled"), container=limits)
    end = finished_event(stored(), [job()], [leader, lost])
    assert end is not None
    assert end.cause is not None
    assert end.cause.summary == "worker 1 was lost: it ran out of memory: the limit is 2Gi"


def test_the_others_miss_a_leader_that_kubernetes_takes_for_running() -> None:
    """Its node has died a moment ago, and they have waited for it without a restart left."""
    leader, member = pod(0, state=RUNNING), pod(1, state=ended(195))
    end = finished_event(stored(), [job("Failed", reason="PodFailurePolicy")], [leader, member])
    assert end is not None
    assert end.cause is not None
    words = "worker 0 was lost: the others lost their connection to it, on its node node-a"
    assert (end.cause.worker, end.cause.summary) == (0, words)


def test_a_leader_that_was_made_to_leave_is_told_how() -> None:
    """It ends the run itself, as one that is over, since no restart is left."""
    words = f"worker 0 was lost: {TOLD_TO_LEAVE}"
    leader = pod(0, state=ended(193), deletionTimestamp="2026-01-01T00:01:30Z")
    told = explain(RootCause(summary=words, kind="worker-left", worker=0), [leader, pod(1, state=RUNNING)])
    assert told.summary == "worker 0 was lost: its pod was deleted"
    untouched = explain(RootCause(summary=words, kind="worker-left", worker=0), [pod(0, state=ended(193))])
    assert untouched.summary == f"{words} (on node node-a)"


def test_an_eviction_is_told_as_one() -> None:
    (one,) = load("lost-drained").read_pods()
    left = RootCause(summary=f"worker 0 was lost: {TOLD_TO_LEAVE}", kind="worker-left", worker=0)
    told = explain(left, [one])
    assert (told.kind, told.disruption) == ("worker-evicted", "drained")
    assert (
        told.summary == "worker 0 was lost: it was evicted from its node node-c, as when the node is drained"
    )
    end = finished_event(stored(), [job("Failed", reason="PodFailurePolicy")], [one])
    assert end is not None
    assert end.cause is not None
    assert (end.cause.kind, end.cause.disruption) == ("worker-evicted", "drained")


def test_a_pod_that_is_deleted_with_its_run_was_not_lost_by_that() -> None:
    """Its node died; the Job, which has failed by it, deletes its pods before anybody knows of the node."""
    lost = pod(1, state=RUNNING, deletionTimestamp="2026-01-01T00:01:30Z")
    cause = RootCause(summary="worker 1 was lost: the connection was closed", worker=1)
    told = explain(cause, [pod(0, state=RUNNING), lost])
    assert told.summary == "worker 1 was lost: the connection was closed (on node node-a)"
    left = RootCause(summary=f"worker 1 was lost: {TOLD_TO_LEAVE}", kind="worker-left", worker=1)
    assert explain(left, [pod(0, state=RUNNING), lost]).summary == "worker 1 was lost: its pod was deleted"


def test_a_rank_that_the_memory_limit_killed_is_told_so() -> None:
    cause = RootCause(
        summary="rank 1 was killed by SIGKILL: out of memory?", worker=1, rank=1, signal="SIGKILL"
    )
    limits = {"resources": {"limits": {"memory": "2Gi"}}}
    member = pod(1, state=ended(0, reason="OOMKilled"), container=limits)
    told = explain(cause, [pod(0, state=RUNNING), member])
    assert told.summary == "rank 1 was killed by SIGKILL: out of memory, the limit is 2Gi"
    assert explain(cause, [pod(0, state=RUNNING)]) == cause


@pytest.mark.parametrize("outcome", ["failed", "stopped"])
def test_what_ends_by_a_stop_is_stopped(outcome: str) -> None:
    leader = pod(state=ended(193, message=verdict(outcome, 117, cause=LOST)))
    stop = {"at": 10.0, "reason": "stopped by ann", "now": False}
    end = finished_event(stored(stop=stop), [job()], [leader])
    assert end is not None
    assert (end.outcome, end.exit_code, end.reason) == ("stopped", 143, "stopped by ann")


def test_the_leader_says_which_ranks_a_stop_had_to_kill() -> None:
    told = "stopped by ann; rank 0 still ran after 10 s and was killed"
    leader = pod(state=ended(193, message=verdict("stopped", 143, reason=told)))
    stop = {"at": 10.0, "reason": "stopped by ann", "now": False}
    end = finished_event(stored(stop=stop), [job()], [leader])
    assert end is not None
    assert (end.outcome, end.reason) == ("stopped", told)


def test_what_succeeded_or_failed_before_the_stop_stays_so() -> None:
    stop = {"at": 10.0, "reason": "stopped by ann", "now": False}
    done = pod(state=ended(0, message=verdict("succeeded", 0)))
    failed = pod(state=ended(193, message=verdict("failed", 117, cause=LOST, at=9.0)))
    for leader, outcome in ((done, "succeeded"), (failed, "failed")):
        end = finished_event(stored(stop=stop), [job()], [leader])
        assert end is not None
        assert end.outcome == outcome


def test_a_stop_before_the_start_ends_the_run() -> None:
    stop = stored(stop={"at": 10.0, "reason": "stopped by ann"}, started=False)
    end = finished_event(stop, [], [])
    assert end == Event(kind="finished", at=10.0, outcome="stopped", exit_code=143, reason="stopped by ann")


def test_giving_up_on_a_run_fails_it() -> None:
    words = "image a/b:1 does not exist"
    given_up = stored(stop={"at": 10.0, "reason": words, "outcome": "failed"})
    end = finished_event(given_up, [job("Failed", reason="DeadlineExceeded")], [])
    assert end is not None
    assert end.cause is not None
    assert (end.outcome, end.exit_code, end.cause.summary) == ("failed", 117, words)


def test_a_run_that_is_told_to_stop_goes_on_until_its_leader_has_left() -> None:
    stop = stored(stop={"at": 10.0, "reason": "stopped by ann"})
    assert finished_event(stop, [job()], [pod(state=RUNNING)]) is None


def test_a_run_goes_on_while_its_leader_is_being_replaced() -> None:
    assert finished_event(stored(), [job()], [pod(state=ended(1))]) is None
    assert finished_event(stored(), [job()], []) is None


def test_a_failing_jobs_leader_is_heard_out_unless_its_node_is_gone() -> None:
    failing = job("FailureTarget", reason="FailedIndexes")
    lost = pod(1, state=ended(7))
    leaving = pod(0, state=RUNNING, deletionTimestamp="2026-01-01T00:02:30Z")
    assert finished_event(stored(), [failing], [leaving, lost]) is None
    silent = [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:02:10Z"},
        {"type": "ContainersReady", "status": "True"},
    ]
    gone = pod(0, state=RUNNING, deletionTimestamp="2026-01-01T00:02:30Z", status={"conditions": silent})
    end = finished_event(stored(), [failing], [gone, lost])
    assert end is not None
    assert end.cause is not None
    assert end.cause.summary == "worker 1 was lost: its agent exited with code 7"


def test_a_deleted_pod_is_the_cause_when_nothing_else_is() -> None:
    deleted = pod(0, state=ended(194), deletionTimestamp="2026-01-01T00:01:00Z")
    follower = pod(1, state=ended(195))
    end = finished_event(stored(), [job("Failed")], [deleted, follower])
    assert end is not None
    assert end.cause is not None
    assert end.cause.summary == "worker 0 was lost: its pod was deleted"


def test_a_job_that_was_deleted_takes_the_run_with_it() -> None:
    end = finished_event(stored(), [], [])
    assert end is not None
    assert end.cause is not None
    assert end.outcome == "lost"
    assert end.cause.summary == "its Job was deleted, and the workers with it"
    assert finished_event(stored(started=False), [], []) is None


def test_nothing_is_left_that_says_how_it_ended() -> None:
    failed = job("Failed", reason="PodFailurePolicy")
    end = finished_event(stored(), [failed], [])
    assert end is not None
    assert end.cause is not None
    assert end.outcome == "lost"
    words = "the run ended, and nothing is left that says how (its Job says: PodFailurePolicy)"
    assert end.cause.summary == words


@given(st.text() | st.dictionaries(st.text(), st.text() | st.integers() | st.none()).map(json.dumps))
def test_no_odd_stop_breaks_the_reading(text: str) -> None:
    stop = stored(stop=text).stop
    assert (stop is None) == (not text)


# Jobs


def test_several_jobs_end_together() -> None:
    first, second = job("Complete"), job("SuccessCriteriaMet")
    assert end_of_jobs([]) is None
    assert end_of_jobs([job(), first]) is None
    end = end_of_jobs([first, second])
    assert end is not None
    assert (end.outcome, end.final) == ("complete", False)
    failed = end_of_jobs([first, job("Failed", "FailureTarget", reason="FailedIndexes")])
    assert failed is not None
    assert (failed.outcome, failed.reason, failed.final) == ("failed", "FailedIndexes", True)


# The row among others


@pytest.mark.parametrize(
    ("about", "jobs", "pods", "state", "reason"),
    [
        ({"started": False}, [], [], "recorded", None),
        (
            {"started": False, "queued": [{"at": 1, "reason": "waiting for 2 GPUs"}]},
            [],
            [],
            "queued",
            "waiting for 2 GPUs",
        ),
        ({"started": False, "queued": "}{"}, [], [], "recorded", None),
        (
            {},
            [job(suspend=True)],
            [],
            "queued",
            "its Job is suspended, and goes on when that is undone",
        ),
        ({}, [job()], [], "starting", None),
        ({}, [job()], [pod(0, state=RUNNING), pod(1, state=WAITING)], "starting", None),
        ({}, [job()], [pod(0, state=RUNNING), pod(1, state=RUNNING)], "running", None),
        ({}, [job()], [pod(0, state=RUNNING), pod(1, state=ended(0))], "running", None),
        (
            {},
            [job()],
            [pod(0, state=RUNNING), pod(1, state=ended(137))],
            "restarting",
            "worker 1 was lost: its agent was killed by SIGKILL",
        ),
        (
            {},
            [job()],
            [
                pod(0, state=ended(GAVE_WAY, message=json.dumps({"reason": "it gave way"}))),
                pod(1, state=WAITING),
            ],
            "starting",
            "it gave way",
        ),
        (
            {},
            [job()],
            [pod(0, state=RUNNING), pod(1, state=ended(GAVE_WAY, message=json.dumps({"reason": "why"})))],
            "starting",
            "why",
        ),
        (
            {"stop": {"at": 10.0, "reason": "stopped by ann"}},
            [job()],
            [pod(0, state=RUNNING)],
            "stopping",
            "stopped by ann",
        ),
        ({}, [job("FailureTarget")], [pod(0, state=RUNNING)], "stopping", None),
        ({}, [job("Complete")], [], "succeeded", None),
    ],
)
def test_the_row_of_a_run(
    about: dict[str, Any], jobs: list[Object], pods: list[Pod], state: str, reason: str | None
) -> None:
    row = stand(stored(**about), jobs, pods)
    assert (row.state, row.reason) == (state, reason)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_no_verdict_of_odd_parts_breaks_the_reading(part: object) -> None:
    message = json.dumps({"outcome": "failed", "exit_code": part, "cause": part, "reason": part, "at": part})
    end = finished_event(stored(), [job()], [pod(state=ended(193, message=message))])
    assert end is not None
    assert end.outcome == "failed"
