"""Single pods: which worker, whether it runs, how it ended or was lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testbed.kubectl import Object
from tests.engines.kubernetes.small import RUNNING, WAITING, ended, pod
from tests.engines.kubernetes.taken import load

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import clock, moment
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.outcome import verdict_of
from echelon.engines.kubernetes.state.workers import (
    container_end,
    disruption_of,
    has_ended,
    has_started,
    is_running,
    leader_pods,
    loss_of,
    pods_by_worker,
    released,
    worker_of,
)

# Pods


def how(one: Pod) -> str | None:
    loss = loss_of(one)
    return None if loss is None else loss.how


def test_a_pods_worker_is_its_jobs_first_and_its_own_index() -> None:
    assert worker_of(pod(3)) == 3
    assert worker_of(pod(5, first=4)) == 5
    assert worker_of(pod(2, labels={names.COMPLETION_INDEX: "2"}, annotations=None)) == 2


def test_incarnations_come_oldest_first() -> None:
    old = pod(0, made="2026-01-01T00:00:00Z", name="demo-0-zzzzz")
    new = pod(0, made="2026-01-01T00:00:20Z", name="demo-0-aaaaa")
    other = pod(1)
    found = pods_by_worker([other, new, old])
    assert list(found) == [0, 1]
    assert found[0] == [old, new] == leader_pods([new, other, old])


def test_incarnations_of_the_same_second_come_by_their_failures() -> None:
    notes = {names.COMPLETION_INDEX: "0", names.FAILURE_COUNT: "1"}
    first, second = pod(0, name="demo-0-z"), pod(0, name="demo-0-a", annotations=notes)
    assert leader_pods([second, first]) == [first, second]


@pytest.mark.parametrize(
    ("state", "started", "over", "runs"),
    [
        (None, False, False, False),
        (WAITING, False, False, False),
        (RUNNING, True, False, True),
        (ended(0, reason="Completed"), True, True, False),
        (ended(1), True, True, False),
    ],
)
def test_a_container_starts_runs_and_ends(
    state: Object | None, started: bool, over: bool, runs: bool
) -> None:
    one = pod(state=state)
    assert (has_started(one), has_ended(one), is_running(one)) == (started, over, runs)


def test_a_container_whose_command_could_not_start_has_no_log() -> None:
    (one,) = load("start-no-python").read_pods()
    assert has_ended(one)
    assert not has_started(one)


def test_a_pod_that_is_told_to_leave_does_not_count_as_running() -> None:
    assert not is_running(pod(state=RUNNING, deletionTimestamp="2026-01-01T00:01:00Z"))


def test_a_pod_that_failed_without_a_container_has_ended() -> None:
    one = pod(status={"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough cpu"})
    assert has_ended(one)
    assert container_end(one) is None
    assert how(one) == "its node node-a would not run it: Node didn't have enough cpu"


def test_a_container_killed_by_a_signal_says_which() -> None:
    end = container_end(pod(state=ended(137)))
    assert end is not None
    assert (end.exit_code, end.signal, end.at) == (137, "SIGKILL", moment("2026-01-01T00:01:00Z"))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"a"', '{"outcome": "merry"}', '{"outcome": 3}'])
def test_a_verdict_that_is_none_is_not_taken_for_one(text: str) -> None:
    assert verdict_of([pod(state=ended(193, message=text))]) is None


@given(st.text())
def test_no_termination_message_breaks_the_reading(text: str) -> None:
    one = pod(state=ended(1, message=text))
    assert verdict_of([one]) is None or "outcome" in text
    assert loss_of(one) is not None


# Losses: each on a real pod


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("oom", "it ran out of memory: the limit is 32Mi"),
        ("lost-drained", "it was evicted from its node node-c, as when the node is drained"),
        (
            "lost-evicted",
            'it was evicted from its node {node}: Usage of EmptyDir volume "data" exceeds the limit "1Mi"',
        ),
        ("lost-exit-code", "its agent exited with code 7"),
        ("lost-node", "its node node-c was lost (no response since {since})"),
        ("lost-node-silent", "its node node-c was lost (no response since {since})"),
        ("lost-preempted", "it was preempted on its node node-a by a pod of higher priority"),
        ("lost-sent-away", "it was sent away from its node node-c (a NoExecute taint)"),
        (
            "start-no-python",
            'its container could not start: exec: "python9": executable file not found in $PATH',
        ),
        ("image-not-found", None),
        ("unschedulable-cpu", None),
    ],
)
def test_how_a_worker_was_lost(name: str, words: str | None) -> None:
    (one,) = load(name).read_pods()
    ready = one.status.condition("Ready")
    since = clock(ready.last_transition_time if ready else None)
    chance = {"{since}": since, "{node}": one.spec.node_name}
    for mark, found in chance.items():
        words = words and words.replace(mark, found)
    assert how(one) == words


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lost-drained", "drained"),
        ("lost-preempted", "preempted"),
        ("lost-sent-away", "tainted"),
        ("lost-exit-code", None),
        ("lost-evicted", None),  # for a volume that the run itself has filled
        ("oom", None),
    ],
)
def test_a_worker_that_was_well_and_taken_away(name: str, kind: str | None) -> None:
    (one,) = load(name).read_pods()
    assert disruption_of(loss_of(one)) == kind


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ended(0, reason="Completed"), None),
        (ended(193), None),
        (ended(194), "its node node-a told it to leave (SIGTERM)"),
        (ended(198), "its node node-a told it to leave (SIGTERM)"),
        (ended(195), "it waited in vain for worker 0"),
        (ended(1), "its agent exited with code 1"),
        (ended(137), "its agent was killed by SIGKILL"),
        (
            ended(1, message='{"reason": "no such file: task.json"}'),
            "its agent exited with code 1: no such file: task.json",
        ),
        (ended(137, reason="OOMKilled"), "it ran out of memory: its node has no more"),
        (ended(137, reason="ContainerStatusUnknown"), "its node node-a was restarted under it"),
    ],
)
def test_what_an_agents_exit_code_says(state: Object, words: str | None) -> None:
    assert how(pod(state=state)) == words


def test_an_agent_that_left_because_its_pod_was_deleted() -> None:
    one = pod(state=ended(194), deletionTimestamp="2026-01-01T00:01:00Z")
    assert how(one) == "its pod was deleted"
    assert how(pod(state=RUNNING, deletionTimestamp="2026-01-01T00:01:00Z")) == "its pod was deleted"


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (
            {"reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"},
            "its node node-a was removed from the cluster",
        ),
        (
            {
                "reason": "TerminationByKubelet",
                "message": "Pod was terminated in response to imminent node shutdown.",
            },
            "its node node-a ended it: Pod was terminated in response to imminent node shutdown",
        ),
        (
            {"reason": "SomethingNew", "message": "for a reason to come."},
            "it was taken off its node node-a: for a reason to come",
        ),
    ],
)
def test_disruptions_that_the_testbed_does_not_bring_about(condition: Object, words: str) -> None:
    """The messages are those of Kubernetes' own source."""
    found = [{"type": "DisruptionTarget", "status": "True", **condition}]
    assert how(pod(state=ended(137), status={"conditions": found})) == words


def test_gpus_are_free_when_the_last_worker_has_left() -> None:
    """A worker that lingers, or whose end nobody saw, leaves that open."""
    early, late = (
        pod(0, state=ended(0, at="2026-01-01T00:01:00Z")),
        pod(1, state=ended(0, at="2026-01-01T00:01:07Z")),
    )
    assert released([early, late]) == moment("2026-01-01T00:01:07Z")
    assert released([early, pod(1, state=RUNNING)]) is None
    assert released([early, pod(1, status={"phase": "Failed"})]) is None
    assert released([]) is None
