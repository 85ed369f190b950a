"""Jobs of Kubeflow's controllers and their pods, as runs: conditions, replica types, labels of two ages."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.watched.kinds import labels_of, parse_address, selector
from echelon.engines.kubernetes.watched.state import events_of, record_of, see
from echelon.errors import InvalidJob
from echelon.model.run import RunRef, opening_status, parse_uri
from echelon.model.status import Status, fold

PREFIX = "training.kubeflow.org/"


def job(*conditions: str, kind: str = "pytorch", **more: Any) -> dict[str, Any]:
    held = [
        {"type": name, "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z", "message": f"{name}."}
        for name in conditions
    ]
    specs = {"Worker": {"replicas": 2}, "Master": {"replicas": 1}}
    return {
        "metadata": {
            "name": "mnist",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **more.pop("metadata", {}),
        },
        "spec": {f"{kind}ReplicaSpecs": specs, **more.pop("spec", {})},
        "status": {"startTime": "2026-01-01T00:00:05Z", "conditions": held, **more},
    }


def pod(
    role: str, index: int, state: dict[str, Any], *, old: bool = False, restarts: int = 0
) -> dict[str, Any]:
    prefix = "" if old else PREFIX
    labels = {f"{prefix}replica-type": role, f"{prefix}replica-index": str(index)}
    phase = {"running": "Running", "waiting": "Pending"}.get(next(iter(state)), "Failed")
    if "terminated" in state and state["terminated"]["exitCode"] == 0:
        phase = "Succeeded"
    statuses = [
        {"name": "istio-proxy", "state": {"running": {}}},
        {"name": "pytorch", "state": state, "restartCount": restarts},
    ]
    return {
        "metadata": {
            "name": f"mnist-{role}-{index}",
            "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:06Z",
        },
        "spec": {
            "nodeName": "node-a",
            "containers": [
                {"name": "istio-proxy", "image": "istio"},
                {"name": "pytorch", "image": "my/torch:2", "command": ["python"], "args": ["train.py"]},
            ],
        },
        "status": {"phase": phase, "startTime": "2026-01-01T00:00:07Z", "containerStatuses": statuses},
    }


def ended(code: int, at: str = "2026-01-01T00:00:30Z", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": at, **more}}


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:08Z"}}
PODS = [pod("worker", 1, RUNNING), pod("master", 0, RUNNING), pod("worker", 0, RUNNING)]


def status(job: dict[str, Any], pods: list[dict[str, Any]]) -> Status:
    address = parse_address("pytorchjob/mnist")
    seen = see(address, job, typed(Pod, pods))
    ref = RunRef(engine="k8s", name="pytorchjob/mnist", namespace="team")
    return fold(opening_status(record_of(ref, seen)), events_of(seen))


def test_the_master_is_rank_0_and_the_workers_follow() -> None:
    found = status(job("Created", "Running"), PODS)
    assert (found.state, found.framework, found.image) == ("running", "torchrun", "my/torch:2")
    assert found.command == "python train.py"
    assert [(each.role, each.ranks, each.state, each.node) for each in found.workers] == [
        ("master", (0,), "running", "node-a"),
        ("worker", (1,), "running", "node-a"),
        ("worker", (2,), "running", "node-a"),
    ]
    assert found.uri == "k8s://team/pytorchjob/mnist"


def test_labels_of_older_releases() -> None:
    pods = [
        pod(role, index, RUNNING, old=True) for role, index in (("master", 0), ("worker", 0), ("worker", 1))
    ]
    assert status(job("Running"), pods).state == "running"
    labels = labels_of(parse_address("tfjob/mnist").kind)
    assert "job-name=mnist,group-name=kubeflow.org" in [selector(label, "mnist") for label in labels]


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        (("Created",), "starting"),
        (("Created", "Running"), "running"),
        (("Created", "Restarting"), "running"),
        (("Created", "Succeeded"), "succeeded"),
        (("Created", "Failed"), "failed"),
        (("Created", "Suspended"), "queued"),
    ],
)
def test_states(conditions: tuple[str, ...], state: str) -> None:
    pods = PODS if state == "running" else []
    assert status(job(*conditions), pods).state == state


def test_a_restart_is_counted() -> None:
    waits = pod("master", 0, {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=2)
    found = status(job("Created", "Restarting"), [waits])
    assert (found.state, found.restarts, found.reason) == ("restarting", 2, "Restarting")


def test_the_pod_that_failed_first_is_the_cause() -> None:
    pods = [
        pod("master", 0, ended(1, "2026-01-01T00:00:40Z")),
        pod("worker", 0, ended(137, "2026-01-01T00:00:30Z", reason="OOMKilled")),
        pod("worker", 1, ended(0, "2026-01-01T00:00:20Z")),
    ]
    found = status(job("Failed", completionTime="2026-01-01T00:00:50Z"), pods)
    assert (found.state, found.exit_code) == ("failed", 137)
    assert found.root_cause is not None
    assert (found.root_cause.rank, found.root_cause.signal) == (1, "SIGKILL")
    assert found.reason == "rank 1 (mnist-worker-0) failed first: it ran out of memory"
    assert [each.state for each in found.workers] == ["failed", "failed", "done"]


def test_a_job_that_failed_and_whose_pods_are_gone_has_the_controllers_reason() -> None:
    found = status(job("Failed"), [])
    assert (found.state, found.reason, found.exit_code) == ("failed", "Failed", 1)


def test_a_job_that_was_stopped_here_is_over_and_another_suspended_one_waits() -> None:
    stopped = job("Suspended", metadata={"annotations": {names.STOPPED: "2026-01-01T00:02:00+00:00"}})
    assert status(stopped, []).state == "stopped"
    assert status(job(spec={"runPolicy": {"suspend": True}}), []).state == "queued"


def test_addresses() -> None:
    ref = parse_uri("k8s://team/pytorchjob/mnist?context=far", "local")
    assert (ref.name, ref.namespace, ref.context) == ("pytorchjob/mnist", "team", "far")
    assert str(ref) == "k8s://team/pytorchjob/mnist?context=far"
    with pytest.raises(InvalidJob, match="'job/mnist' names no kind of job"):
        parse_address("job/mnist")


def test_a_trainjob_is_a_jobset() -> None:
    address = parse_address("trainjob/mnist")
    pods = []
    for index in (0, 1):
        each = pod("node", index, RUNNING)
        each["metadata"]["labels"] = {
            "jobset.sigs.k8s.io/jobset-name": "mnist",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        pods.append(each)
    train = {**job(), "spec": {"trainer": {"numNodes": 2}}}
    seen = see(address, train, typed(Pod, pods))
    assert (seen.groups, list(seen.pods)) == ((("node", 2),), [0, 1])
    done = see(address, {**job("Complete"), "spec": {}}, [])
    assert events_of(done)[-1].outcome == "succeeded"


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "x",
        {"pytorchReplicaSpecs": {"Master": None}},
        {"pytorchReplicaSpecs": {"Worker": {"replicas": "x"}}},
    ],
)
def test_objects_that_are_not_as_they_should_be(spec: Any) -> None:
    strange = pod("worker", 0, RUNNING)
    strange["metadata"]["labels"][f"{PREFIX}replica-index"] = "999999999"
    assert len(status({**job("Running"), "spec": spec}, [strange]).workers) < 3
