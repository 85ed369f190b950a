"""Runs as Kubeflow's client shows them."""

from __future__ import annotations

import pytest

from echelon.kubeflow.labels import Replica, labels_of
from echelon.kubeflow.sdk.describe import conditions_of, conditions_shown, line_of, replicas_of
from echelon.model.status import Status

OWN = ['  File "/home/ann/train.py", line 9, in train', "    raise KeyError(name)", "KeyError: 'x'"]
LIBRARY = ['  File "/usr/lib/python3/dist-packages/torch/nn.py", line 3, in forward', "    return f(x)"]
BEGIN = "Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ([], None),
        (["killed"], None),
        ([BEGIN, *OWN], "line 9 of train.py, in train: raise KeyError(name)"),
        ([BEGIN, *OWN[:2], *LIBRARY, "ValueError"], "line 9 of train.py, in train: raise KeyError(name)"),
        ([BEGIN, *LIBRARY, "ValueError"], "line 3 of nn.py, in forward: return f(x)"),
        ([BEGIN, *LIBRARY, "E", "", "During:", "", BEGIN, *OWN], "line 9 of train.py, in train: raise KeyE"),
        ([f"[rank1]:{each}" for each in (BEGIN, *OWN)], "line 9 of train.py, in train: raise KeyError(name)"),
        ([OWN[0].replace("ann", ".echelon"), OWN[1]], "in train: raise KeyError(name)"),
        (['  File "train.py", line 2', "    x = (", "SyntaxError"], "line 2 of train.py, in train.py: x = ("),
        ([OWN[0]], "line 9 of train.py, in train"),
    ],
)
def test_the_innermost_line_of_the_users_own(tail: list[str], expected: str | None) -> None:
    found = line_of(tail)
    assert found is not None if expected else found is None
    assert (found or "").startswith(expected or "")


@pytest.mark.parametrize(
    ("kind", "roles", "expected"),
    [
        ("PyTorchJob", ["worker"] * 3, ["Master 0", "Worker 0", "Worker 1"]),
        ("PyTorchJob", ["chief", "worker"], ["Master 0", "Worker 0"]),
        (
            "TFJob",
            ["chief", "worker", "worker", "ps", "evaluator"],
            ["Chief 0", "Worker 0", "Worker 1", "PS 0", "Evaluator 0"],
        ),
        ("MPIJob", ["launcher", "worker", "worker"], ["Launcher 0", "Worker 0", "Worker 1"]),
    ],
)
def test_workers_are_numbered_as_kubeflow_does(kind: str, roles: list[str], expected: list[str]) -> None:
    assert [f"{each.type} {each.index}" for each in replicas_of(kind, roles)] == expected


def test_labels_are_those_of_the_training_operator() -> None:
    assert labels_of("PyTorchJob", "a", Replica(type="Master", index=0, worker=0)) == {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "a",
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }
    worker = labels_of("PyTorchJob", "a", Replica(type="Worker", index=2, worker=3))
    assert "training.kubeflow.org/job-role" not in worker


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"state": "queued", "reason": "no room"}, ["Created True", "Suspended True"]),
        ({"state": "starting"}, ["Created True"]),
        ({"state": "running", "started": 2.0, "training_since": 2.0}, ["Created True", "Running True"]),
        (
            {"state": "restarting", "started": 2.0, "training_since": 2.0, "restarts": 1},
            ["Created True", "Restarting True", "Running False"],
        ),
        (
            {"state": "running", "started": 2.0, "training_since": 3.0, "restarts": 1},
            ["Created True", "Restarting False", "Running True"],
        ),
        (
            {"state": "succeeded", "started": 2.0, "training_since": 2.0, "ended": 3.0},
            ["Created True", "Running False", "Succeeded True"],
        ),
        ({"state": "failed", "ended": 3.0, "reason": "rank 1 exited 1"}, ["Created True", "Failed True"]),
        ({"state": "stopped", "ended": 3.0}, ["Created True", "Suspended True"]),
    ],
)
def test_conditions_are_kubeflows(status: dict[str, object], expected: list[str]) -> None:
    found = list(conditions_of("PyTorchJob", Status(name="a", uri="local://a", created=1.0, **status)))  # type: ignore[arg-type]
    assert [f"{each['type']} {each['status']}" for each in found] == expected
    assert found[0]["reason"] == "PyTorchJobCreated"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"state": "running", "training_since": 2.0}, []),
        ({"state": "succeeded", "ended": 3.0}, ["Complete True"]),
        ({"state": "failed", "ended": 3.0}, ["Failed True"]),
        ({"state": "queued"}, ["Suspended True"]),
    ],
)
def test_a_train_job_shows_the_conditions_of_trainer(state: dict[str, object], expected: list[str]) -> None:
    found = conditions_shown("TrainJob", Status(name="a", uri="local://a", created=1.0, **state))  # type: ignore[arg-type]
    assert [f"{each['type']} {each['status']}" for each in found] == expected
