"""What the tests of Kubeflow's manifests share: a manifest from its text, and the job that it means."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.kubernetes.terminal import terminal
from tests.image.conftest import open_registry, registry_program
from tests.kubeflow.operators import mpi_operator, operator, trainer

from echelon.kubeflow import Manifest, read_manifest
from echelon.model.job import Job
from echelon.model.meaning import to_job

__all__ = ["mpi_operator", "open_registry", "operator", "registry_program", "terminal", "trainer"]

Read = Callable[[str], Manifest]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """Read a manifest that is in a file of the working folder, `job.yaml`."""
    monkeypatch.chdir(tmp_path)

    def read(text: str) -> Manifest:
        Path("job.yaml").write_text(textwrap.dedent(text))
        found = read_manifest(Path("job.yaml"))
        assert found is not None
        return found

    return read


@pytest.fixture
def job_of(read: Read) -> Callable[[str], Job]:
    return lambda text: to_job(read(text).settings, name="unnamed")
