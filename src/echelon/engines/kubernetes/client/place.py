"""Which cluster and namespace the user means, and the way there."""

from __future__ import annotations

import os
from collections.abc import Callable

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.beside import beside
from echelon.engines.kubernetes.client.login.kubeconfig import load_access
from echelon.values import frozen


@frozen
class Place:
    """One namespace of one cluster, as far as it was named; the kubeconfig says the rest. `kubeconfig` is
    read instead of the one in the environment.
    """

    context: str | None = None
    namespace: str | None = None
    kubeconfig: str | None = None

    def connect(self) -> Api:
        """The way to the cluster, which is not asked anything yet."""
        environment = None if self.kubeconfig is None else {**os.environ, "KUBECONFIG": self.kubeconfig}
        return Api(load_access(self.context, self.namespace, environment=environment))

    def connect_soon(self) -> Callable[[], Api]:
        """The same beside what the caller does next; the result waits for it."""
        return beside(self.connect)


USUAL = Place()  # all of it as the kubeconfig says
