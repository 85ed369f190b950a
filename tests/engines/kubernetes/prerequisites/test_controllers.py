"""A kind that the cluster does not have is refused by a read; one that has no controller, by its silence."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.prerequisites import controllers
from echelon.errors import Unavailable
from echelon.model.meaning import to_job
from echelon.model.settings import Settings

JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "fm", "uid": "1-2"},
    "spec": {},
}
CREATED = {"conditions": [{"type": "Created", "status": "True"}]}
SERVED = {
    "kind": "APIResourceList",
    "resources": [
        {"name": "pytorchjobs", "kind": "PyTorchJob", "namespaced": True},
        {"name": "xgboostjobs", "kind": "XGBoostJob", "namespaced": True},
    ],
}


@pytest.fixture
def api(access: Access, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr(controllers, "TAKEN_UP", 0.3)
    monkeypatch.setattr(controllers, "_LOOK", 0.01)
    return Api(access, "ours", patience=0.1)


def answers(stand_in: StandIn, *found: dict[str, Any]) -> list[tuple[str, str]]:
    """Serve a job in these states, one after another and then the last; what was deleted."""
    states, deleted = list(found), []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        name = handler.path.partition("?")[0].rpartition("/")[2]
        if handler.path.endswith("/apis/kubeflow.org/v1"):
            says(200, SERVED)(handler)
        elif handler.command == "DELETE":
            deleted.append((name, handler.path))
            says(200, {"kind": "Status", "status": "Success"})(handler)
        else:
            says(200, states.pop(0) if len(states) > 1 else states[0])(handler)

    stand_in.answer_with(answer)
    return deleted


def test_a_cluster_that_does_not_know_the_kind_is_refused_before_anything_is_made(
    api: Api, stand_in: StandIn
) -> None:
    stand_in.answer_with(refuses(404, "NotFound", "the server could not find the requested resource"))
    job = to_job(Settings(script="train.py", job_kind="pytorchjob"), name="fm")
    with pytest.raises(Unavailable, match="--as pytorchjob: the cluster has no PyTorchJobs") as caught:
        controllers.check_kind(api, job)
    assert "leave --as out" in caught.value.hint
    assert {seen.method for seen in stand_in.seen} == {"GET"}


def test_jobs_need_no_look(api: Api, stand_in: StandIn) -> None:
    controllers.check_kind(api, to_job(Settings(script="train.py"), name="fm"))
    controllers.check_taken_up(api, [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "fm"}}])
    assert not stand_in.seen


def test_a_controller_that_takes_its_time_is_waited_for(
    api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controllers, "TAKEN_UP", 60.0)
    deleted = answers(stand_in, JOB, JOB, JOB | {"status": CREATED})
    controllers.check_taken_up(api, [JOB])
    assert not deleted


def test_a_job_that_no_controller_takes_up_is_deleted_again(api: Api, stand_in: StandIn) -> None:
    deleted = answers(stand_in, JOB)
    with pytest.raises(Unavailable, match="knows PyTorchJobs, and no controller runs them: 'fm'"):
        controllers.check_taken_up(api, [JOB])
    assert [name for name, _ in deleted] == ["fm"]
    (order,) = (seen for seen in stand_in.seen if seen.method == "DELETE")
    assert json.loads(order.body)["preconditions"]["uid"] == "1-2"


TRAIN_JOB = JOB | {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}


def test_a_trainjob_is_taken_up_once_its_jobs_are_known(
    api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no condition while it runs."""
    monkeypatch.setattr(controllers, "TAKEN_UP", 60.0)
    known = {"jobsStatus": [{"name": "node", "active": 1}]}
    deleted = answers(stand_in, TRAIN_JOB, TRAIN_JOB | {"status": {}}, TRAIN_JOB | {"status": known})
    controllers.check_taken_up(api, [TRAIN_JOB])
    assert not deleted


@pytest.mark.parametrize("job", [TRAIN_JOB, JOB | {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}])
def test_jobs_of_other_controllers_that_none_takes_up_are_deleted_too(
    api: Api, stand_in: StandIn, job: dict[str, Any]
) -> None:
    deleted = answers(stand_in, job)
    with pytest.raises(Unavailable, match=f"knows {job['kind']}s, and no controller runs them: 'fm'"):
        controllers.check_taken_up(api, [job])
    assert [name for name, _ in deleted] == ["fm"]


def test_of_a_users_own_job_all_that_was_created_goes_again(api: Api, stand_in: StandIn) -> None:
    job = JOB | {"kind": "XGBoostJob"}
    deleted = answers(stand_in, job)
    beside = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "src"}}
    with pytest.raises(Unavailable, match="knows XGBoostJobs"):
        controllers.check_native(api, job, [beside])
    assert [name for name, _ in deleted] == ["fm", "src"]


@pytest.mark.parametrize(
    "job",
    [
        JOB | {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}},
        JOB | {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"},
    ],
)
def test_a_job_that_gets_no_condition_from_its_controller_is_not_judged(
    api: Api, stand_in: StandIn, job: dict[str, Any]
) -> None:
    controllers.check_native(api, job)
    assert not stand_in.seen
