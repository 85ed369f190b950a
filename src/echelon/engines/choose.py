"""From the name of an engine (`--on`, ECHELON_ON, the scheme of an address) to the engine: the one place that
knows them by name."""

from __future__ import annotations

from echelon.engines.base import Engine
from echelon.errors import InvalidJob

LOCAL = "local"
CLUSTER = "k8s"


def cluster_is_configured() -> bool:
    """Whether anything names a cluster for this user."""
    from echelon.engines.kubernetes.client.login.kubeconfig import is_configured

    return is_configured()


def choose_engine(
    name: str | None = None,
    *,
    context: str | None = None,
    namespace: str | None = None,
    keep_stdin: bool = False,
    terminal: int | None = None,
    default: str = LOCAL,
    kubeconfig: str | None = None,
    watched: bool = False,
    soon: bool = False,
) -> Engine:
    """The engine of that name; `default` is for commands that only a cluster serves. With `watched` it has
    the jobs that Kubeflow's controllers look after.

    `keep_stdin`, of a caller that stays and shows the ranks' output, lets a single local rank read its
    standard input, and gives ranks the width of its terminal; `terminal`, a socket that leads to the caller's
    terminal, gives it one. What no engine takes is closed with the caller's own copy. `kubeconfig` is read
    instead of what KUBECONFIG names. With `soon`, of a caller that is about to submit, a cluster is asked
    what a submission needs to know while the caller prepares it."""
    name = name or default
    if name == LOCAL:
        from echelon.engines.local.engine import LocalEngine

        return LocalEngine(keep_stdin=keep_stdin, terminal=terminal)
    if name == CLUSTER:
        from echelon.engines.kubernetes.client.place import Place

        place = Place(context=context, namespace=namespace, kubeconfig=kubeconfig)
        if watched:
            from echelon.engines.kubernetes.watched.engine import WatchedJobs

            return WatchedJobs(place)
        connect = place.connect_soon() if soon else place.connect
        from echelon.engines.kubernetes.engine import KubernetesEngine

        engine = KubernetesEngine(place, shown=keep_stdin, connect=connect)
        if soon:
            engine.expect()
        return engine
    raise InvalidJob("on", name, "is not known", hint=f"{LOCAL} or {CLUSTER}")
