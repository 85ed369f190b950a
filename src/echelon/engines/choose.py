"""From the name of an engine (`--on`, ECHELON_ON, the scheme of an address) to the engine: the one place that
knows them by name."""

from __future__ import annotations

from echelon.engines.base import Engine
from echelon.errors import InvalidJob

LOCAL = "local"
CLUSTER = "k8s"


def choose_engine(
    name: str | None = None,
    *,
    context: str | None = None,
    namespace: str | None = None,
    keep_stdin: bool = False,
    default: str = LOCAL,
) -> Engine:
    """The engine of that name; `default` is for commands that only a cluster serves.

    `keep_stdin` lets a single local rank read the caller's terminal."""
    name = name or default
    if name == LOCAL:
        from echelon.engines.local.engine import LocalEngine

        return LocalEngine(keep_stdin=keep_stdin)
    if name == CLUSTER:
        from echelon.engines.kubernetes.engine import KubernetesEngine

        return KubernetesEngine(context=context, namespace=namespace)
    raise InvalidJob("on", name, "is not known", hint=f"{LOCAL} or {CLUSTER}")
