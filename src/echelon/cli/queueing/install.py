"""`echelon install`."""

from __future__ import annotations

import click

from echelon.cli.options import target_of, target_options
from echelon.cli.say import say


@click.command("install", short_help="Install the manager of a cluster's queue.")
@click.option("--image", metavar="REF", help="the manager's image; `echelon image build --manager` makes one")
@click.option("--dry-run", is_flag=True, help="print the objects as YAML, do nothing")
@click.option("--remove", is_flag=True, help="remove the manager; queued runs stay queued")
@target_options
def install(image: str | None, dry_run: bool, remove: bool, **target: str | None) -> int:
    """Install the manager, which serves the queue of all namespaces: two small pods in echelon-system.

    An administrator does this once for a cluster. The manager may read nodes, pods, Jobs and single
    ConfigMaps and patch Jobs and the status of pods; it may not create or delete anything, or read Secrets.
    Limits are in the ConfigMap echelon-queue there. Repeating it changes what differs.

    \b
    Examples:
      echelon install --image registry.example.org/echelon-manager:1 --dry-run
      echelon install --image registry.example.org/echelon-manager:1
      echelon install --remove
    """
    from echelon.api import engine_at
    from echelon.cli import render
    from echelon.engines.abilities import required
    from echelon.engines.choose import CLUSTER

    if remove == (image is not None):
        raise click.UsageError("Give --image REF to install, or --remove.")
    engine = engine_at(target_of(target), default=CLUSTER)
    installation = required(engine.installation, "manager", engine.traits)
    if remove:
        if dry_run:
            raise click.UsageError("--dry-run shows what --image would make; --remove deletes the same.")
        installation.remove()
        render.notice("the manager is removed; runs that are queued wait until a command admits them")
        return 0
    assert image is not None
    if dry_run:
        render.manifests(installation.manifests(image), target["format"] or "yaml")
        return 0
    installation.make(image)
    say("installed; `kubectl -n echelon-system get pods` shows the manager, `echelon queue` the queue")
    return 0
