"""Whether a run is over and how, from all that may be known of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.small import RUNNING, WAITING, ended, job, pod, stored

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state.outcome import finished_event
from echelon.engines.kubernetes.state.standing import Evidence, Standing, Told, standing, told_end
from echelon.model.event import Event


def stand(
    found: Stored, jobs: Sequence[Object], pods: Sequence[Pod], waiting: Sequence[Object] = ()
) -> Standing:
    return standing(Evidence(stored=found, jobs=jobs, pods=pods, waiting=waiting), 1e9)


def settled(
    found: Stored, jobs: Sequence[Object], pods: Sequence[Pod], waiting: Sequence[Object] = ()
) -> Event | None:
    return stand(found, jobs, pods, waiting).end


def verdict(outcome: str, code: int, **more: object) -> str:
    return json.dumps({"outcome": outcome, "exit_code": code, **more})


# Ends that a record has, and that anybody may have written
SAID = {
    "kind": "finished",
    "at": 5.0,
    "outcome": "succeeded",
    "exit_code": 0,
    "reason": "as the record has it",
}
CUT_OFF = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]


@pytest.mark.parametrize(
    ("jobs", "pods"),
    [
        ([job()], [pod(state=RUNNING)]),
        ([job()], [pod(state=WAITING)]),
        ([job()], [pod(state=ended(137)), pod(1, state=RUNNING)]),
        ([job()], [pod(state=RUNNING, status={"conditions": CUT_OFF}), pod(1, state=RUNNING)]),
        ([job()], []),  # its pods are yet to come
        ([job()], [pod(state=ended(137))]),  # another one comes
        ([], [pod(state=RUNNING)]),
    ],
)
def test_an_end_in_the_record_of_a_run_that_goes_on_is_none(jobs: list[Object], pods: list[Pod]) -> None:
    assert settled(stored(end=SAID), jobs, pods) is None


def test_an_end_in_the_record_of_a_run_that_waits_is_none() -> None:
    assert settled(stored(end=SAID, started=False), [], [], [job(suspend=True)]) is None


def replacing(state: Object) -> Pod:
    """The pod of worker 0 after one that was lost."""
    return pod(state=state, annotations={names.COMPLETION_INDEX: "0", names.FAILURE_COUNT: "1"})


def test_a_pod_that_has_replaced_another_shows_that_the_run_goes_on_once_it_runs() -> None:
    assert settled(stored(end=SAID), [job()], [replacing(RUNNING)]) is None


@pytest.mark.parametrize(
    ("jobs", "pods"),
    [
        ([], []),  # all of it is gone
        ([job("Complete")], []),
        ([job("Failed")], []),  # as after its leader was lost while it kept its results
        ([job()], [pod(state=ended(0, message=verdict("succeeded", 0)))]),
        ([job()], [pod(state=RUNNING, status={"conditions": CUT_OFF})]),  # nobody can be asked
        ([job()], [replacing(WAITING)]),  # a pod that comes for the one which told the end
    ],
)
def test_the_record_tells_most_of_an_end_that_nothing_denies(jobs: list[Object], pods: list[Pod]) -> None:
    end = settled(stored(end=SAID), jobs, pods)
    assert end is not None
    assert end.reason == "as the record has it"


@pytest.mark.parametrize("condition", ["FailureTarget", "Failed"])
def test_a_leader_that_is_deleted_before_it_says_anything_changes_no_end(condition: str) -> None:
    """The first one was deleted by force. While it is replaced, the others tell the end and are fetched, and
    the Job is ended: its pods leave.
    """
    notes = {names.COMPLETION_INDEX: "0", names.FAILURE_COUNT: "0", names.EVICTION_COUNT: "1"}
    leader = pod(state=RUNNING, annotations=notes, deletionTimestamp="2026-01-01T00:02:30Z")
    jobs = [job(condition, reason="DeadlineExceeded")]
    lost = {**SAID, "outcome": "failed", "exit_code": 117}
    known = Evidence(stored=stored(end=lost), jobs=jobs, pods=[leader])
    found = standing(replace(known, asked=frozenset({"leader", "peers", "keeper"})), 1e9)
    assert (found.state, found.end and found.end.exit_code, found.lacks) == ("failed", 117, ())


def test_a_leader_that_came_when_the_others_had_left_does_not_say_how_it_ended() -> None:
    """The first one was deleted by force while it kept results, with all that it had told."""
    absent = {"kind": "worker-absent", "summary": "worker 1 did not come", "worker": 1, "exit_code": 117}
    leader = replacing(ended(193, message=verdict("failed", 117, cause=absent)))
    known = stand(stored(end=SAID), [job("Failed", reason="PodFailurePolicy")], [leader])
    assert (known.state, known.doubt) == ("succeeded", "its Job failed (PodFailurePolicy)")
    assert stand(stored(), [job("Failed")], [leader]).lacks, "the others, or a keeper, may know better"


def test_how_it_ended_is_the_leaders_to_say() -> None:
    leader = pod(state=ended(193, message=verdict("failed", 3, reason="rank 1 exited with code 3")))
    end = settled(stored(end=SAID), [job("Failed")], [leader])
    assert end is not None
    assert (end.outcome, end.exit_code, end.reason) == ("failed", 3, "rank 1 exited with code 3")


def test_without_an_end_in_the_record_the_objects_tell() -> None:
    leader = pod(state=ended(0, message=verdict("succeeded", 0)))
    assert settled(stored(), [job()], [leader]) == finished_event(stored(), [job()], [leader])
    assert settled(stored(), [job()], [pod(state=RUNNING)]) is None


@pytest.mark.parametrize(
    ("said", "jobs", "outcome"),
    [
        ("failed", [job("Complete")], "succeeded"),  # its workers have done their part
        ("succeeded", [job("Failed", reason="PodFailurePolicy")], "lost"),
        ("failed", [job("Failed", reason="PodFailurePolicy")], "failed"),
        ("succeeded", [job("Failed", reason="DeadlineExceeded")], "succeeded"),  # ended while it kept results
    ],
)
def test_a_job_that_contradicts_the_record_is_believed(said: str, jobs: list[Object], outcome: str) -> None:
    end = settled(stored(end={**SAID, "outcome": said}), jobs, [])
    assert end is not None
    assert end.outcome == outcome


@pytest.mark.parametrize(
    ("about", "jobs", "pods", "why"),
    [
        ({}, [], [], "its Jobs and pods are gone"),
        ({"stop": {"at": 1.0, "reason": "by ann"}}, [], [], "its Jobs and pods are gone"),
        ({}, [job("Complete")], [], ""),
        ({}, [job("Failed", reason="Some")], [], "its Job failed (Some)"),
        ({}, [job("Failed")], [pod(state=ended(0, message=verdict("succeeded", 0)))], ""),
    ],
)
def test_what_nothing_but_the_record_tells(
    about: dict[str, Any], jobs: list[Object], pods: list[Pod], why: str
) -> None:
    assert stand(stored(end=SAID, **about), jobs, pods).doubt == why


def test_a_run_that_was_stopped_before_it_began_has_no_other_end() -> None:
    stop = {"at": 1.0, "reason": "by ann"}
    end = settled(stored(end=SAID, started=False, stop=stop), [], [])
    assert end is not None
    assert end.outcome == "stopped"
    assert stand(stored(end={**SAID, "outcome": "stopped"}, started=False, stop=stop), [], []).doubt == ""


LACKS = "worker 1: the log of rank 1 lacks lines: No space left on device"


@pytest.mark.parametrize("stop", [None, {"at": 10.0, "reason": "stopped by ann"}])
def test_an_end_says_which_output_lacks_lines(stop: object) -> None:
    """By the leader's termination message, by its log, and beside what was not fetched."""
    outcome, code = ("stopped", 143) if stop else ("succeeded", 0)
    found = stored(**({"stop": stop} if stop else {}))
    leader = pod(
        state=ended(0 if not stop else 193, message=verdict(outcome, code, at=20.0, missing=[LACKS]))
    )
    done = job("Complete" if not stop else "Failed")
    end = settled(found, [done], [leader])
    assert end is not None
    assert (end.outcome, end.missing) == (outcome, (LACKS,))
    said = Event(kind="verdict", at=20.0, outcome=end.outcome, exit_code=code, missing=(LACKS,))
    told = Told(has_lines=True, over=True, verdict=said, ended_at=21.0)
    end = standing(Evidence(stored=found, jobs=[done], told=told), 1e9).end
    assert end is not None
    assert (end.outcome, end.missing) == (outcome, (LACKS,))


def test_what_was_not_fetched_is_missing_beside_output_that_lacks_lines() -> None:
    lost = "worker 0: its files not fetched: its pod is gone"
    found = stored(collected={"at": 5.0, "host": "ann", "path": "/runs/demo", "missing": [lost, LACKS]})
    over = Standing(state="succeeded", end=Event(kind="finished", at=4.0, missing=(LACKS,)))
    end = told_end(over, found)
    assert end is not None
    assert end.missing == (LACKS, lost)
