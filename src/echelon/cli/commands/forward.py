"""`echelon forward`: a port of a worker, on this machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from echelon.cli.options import complete_runs, find_engine, target_options

if TYPE_CHECKING:
    from echelon.engines.abilities import PortPair


@click.command("forward", short_help="Forward a local port to a worker.")
@click.argument("name", metavar="RUN", shell_complete=complete_runs)
@click.argument("ports", metavar="[LOCAL:]PORT...", nargs=-1, required=True)
@click.option("--worker", type=click.IntRange(min=0), metavar="N", default=0, help="which worker (default 0)")
@target_options
def forward(name: str, ports: tuple[str, ...], worker: int, **target: str | None) -> int:
    """Make a port of a worker's pod reachable as localhost:LOCAL, until Ctrl-C or the worker's end; without
    LOCAL the same number here, with :PORT any that is free. Only this machine can connect to it.

    \b
    Examples:
      echelon forward RUN 6006                   TensorBoard of worker 0 at http://localhost:6006
      echelon forward RUN 8080:80 --worker 1
      echelon forward RUN 5678                   debugpy, see the guide for Kubernetes
    """
    from echelon.cli.printing import render
    from echelon.engines.abilities import required

    ref, engine = find_engine(name, target)
    pairs = [_read(text) for text in ports]
    found = required(engine.ports, "ports to forward: ranks open theirs right here", engine.traits)
    found.forward(ref, pairs, worker=worker, tell=render.notice)
    return 0


def _read(text: str) -> PortPair:
    from echelon.engines.abilities import PortPair
    from echelon.errors import InvalidJob

    match = re.fullmatch(r"(?:(\d{0,5}):)?(\d{1,5})", text)
    if match is None or not 0 < int(match[2]) < 65536 or int(match[1] or 0) > 65535:
        raise InvalidJob("port", text, "is not a port", hint="PORT, or LOCAL:PORT, as in 8080:80")
    return PortPair(local=int(match[2] if match[1] is None else match[1] or 0), remote=int(match[2]))
