"""Where the jobs of a client are: what both of Kubeflow's clients need to find a run."""

from __future__ import annotations

import functools
import os
import sys

from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine, cluster_is_configured
from echelon.model.run import RunRef


class Reach:
    """One cluster, or this machine: as given, else by ECHELON_ON, else the cluster if one is configured."""

    def __init__(
        self, on: str | None, *, context: str | None, namespace: str | None, kubeconfig: str | None
    ) -> None:
        named = CLUSTER if context or kubeconfig else None
        self._on = on or os.environ.get("ECHELON_ON") or named or _usual_place()
        self._context = context
        self._kubeconfig = kubeconfig
        self.namespace = namespace

    def _engine(self, namespace: str | None = None) -> Engine:
        return choose_engine(
            self._on,
            context=self._context,
            namespace=namespace or self.namespace,
            kubeconfig=self._kubeconfig,
        )

    def _ref(self, name: str) -> RunRef:
        return RunRef(engine=self._on, name=name)


def _usual_place() -> str:
    if cluster_is_configured():
        return CLUSTER
    _say_once()
    return LOCAL


@functools.cache
def _say_once() -> None:
    hint = 'on="local" says so, and KUBECONFIG or on="k8s" a cluster'
    print(f"note: no cluster is configured: jobs run on this machine ({hint})", file=sys.stderr)
