"""Kubeflow's real controllers, for tests that compare with them or watch what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl

from testbed import controllers

_JOBSETS = {"trainer": "jobset", "trainer-2.3": "jobset-0.12"}  # which each release was made for


@pytest.fixture
def mpi_operator(own_cluster: Target) -> Iterator[None]:
    """Kubeflow's MPI operator, at work."""
    assert own_cluster.ours
    with controllers.using("mpi-operator"):
        yield


# The newer release takes the older one's place in the cluster, which other tests need beside it.
@pytest.fixture(params=["trainer", pytest.param("trainer-2.3", marks=pytest.mark.alone)])
def trainer(own_cluster: Target, namespace: Kubectl, request: pytest.FixtureRequest) -> Iterator[None]:
    """Kubeflow's Trainer, and the controller of its JobSets, at work; one release after the other."""
    assert own_cluster.ours
    with controllers.using(_JOBSETS[request.param]), controllers.using(request.param):
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
