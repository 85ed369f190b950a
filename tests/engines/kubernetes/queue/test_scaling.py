"""Whether an autoscaler is noticed, by what a user can read."""

from __future__ import annotations

import pytest

from echelon.engines.kubernetes.client.api import NotThere
from echelon.engines.kubernetes.queue.scaling import adds_nodes
from echelon.errors import Denied


class Server:
    """Answers what is asked of a cluster; an error is raised."""

    def __init__(self, status: bool | Exception, karpenter: Exception | None) -> None:
        self._status = status
        self._karpenter = karpenter

    def exists(self, kind: str, name: str, *, namespace: str) -> bool:
        assert (kind, name, namespace) == ("ConfigMap", "cluster-autoscaler-status", "kube-system")
        if isinstance(self._status, Exception):
            raise self._status
        return self._status

    def raw(self, path: str) -> object:
        assert path == "/apis/karpenter.sh"
        if self._karpenter is not None:
            raise self._karpenter
        return {}


@pytest.mark.parametrize(
    ("status", "karpenter", "adds"),
    [
        (True, NotThere("no", hint=""), True),
        (False, None, True),
        (False, NotThere("no", hint=""), False),
        (Denied("no", hint=""), None, True),
        (Denied("no", hint=""), Denied("no", hint=""), False),
    ],
)
def test_an_autoscaler_is_noticed(status: bool | Exception, karpenter: Exception | None, adds: bool) -> None:
    assert adds_nodes(Server(status, karpenter)) is adds  # type: ignore[arg-type]
