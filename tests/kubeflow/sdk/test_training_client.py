"""Kubeflow's client, on this machine: a notebook's calls after the import line was changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echelon.engines.local.engine import LocalEngine
from echelon.kubeflow import TrainerClient, TrainingClient, constants
from echelon.kubeflow.sdk import clients
from echelon.model.run import RunRef

GREETING = "hello"


def train(parameters: dict[str, Any]) -> None:
    import os
    import sys

    # What Kubeflow's client would have its shell expand: $HOME, `date`, and a backslash \\.
    print(GREETING, parameters["lr"], "$HOME `date` \\", os.environ["RANK"], os.environ["WORLD_SIZE"])
    if parameters.get("fail"):
        sys.exit(3)


@pytest.fixture
def client(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingClient:
    assert home is not None
    monkeypatch.chdir(tmp_path)
    return TrainingClient(on="local")


def test_a_function_on_a_master_and_workers(client: TrainingClient) -> None:
    """The manual's cells, in their order."""
    client.create_job(
        name="mnist",
        train_func=train,
        parameters={"lr": 0.1},
        num_workers=3,
        env_vars={"SOME": "value"},
        base_image="docker.io/some/image:1",
    )
    seen = []
    job = client.wait_for_job_conditions(name="mnist", callback=lambda each: seen.append(each.kind))
    assert seen[0] == "PyTorchJob"
    assert {name: spec.replicas for name, spec in job.spec.pytorch_replica_specs.items()} == {
        "Master": 1,
        "Worker": 2,
    }
    assert job.metadata.name == "mnist"
    assert job.status.completion_time > job.status.start_time
    assert job.status.replica_statuses["Worker"].succeeded == 2
    assert client.is_job_succeeded("mnist")
    assert client.is_job_created(job=job)
    assert not client.is_job_running("mnist")
    assert client.get_job_pod_names("mnist") == ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]
    assert client.get_job_pod_names("mnist", is_master=True) == ["mnist-master-0"]
    assert client.get_job_pod_names("mnist", replica_type="Worker", replica_index=1) == ["mnist-worker-1"]
    logs, events = client.get_job_logs("mnist")
    assert logs == {"mnist-master-0": "hello 0.1 $HOME `date` \\ 0 3\n"}
    assert events == {}
    logs, events = client.get_job_logs("mnist", is_master=False, verbose=True)
    assert logs["mnist-worker-1"].endswith("2 3\n")
    assert any("finished" in line for line in events["PyTorchJob mnist"])
    assert [each.metadata.name for each in client.list_jobs()] == ["mnist"]
    assert client.list_jobs(job_kind="TFJob") == []
    client.delete_job("mnist")
    with pytest.raises(RuntimeError, match="no run named 'mnist'"):
        client.get_job("mnist")


def test_where_jobs_are_is_the_environments_to_say(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a notebook changes its import line alone."""
    assert home is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ECHELON_ON", "local")
    assert TrainingClient(job_kind=constants.PYTORCHJOB_KIND).list_jobs() == []


def test_a_failure_is_told_with_its_reason(client: TrainingClient) -> None:
    client.create_pytorchjob_from_func(
        "bad", train, parameters={"lr": 1, "fail": True}, num_worker_replicas=2
    )
    with pytest.raises(RuntimeError, match="exited with code 3"):
        client.wait_for_job_conditions("bad")
    job = client.get_pytorchjob("bad")
    assert job.spec.pytorch_replica_specs["Worker"].replicas == 2, "beside the Master, in that generation"
    assert client.is_job_failed("bad")
    client.delete_pytorchjob("bad")
    # A notebook's cells are run again, and again.
    client.create_pytorchjob_from_func("bad", train, parameters={"lr": 1}, num_worker_replicas=1)
    client.wait_for_job_conditions("bad")
    client.delete_pytorchjob("bad")


def test_an_exception_is_told_with_its_rank_and_its_line(client: TrainingClient) -> None:
    limit = 3  # a closure over a value

    def diverge(parameters: dict[str, Any]) -> None:
        import os

        if int(os.environ["RANK"]) == limit - 1:
            raise FloatingPointError(f"loss is nan, lr was {parameters['lr']}")

    client.create_job(name="nan", train_func=diverge, parameters={"lr": 9}, num_workers=limit)
    with pytest.raises(RuntimeError) as caught:
        client.wait_for_job_conditions("nan")
    told = str(caught.value)
    assert "rank 2 exited with code 1: FloatingPointError: loss is nan, lr was 9" in told
    assert 'in diverge: raise FloatingPointError(f"loss is nan' in told
    assert client.get_job_conditions("nan")[-1].message in told
    client.delete_job("nan")


def test_without_a_cluster_jobs_run_here_and_that_is_said_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert home is not None
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    clients._say_once.cache_clear()
    assert TrainingClient().list_jobs() == []
    assert TrainerClient().list_jobs() == []
    assert capsys.readouterr().err.count("no cluster is configured: jobs run on this machine") == 1
    with pytest.raises(RuntimeError, match="no kubeconfig"):
        TrainingClient(on="k8s").list_jobs()
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(RuntimeError, match="no kubeconfig"):
        TrainingClient().list_jobs()


def test_it_is_deleted_while_it_runs(client: TrainingClient) -> None:
    client.create_job(
        job={
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "sleeps"},
            "spec": {
                "pytorchReplicaSpecs": {
                    "Master": {
                        "replicas": 1,
                        "template": {
                            "spec": {
                                "containers": [{"name": "pytorch", "image": "a", "command": ["sleep", "600"]}]
                            }
                        },
                    }
                }
            },
        }
    )
    client.wait_for_job_conditions("sleeps", expected_conditions={"Running"})
    with pytest.raises(TimeoutError, match="not Succeeded after 0 s"):
        client.wait_for_job_conditions("sleeps", wait_timeout=0)
    client.delete_job("sleeps")
    assert client.list_jobs() == []


def wait_or_end(parameters: dict[str, Any]) -> None:
    import os
    import time

    if os.environ["ECHELON_RESTART"] == "0":
        time.sleep(600)
    print("went on")


def test_a_job_is_suspended_and_goes_on(client: TrainingClient) -> None:
    client.create_job(name="pauses", train_func=wait_or_end, parameters={})
    job = client.wait_for_job_conditions("pauses", expected_conditions={"Running"})
    job.spec.run_policy.suspend = True
    client.update_job(job, "pauses")
    job = client.get_job("pauses")
    assert [each.type for each in job.status.conditions if each.status == "True"] == ["Created", "Suspended"]
    assert job.spec.run_policy.suspend is True
    job.spec.pytorch_replica_specs["Master"].replicas = 2
    with pytest.raises(ValueError, match=r"Master\.replicas: 2 cannot be changed"):
        client.update_job(job, "pauses")
    client.update_job({"spec": {"runPolicy": {"suspend": False}}}, "pauses")
    job = client.wait_for_job_conditions("pauses")
    assert job.spec.run_policy.suspend is False
    assert "went on" in client.get_job_logs("pauses")[0]["pauses-master-0"]
    client.delete_job("pauses")


def test_a_queue_of_kueues_is_the_runs(client: TrainingClient) -> None:
    client.create_job(name="queues", train_func=train, parameters={"lr": 1}, queue_name="team")
    job = LocalEngine().read(RunRef(engine="local", name="queues")).job
    assert (job.pod.queue, "kueue.x-k8s.io/queue-name" in job.pod.labels) == ("team", False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "a"}, "train_func"),
        ({"train_func": train}, "name"),
        ({"name": "a", "train_func": train, "num_workers": 0}, "num_workers"),
        ({"name": "a", "train_func": train, "num_ps_replicas": 1}, "num_ps_replicas"),
        ({"name": "a", "train_func": train, "job_kind": "PaddleJob"}, "job_kind"),
        ({"name": "a", "train_func": train, "resources_per_worker": 3}, "resources_per_worker"),
        ({"name": "a", "train_func": train, "volumes": [{"name": "v"}]}, "volume_mounts"),
        ({"job": {"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v7"}}, "is not a version"),
    ],
)
def test_a_callers_mistake_is_a_value_error(
    client: TrainingClient, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        client.create_job(**given)


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("get_job", {"job_kind": "PaddleJob"}),
        ("list_jobs", {"job_kind": "MXJob"}),
        ("wait_for_job_conditions", {"job_kind": "PaddleJob"}),
        ("wait_for_job_conditions", {"expected_conditions": {"Finished"}}),
        ("train", {"model_provider_parameters": None}),
    ],
)
def test_what_is_not_done_is_refused_by_its_name(
    client: TrainingClient, call: str, given: dict[str, Any]
) -> None:
    name = {} if call == "list_jobs" else {"name": "any"}
    with pytest.raises(ValueError, match=next(iter({"train": 1} if call == "train" else given))):
        getattr(client, call)(**name, **given)


def test_a_client_for_a_kind_that_is_not_run() -> None:
    with pytest.raises(ValueError, match="job_kind: 'PaddleJob' is not known"):
        TrainingClient(on="local", job_kind="PaddleJob")
