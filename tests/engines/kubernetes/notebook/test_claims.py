"""The claim for a notebook server's files goes if it was made for them, by its uid; others stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engines.kubernetes.api_server import ApiServer

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.notebook.servers import PodNotebooks
from echelon.engines.kubernetes.one_pod import OnePod
from echelon.engines.notebook_servers import ServerRemoved, ServerSettings
from echelon.model.pods.pod import Output, PodOptions
from echelon.model.resources import Resources

CLAIM = names.server_claim("me")
ASKED = ServerSettings(pod=PodOptions(image="jupyter"), resources=Resources(), files=Output(size=2**30))


class Cluster(ApiServer):
    """A namespace with a default storage class."""

    def __init__(self) -> None:
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        about = {"name": "standard", "annotations": default}
        super().__init__({"kind": "StorageClass", "metadata": about})

    def exists(self, kind: str, name: str) -> bool:
        return (kind, name) in self.objects

    def claims(self) -> list[str]:
        return [name for kind, name in self.objects if kind == "PersistentVolumeClaim"]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


Machine = Callable[[str], PodNotebooks]


@pytest.fixture
def machine(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The commands on a machine of that name; its server answers at once."""
    monkeypatch.setattr(OnePod, "wait", lambda *_: None)

    def use(name: str) -> PodNotebooks:
        monkeypatch.setenv("ECHELON_HOME", str(tmp_path / name))
        return PodNotebooks(lambda: cluster.api)

    return use


@pytest.mark.core
def test_a_claim_that_was_made_goes_wherever_it_is_asked_for(cluster: Cluster, machine: Machine) -> None:
    machine("here").up("me", ASKED, print)
    assert cluster.claims() == [CLAIM]
    assert machine("elsewhere").down("me", volumes=True) == ServerRemoved(was_there=True, removed=CLAIM)
    assert cluster.claims() == []


def test_its_files_outlive_the_server_and_the_machine_that_made_them_may_remove_them(
    cluster: Cluster, machine: Machine
) -> None:
    machine("here").up("me", ASKED, print)
    assert machine("here").down("me", volumes=False) == ServerRemoved(was_there=True, kept=CLAIM)
    left = ServerRemoved(was_there=False, left=CLAIM)
    assert machine("elsewhere").down("me", volumes=True) == left, "nothing there shows whose it is"
    machine("here").up("me", ASKED, print)  # with the same files
    assert machine("here").down("me", volumes=False).kept == CLAIM
    assert machine("here").down("me", volumes=True) == ServerRemoved(was_there=False, removed=CLAIM)


@pytest.mark.parametrize("labelled", [True, False])
def test_a_claim_that_only_has_its_name_or_its_labels_stays(
    cluster: Cluster, machine: Machine, labelled: bool
) -> None:
    machine("here").up("me", ASKED, print)
    made = cluster.objects.pop(("PersistentVolumeClaim", CLAIM))
    theirs = {**made, "metadata": {**made["metadata"], "uid": "another"}}
    if not labelled:
        theirs["metadata"]["labels"] = {}
    cluster.objects["PersistentVolumeClaim", CLAIM] = theirs
    assert machine("here").down("me", volumes=True) == ServerRemoved(was_there=True, left=CLAIM)
    assert cluster.claims() == [CLAIM]
    assert machine("here").down("me", volumes=False).kept == (CLAIM if labelled else None)


def test_files_that_are_taken_up_by_their_labels_are_used_and_not_removed(
    cluster: Cluster, machine: Machine
) -> None:
    machine("here").up("me", ASKED, print)
    machine("here").down("me", volumes=False)
    machine("elsewhere").up("me", ASKED, print)
    assert machine("elsewhere").down("me", volumes=True).left == CLAIM
