"""From a name (`--on`, `ECHELON_ON`, the engine part of an address) to the engine."""

from __future__ import annotations

import os

from echelon.engines.base import Engine
from echelon.errors import InvalidJob


def choose_engine(
    name: str | None = None,
    *,
    context: str | None = None,
    namespace: str | None = None,
    keep_stdin: bool = False,
) -> Engine:
    """The engine of that name; `keep_stdin` lets a single local rank read the caller's terminal."""
    name = name or os.environ.get("ECHELON_ON") or "local"
    if name == "local":
        from echelon.engines.local.engine import LocalEngine

        return LocalEngine(keep_stdin=keep_stdin)
    if name == "k8s":
        from echelon.engines.kubernetes.engine import KubernetesEngine

        return KubernetesEngine(context=context, namespace=namespace)
    raise InvalidJob("on", name, "is not known", hint="local or k8s")
