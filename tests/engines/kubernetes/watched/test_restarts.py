"""Restarts of jobs whose controllers have no condition for them: what their pods say."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.kubernetes.typed import typed
from tests.engines.kubernetes.watched.test_state import RUNNING, ended, job
from tests.engines.kubernetes.watched.test_state import pod as operators_pod

from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.watched.kinds import parse_address
from echelon.engines.kubernetes.watched.restarts import Replacements
from echelon.engines.kubernetes.watched.state import events_of, record_of, see, with_replaced
from echelon.model.run import RunRef, opening_status
from echelon.model.status import Status, fold

Object = dict[str, Any]
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


def pod(labels: dict[str, str], state: Object, *, made: int = 0, restarts: int = 0) -> Object:
    over = {True: "Failed", False: "Running"}["terminated" in state]
    return {
        "metadata": {
            "name": f"mnist-{made}",
            "labels": labels,
            "creationTimestamp": f"2026-01-01T00:00:{made:02}Z",
        },
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "my/mpi:4"}]},
        "status": {
            "phase": over,
            "startTime": f"2026-01-01T00:00:{made:02}Z",
            "containerStatuses": [{"name": "main", "state": state, "restartCount": restarts}],
        },
    }


def launcher(state: Object, **more: Any) -> Object:
    return pod({"training.kubeflow.org/job-role": "launcher"}, state, **more)


def worker(index: int, **more: Any) -> Object:
    labels = {
        "training.kubeflow.org/job-role": "worker",
        "training.kubeflow.org/replica-index": str(index),
    }
    return pod(labels, RUNNING, **more)


def node(state: Object, *, attempt: int = 0, **more: Any) -> Object:
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": "0",
    }
    return pod(labels, state, **more)


def mpi(*conditions: str, **spec: Any) -> Object:
    specs = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    return {**job(*conditions), "spec": {"mpiReplicaSpecs": specs, **spec}}


def train(*conditions: str) -> Object:
    return {**job(*conditions), "spec": {"trainer": {"numNodes": 1}}}


def status(word: str, job: Object, *pods: Object, attempts: int = 0) -> Status:
    seen = see(parse_address(f"{word}/mnist"), job, typed(Pod, pods), attempts=attempts)
    ref = RunRef(engine="k8s", name=f"{word}/mnist", namespace="team")
    return fold(opening_status(record_of(ref, seen)), events_of(seen))


WORKERS = (worker(0), worker(1))


@pytest.mark.parametrize(
    ("pods", "state", "restarts"),
    [
        ((launcher(RUNNING),), "running", 0),
        ((launcher(ended(1)),), "restarting", 1),
        ((launcher(ended(1)), launcher(RUNNING, made=9)), "running", 1),
        ((launcher(ended(1)), launcher(ended(1), made=9)), "restarting", 2),
        ((launcher(BACK_OFF, restarts=2),), "restarting", 2),
        ((launcher(RUNNING, restarts=3),), "running", 3),
    ],
)
def test_a_launcher(pods: tuple[Object, ...], state: str, restarts: int) -> None:
    found = status("mpijob", mpi("Created", "Running"), *WORKERS, *pods)
    assert (found.state, found.restarts) == (state, restarts)
    assert found.restarts_allowed >= found.restarts


def test_a_job_that_is_over_restarts_no_more() -> None:
    found = status("mpijob", mpi("Failed"), launcher(ended(1)), launcher(ended(3), made=9))
    assert (found.state, found.restarts, found.exit_code) == ("failed", 1, 3)


def test_a_jobset_that_starts_over_and_the_pods_of_its_last_attempt() -> None:
    old = node(ended(1))
    assert status("trainjob", train(), old).state == "restarting"
    for pods, state in (
        ((old,), "restarting"),
        ((), "restarting"),
        ((old, node(RUNNING, attempt=1, made=9)), "running"),
    ):
        found = status("trainjob", train(), *pods, attempts=1)
        assert (found.state, found.restarts) == (state, 1)
    found = status("trainjob", train("Complete"), node(ended(0), attempt=2, made=9), attempts=2)
    assert (found.state, found.restarts) == ("succeeded", 2)


def test_workers_are_numbered_from_1_beside_a_launcher_that_is_one_of_them() -> None:
    wanted = mpi("Running", runLauncherAsWorker=True)
    found = status("mpijob", wanted, launcher(RUNNING), worker(1), worker(2))
    assert found.state == "running"
    assert [(each.role, each.ranks) for each in found.workers] == [
        ("launcher", (0,)),
        ("worker", (1,)),
        ("worker", (2,)),
    ]


# Pods that the training operator replaces: another of the same name, and no number


def replaced(*looks: tuple[Object, list[str]]) -> list[Status]:
    """How a PyTorchJob stands to a process that follows it, look after look: its object, and the uids of its
    pods.
    """
    known, found = Replacements(), []
    for made, uids in looks:
        pods = [operators_pod("master" if not at else "worker", max(0, at - 1), RUNNING) for at in range(3)]
        for each, uid in zip(pods, uids, strict=False):
            each["metadata"]["uid"] = uid
        seen = with_replaced(
            see(parse_address("pytorchjob/mnist"), made, typed(Pod, pods[: len(uids)])), known
        )
        ref = RunRef(engine="k8s", name="pytorchjob/mnist", namespace="team")
        found.append(fold(opening_status(record_of(ref, seen)), events_of(seen)))
    return found


def test_a_follower_numbers_pods_that_the_operator_replaces() -> None:
    now = job("Created", "Running")
    stand = replaced(
        (now, ["a", "b", "c"]), (now, ["a", "b"]), (now, ["a", "b", "d"]), (now, ["a", "e", "f"])
    )
    assert [each.restarts for each in stand] == [0, 0, 1, 3]
    assert stand[-1].state == "running"


def test_pods_of_a_job_that_goes_on_after_it_was_suspended_replace_none() -> None:
    now = job("Created", "Running")
    held = job("Suspended", spec={"runPolicy": {"suspend": True}})
    assert [
        each.restarts for each in replaced((now, ["a", "b", "c"]), (held, []), (now, ["d", "e", "f"]))
    ] == [
        0,
        0,
        0,
    ]
