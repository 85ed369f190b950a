"""Kubeflow's real controllers, for tests that compare with them or watch what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl

from testbed import controllers


@pytest.fixture
def mpi_operator(own_cluster: Target) -> Iterator[None]:
    """Kubeflow's MPI operator, at work."""
    assert own_cluster.ours
    with controllers.using("mpi-operator"):
        yield


@pytest.fixture
def trainer(own_cluster: Target, namespace: Kubectl) -> Iterator[None]:
    """Kubeflow's Trainer, and the controller of its JobSets, at work."""
    assert own_cluster.ours
    with controllers.using("jobset"), controllers.using("trainer"):
        yield
        # The finalizers of runtimes are Trainer's: they must be gone before it is.
        namespace("delete", "trainjobs,trainingruntimes", "--all")


@pytest.fixture
def operator(own_cluster: Target, image: Callable[[str], str]) -> Iterator[None]:
    """Kubeflow's training operator, at work."""
    assert own_cluster.ours
    image("nslookup")
    with controllers.using("training-operator"):
        yield
