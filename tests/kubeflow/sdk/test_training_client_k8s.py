"""Kubeflow's client in a real cluster without any of its operators: the cells of a manual's notebook."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import wait_until
from tests.docs.test_coming_from_kubeflow import CELLS, PAGE
from tests.faults.kubernetes.terminal import KINDS, kubeconfig_in
from tests.notebooks import run_cells

from echelon.kubeflow import TrainingClient

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


CELL = """
import os

def train(parameters):
    print("$HOME", parameters["lr"], "rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
"""


@pytest.mark.core
def test_a_master_and_two_workers_without_an_operator(
    home: Path,
    namespace: Kubectl,
    image: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert home is not None
    (tmp_path / "notebook").mkdir()
    monkeypatch.chdir(tmp_path / "notebook")
    monkeypatch.syspath_prepend(tmp_path / "notebook")
    Path("cell_of_a_notebook.py").write_text(CELL)
    train = importlib.import_module("cell_of_a_notebook").train
    client = TrainingClient(config_file=str(kubeconfig_in(namespace, tmp_path / "kubeconfig")))
    client.create_pytorchjob_from_func(
        name="mnist", func=train, parameters={"lr": 0.5}, base_image=image("python"), num_worker_replicas=2
    )
    job = client.wait_for_job_conditions("mnist")
    assert job.metadata.namespace == namespace.namespace
    assert job.status.replica_statuses["Worker"].succeeded == 2
    workers = client.get_job_pod_names("mnist", replica_type="Worker")
    chosen = "training.kubeflow.org/job-name=mnist,training.kubeflow.org/replica-type=worker"
    listed = namespace.items("pods", "-l", chosen)
    assert sorted(workers) == sorted(pod["metadata"]["name"] for pod in listed)
    assert len(workers) == 2
    (master,) = client.get_job_pods("mnist", is_master=True)
    assert master.metadata.labels["training.kubeflow.org/job-role"] == "master"
    (second,) = client.get_job_pods("mnist", replica_type="Worker", replica_index=1)
    assert second.metadata.labels["training.kubeflow.org/replica-index"] == "1"
    logs, _ = client.get_job_logs("mnist")
    assert logs == {master.metadata.name: "$HOME 0.5 rank 0 of 3\n"}
    client.delete_pytorchjob("mnist")
    assert client.list_jobs() == []


def test_the_notebook_of_the_documents_needs_no_operator(
    home: Path,
    namespace: Kubectl,
    image: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One Master and four Workers train for real, and leave nothing."""
    assert home is not None
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig_in(namespace, tmp_path / "kubeconfig")))
    cells = [cell.replace("docker.io/my/torch:2", image("torch")) for cell in CELLS.findall(PAGE)]
    book = run_cells([*cells, "print(client.list_jobs())"], Path.cwd())
    names, logs, left = (str(book.cells[number].outputs) for number in (2, 3, 5))
    assert names.count("mnist-worker-") == 4
    assert names.count("mnist-") == 5
    assert "rank 0 of 5: loss" in logs
    assert "[]" in left
    wait_until(lambda: not leftovers(namespace), "nothing to be left", 90.0)


def leftovers(kubectl: Kubectl) -> list[str]:
    found = (item["metadata"]["name"] for item in kubectl.items(KINDS))
    return [name for name in found if name.startswith("mnist")]
