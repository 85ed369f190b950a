"""A terminal, an engine in a namespace of the cluster, and a small API server of the test's own whose answers
the test decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE
from tests.engines.kubernetes.stand_in import Certificates, StandIn, make_certificates
from tests.faults.kubernetes.terminal import terminal

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.http import session
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.client.place import Place
from echelon.engines.kubernetes.engine import KubernetesEngine

__all__ = ["terminal"]


@pytest.fixture
def engine(namespace: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KubernetesEngine:
    """The engine, in a namespace of the test's own; results come to a folder of its own."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.chdir(tmp_path)
    return KubernetesEngine(Place(namespace=namespace.namespace))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and a server and a client that it vouches for."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def stand_in(certificates: Certificates) -> Iterator[StandIn]:
    """A server that speaks HTTPS and answers what the test tells it to."""
    with StandIn(certificates) as server:
        yield server


@pytest.fixture
def access(stand_in: StandIn, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Access:
    """The way to that server, without credentials."""
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    authority = Path(certificates.authority).read_bytes()
    return Access(server=stand_in.url, context="test", cluster="test", user="ann", authority_data=authority)


@pytest.fixture
def api(access: Access, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Somebody who asks that server, and has more patience than a busy machine needs."""
    monkeypatch.setattr(session, "STRANGERS_PATIENCE", PATIENCE)
    return Api(access, "team", patience=PATIENCE)
