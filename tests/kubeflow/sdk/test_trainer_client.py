"""Kubeflow's second client, on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from echelon.kubeflow import (
    DATASET_PATH,
    BuiltinTrainer,
    ContainerBackendConfig,
    CustomTrainer,
    CustomTrainerContainer,
    HuggingFaceDatasetInitializer,
    Initializer,
    KubernetesBackendConfig,
    LocalProcessBackendConfig,
    LoraConfig,
    Runtime,
    RuntimeKind,
    RuntimeTrainer,
    TorchTuneConfig,
    TrainerClient,
    TrainerType,
    TrainJobTemplate,
    get_tpu_num_nodes,
    update_trainjob_status,
)
from echelon.kubeflow.sdk.job_documents import installing


def train(lr: float, fail: bool = False) -> None:
    import os
    import sys

    print("lr", lr, "node", os.environ["ECHELON_WORKER"], "of", os.environ["ECHELON_WORKERS"])
    if fail:
        sys.exit(4)


@pytest.fixture
def client(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainerClient:
    assert home is not None
    monkeypatch.chdir(tmp_path)
    return TrainerClient(on="local")


def test_a_function_on_two_nodes(client: TrainerClient) -> None:
    name = client.train(
        runtime=client.get_runtime("torch-distributed"),
        trainer=CustomTrainer(func=train, func_args={"lr": 0.1}, num_nodes=2, env={"SOME": "value"}),
    )
    seen: list[str] = []
    job = client.wait_for_job_status(name, callbacks=[lambda each: seen.append(each.status)])
    assert seen[-1] == job.status == "Complete"
    assert [(each.name, each.status) for each in job.steps] == [
        ("node-0", "Succeeded"),
        ("node-1", "Succeeded"),
    ]
    assert list(client.get_job_logs(name, step="node-1")) == ["lr 0.1 node 1 of 2"]
    assert any(each.reason == "finished" for each in client.get_job_events(name))
    assert [each.name for each in client.list_jobs()] == [name]
    client.delete_job(name)
    assert client.list_jobs() == []


def place() -> None:
    import os

    names = ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "DMLC_TASK_ID", "DMLC_NUM_WORKER")
    print(*(os.environ[name] for name in names if name in os.environ))


@pytest.mark.parametrize("framework", ["jax", "xgboost"])
def test_a_function_of_another_framework(client: TrainerClient, framework: str) -> None:
    """The runtime says which, whatever the function imports."""
    trainer = CustomTrainer(func=place, num_nodes=2)
    name = client.train(runtime=f"{framework}-distributed", trainer=trainer)
    job = client.wait_for_job_status(name)
    assert (job.status, job.runtime.name, job.num_nodes) == ("Complete", f"{framework}-distributed", 2)
    assert [list(client.get_job_logs(name, step=f"node-{node}")) for node in (0, 1)] == [["0 2"], ["1 2"]]


def test_a_template_on_the_backend_of_local_processes(client: TrainerClient) -> None:
    trainer = CustomTrainer(func=train, func_args={"lr": 0.2})
    here = TrainerClient(backend_config=LocalProcessBackendConfig(cleanup_venv=True))
    name = here.train(**TrainJobTemplate(runtime="torch-distributed", trainer=trainer))
    assert client.wait_for_job_status(name).status == "Complete"
    assert list(here.get_job_logs(name, follow=True)) == ["lr 0.2 node 0 of 1"]


def test_names_that_notebooks_import_are_those_of_the_client(client: TrainerClient) -> None:
    """A notebook's own lines, and what is refused says which it was."""
    mine = Runtime("torch-distributed", RuntimeTrainer(TrainerType.CUSTOM_TRAINER, "torch"))
    assert client.get_runtime("torch-distributed") == mine
    assert (mine.kind, mine.trainer.framework) == (RuntimeKind.CLUSTER_TRAINING_RUNTIME, "torch")
    name = client.train(runtime=mine, trainer=CustomTrainer(train, {"lr": 0.3}))
    assert client.wait_for_job_status(name).status == "Complete"
    assert [each.name for each in client.list_jobs(runtime=mine)] == [name]
    recipe = BuiltinTrainer(config=TorchTuneConfig(epochs=1, peft_config=LoraConfig(lora_rank=8)))
    with pytest.raises(ValueError, match="trainer: 'BuiltinTrainer' has no function"):
        client.train(trainer=recipe)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="trainer: 'CustomTrainerContainer' has no function"):
        client.train(trainer=CustomTrainerContainer("my/image:1", num_nodes=2))  # type: ignore[arg-type]
    data = Initializer(dataset=HuggingFaceDatasetInitializer("hf://stanfordnlp/imdb"))
    with pytest.raises(ValueError, match=r"initializer: .*is not something that echelon does"):
        client.train(trainer=CustomTrainer(train), initializer=data)
    assert update_trainjob_status(progress_percent=50) is False
    assert (get_tpu_num_nodes(2, "2x4"), DATASET_PATH) == (4, "/workspace/dataset")
    with pytest.raises(ValueError, match="topology"):
        get_tpu_num_nodes(1, "3")


def test_a_failure_has_its_reason(client: TrainerClient) -> None:
    name = client.train(trainer=CustomTrainer(func=train, func_args={"lr": 1, "fail": True}))
    with pytest.raises(RuntimeError, match="exited with code 4"):
        client.wait_for_job_status(name)
    assert client.get_job(name).status == "Failed"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "trainer"),
        ({"trainer": CustomTrainer(func=train), "runtime": "deepspeed"}, "runtime"),
        ({"trainer": CustomTrainer(func=train), "initializer": object()}, "initializer"),
    ],
)
def test_what_echelon_does_not_do_is_a_value_error(
    client: TrainerClient, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        client.train(**given)
    with pytest.raises(ValueError, match="step"):
        client.get_job_logs("any", step="model")


def test_backends_that_echelon_does_not_have() -> None:
    with pytest.raises(ValueError, match="backend_config: 'ContainerBackendConfig' is not a backend"):
        TrainerClient(backend_config=ContainerBackendConfig())
    with pytest.raises(ValueError, match="client_configuration"):
        TrainerClient(KubernetesBackendConfig(client_configuration=object()))


def test_statuses_and_runtimes(client: TrainerClient) -> None:
    with pytest.raises(ValueError, match="status: 'Finished' is not known"):
        client.wait_for_job_status("any", status={"Finished"})
    (torch,) = [each for each in client.list_runtimes() if each.name == "torch-distributed"]
    assert torch.trainer.framework == "torch"
    with pytest.raises(ValueError, match="get_runtime_packages"):
        client.get_runtime_packages(torch)


def test_every_index_of_packages_is_asked() -> None:
    assert installing(None, ["x"], ()).env is None
    assert installing(None, ["x"], ["https://a", "https://b", "https://c"]).env == {
        "PIP_INDEX_URL": "https://a",
        "PIP_EXTRA_INDEX_URL": "https://b https://c",
    }
