"""A Kubeflow job in several files, as kubectl takes them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from tests.kubeflow.kinds.test_pytorchjob import MNIST
from tests.kubeflow.kinds.test_trainjob import JOB, RUNTIME

from echelon.errors import InvalidJob
from echelon.kubeflow import read_manifest

CLAIM = """
    apiVersion: v1
    kind: PersistentVolumeClaim
    metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {
        "claim": CLAIM,
        "mnist": MNIST,
        "runtime": RUNTIME,
        "trainjob": JOB,
        "job": "script: train.py",
        "kinds": "script: train.py\nenv: {kind: x}",
    }
    for name, text in texts.items():
        Path(f"{name}.yaml").write_text(textwrap.dedent(text))


@pytest.mark.parametrize("order", [("claim.yaml", "mnist.yaml"), ("mnist.yaml", "claim.yaml")])
def test_the_job_and_what_it_needs_in_files_of_their_own(order: tuple[str, ...]) -> None:
    manifest = read_manifest([Path(name) for name in order])
    assert manifest is not None
    assert manifest.kind == "PyTorchJob"
    assert [each["kind"] for each in manifest.objects] == ["PersistentVolumeClaim"]


def test_a_runtime_in_its_own_file() -> None:
    manifest = read_manifest([Path("trainjob.yaml"), Path("runtime.yaml")])
    assert manifest is not None
    assert manifest.settings.workers == 3


def test_two_jobs_are_refused_by_the_second() -> None:
    with pytest.raises(
        InvalidJob, match=r"mnist.yaml:\d+: kind: 'PyTorchJob' is a second job beside trainjob"
    ):
        read_manifest([Path("trainjob.yaml"), Path("mnist.yaml"), Path("runtime.yaml")])


@pytest.mark.parametrize("name", ["job.yaml", "kinds.yaml"])
def test_a_job_file_of_ours_is_given_alone(name: str) -> None:
    assert read_manifest([Path(name)]) is None
    with pytest.raises(InvalidJob, match=rf"'{name}' holds no object of Kubernetes .*given alone"):
        read_manifest([Path("mnist.yaml"), Path(name)])
