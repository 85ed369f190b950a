"""`echelon exec`: a shell, or a command, in the place of a rank."""

from __future__ import annotations

import click

from echelon.cli.options import complete_runs, find_engine, target_options


@click.command("exec", short_help="Open a shell, or run a command, in a worker.")
@click.argument("name", metavar="RUN", shell_complete=complete_runs)
@click.option("--worker", type=click.IntRange(min=0), metavar="N", help="which worker (default 0)")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="which rank (default: its first)")
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1)
@target_options
def exec(  # noqa: A001 - its name
    name: str, worker: int | None, rank: int | None, command: tuple[str, ...], **target: str | None
) -> int:
    """Open a shell with the environment of a rank and in its working folder, or run a command there; exits
    with its exit code. On Kubernetes it runs in the worker's pod.

    \b
    Examples:
      echelon exec RUN
      echelon exec RUN --rank 1 -- env
      echelon exec --on k8s RUN --worker 1 -- nvidia-smi
    """
    from echelon.engines.abilities import required

    ref, engine = find_engine(name, target)
    return required(engine.shell, "shells", engine.traits).enter(ref, command, worker=worker, rank=rank)
