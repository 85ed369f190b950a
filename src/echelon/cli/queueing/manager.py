"""`echelon manager`."""

from __future__ import annotations

import signal

import click

from echelon.cli.options import target_of, target_options
from echelon.cli.say import say


@click.command("manager", short_help="Serve a cluster's queue.")
@click.option("--identity", metavar="NAME", help="this replica's name (default: one that no other has)")
@click.option(
    "--lease",
    type=click.IntRange(2),
    default=15,
    metavar="SECONDS",
    show_default=True,
    help="another replica takes over after so long without a sign of life",
)
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="answer /livez and /readyz there")
@target_options
def manager(identity: str | None, lease: int, port: int | None, **target: str | None) -> int:
    """Serve the queue of all namespaces of a cluster, until it is told to end (SIGTERM, Ctrl-C).

    `echelon install` runs it in the cluster, twice; of several replicas one decides. It admits queued runs by
    priority, then age, within the limits of the ConfigMap echelon-queue, rolls back a gang that is not whole
    in time, and does the upkeep that runs need of it. It may be killed at any moment.

    \b
    Examples:
      echelon manager
      echelon manager --context test --port 8080
    """
    import uuid

    from echelon.api import engine_at
    from echelon.cli.queueing.probes import Pulse, serve
    from echelon.engines.abilities import required
    from echelon.engines.choose import CLUSTER
    from echelon.manager import Manager

    engine = engine_at(target_of(target), default=CLUSTER)
    queueing = required(engine.queueing, "queue to serve", engine.traits)
    dispatch = queueing.dispatch(identity or f"manager-{uuid.uuid4().hex[:12]}", lasts=float(lease))
    pulse = Pulse()
    served = Manager(dispatch, say=say, beat=pulse.beat)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: served.leave())
    if port is not None:
        serve(pulse, port)
    served.serve()
    return 0
