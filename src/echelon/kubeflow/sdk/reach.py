"""Where the jobs of a client are: what both of Kubeflow's clients need to find a run."""

from __future__ import annotations

import os

from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, choose_engine
from echelon.model.run import RunRef


class Reach:
    """One cluster, or this machine: as given, else by ECHELON_ON."""

    def __init__(
        self, on: str | None, *, context: str | None, namespace: str | None, kubeconfig: str | None
    ) -> None:
        self._on = on or os.environ.get("ECHELON_ON") or CLUSTER
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
