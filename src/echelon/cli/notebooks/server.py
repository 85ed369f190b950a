"""`echelon jupyter`: up, open, down: a Jupyter server for oneself, in a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from echelon.cli.options import setting_options, target_of, target_options
from echelon.cli.printing.say import say
from echelon.model.settings import OF_SERVERS, SERVER_CPUS, SERVER_MEMORY

if TYPE_CHECKING:
    from echelon.engines.notebook_servers import NotebookServers, ServerSettings
    from echelon.model.pods.pod import Output

_NAME = click.option("--name", metavar="NAME", help="the server's name (default: yours)")


def _pod_options() -> list[click.Parameter]:
    chosen = {option.name: option for option in setting_options(everywhere=False)}
    for name, text in OF_SERVERS.items():
        chosen[name].help = text
        chosen[name].metavar = (chosen[name].metavar or "").partition("|")[0] or None  # without N/gpu
    return [chosen[name] for name in OF_SERVERS]


@click.group("jupyter", short_help="Run your own Jupyter server in a cluster.")
def jupyter() -> None:
    """Run your own Jupyter server in a cluster: up, open, down.

    \b
    Examples:
      echelon jupyter up --image quay.io/jupyter/pytorch-notebook --gpus 1
      echelon jupyter open
      echelon jupyter down
    """


@jupyter.command("up", short_help="Start a Jupyter server, and wait until it answers.", params=_pod_options())
@_NAME
@click.option(
    "--volume",
    metavar="VOLUME",
    default="new:",
    help="where your files are: pvc:NAME[/path], new:[SIZE][@CLASS] for one that is made (default 10Gi) and "
    "stays, or none",
)
@click.option("--dry-run", is_flag=True, help="print the objects as YAML, do nothing")
@target_options
def up(name: str | None, volume: str, dry_run: bool, **options: Any) -> int:
    """Start your own Jupyter server in a cluster, and wait until it answers; `open` brings it here.

    The image must have Jupyter in it. Your files are in /workspace, on a volume that stays; the token is in
    a Secret. Only you reach it, through the API server: it listens to no other pod. Repeating it is harmless.

    \b
    Examples:
      echelon jupyter up --image quay.io/jupyter/pytorch-notebook --gpus 1
      echelon jupyter up --image my/jupyter --volume pvc:work --mount pvc:data:/data:ro
      echelon jupyter up --image my/jupyter --volume new:50Gi@fast --dry-run
      echelon jupyter up                        wait for the one that is there
    """
    from echelon.cli.printing import render

    servers, called = _servers(options), _called(name)
    given = {key: options[key] for key in OF_SERVERS if options[key] not in (None, ())}
    asked = _asked(given, volume) if given or dry_run else None
    if dry_run:
        assert asked is not None
        render.manifests(servers.manifests(called, asked), options["format"] or "yaml")
        return 0
    try:
        found = servers.up(called, asked, render.notice)
    except KeyboardInterrupt:
        render.notice("it stays, and starts when it can; `up` waits for it again, `down` removes it")
        raise
    if (options["format"] or "text") != "text":
        render.data(found, options["format"])
    else:
        more = "" if name is None else f" --name {quote(name)}"
        say(f"{found.image} is up; `echelon jupyter open{more}` brings it here, `down{more}` removes it")
    return 0


@jupyter.command("open", short_help="Reach your Jupyter server from this machine.")
@_NAME
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(min=0, max=65535),
    help="the port here; 0 for any that is free (default: 8888, or any)",
)
@target_options
def open_(name: str | None, port: int | None, **options: Any) -> int:
    """Print the address of your Jupyter server, with its token, and pass connections on until Ctrl-C. Only
    this machine can connect to it.

    \b
    Examples:
      echelon jupyter open
      echelon jupyter open --name big --port 9999
    """
    from echelon.cli.printing import render

    def show(address: str) -> None:
        click.echo(address)
        render.notice("Ctrl-C closes the connection; the server keeps running")

    _servers(options).open(_called(name), port, show, render.notice)
    return 0


@jupyter.command("down", short_help="Remove your Jupyter server.")
@_NAME
@click.option("--volumes", is_flag=True, help="remove the volume that was made for it too, with your files")
@target_options
def down(name: str | None, volumes: bool, **options: Any) -> int:
    """Remove your Jupyter server. The volume that was made for its files stays, unless --volumes is given;
    one that you named with pvc: always does.

    \b
    Examples:
      echelon jupyter down
      echelon jupyter down --volumes
    """
    from echelon.cli.printing import render

    done = _servers(options).down(_called(name), volumes=volumes)
    if (options["format"] or "text") != "text":
        render.data(done, options["format"])
        return 0
    render.notice("it is removed" if done.was_there else "there was none")
    if done.kept is not None:
        render.notice(f"volume {done.kept} stays, with your files; `down --volumes` removes it")
    if done.removed is not None:
        render.notice(f"volume {done.removed} is removed")
    if done.left is not None:
        hint = f"`echelon volume rm {done.left}` removes it"
        render.notice(f"volume {done.left} stays: nothing shows that it was made for the server; {hint}")
    return 0


def _called(name: str | None) -> str:
    from echelon.engines.base import current_user
    from echelon.model.pods.pod import parse_object_name

    if name is not None:
        return parse_object_name("name", name)
    return re.sub(r"[^a-z0-9]+", "-", current_user().lower())[:40].strip("-") or "mine"


def _asked(given: Mapping[str, Any], volume: str) -> ServerSettings:
    """What the flags mean: as they do for a run."""
    from echelon.engines.notebook_servers import ServerSettings
    from echelon.jobfile import settings_from
    from echelon.model.meaning import to_job

    filled = {"cpus": SERVER_CPUS, "memory": SERVER_MEMORY, **given}
    job = to_job(settings_from({**filled, "script": "server"}, source="the command line"), name="server")
    return ServerSettings(pod=job.pod, resources=job.resources, files=_files(volume), env=job.env)


def _files(volume: str) -> Output | None:
    from echelon.errors import InvalidJob
    from echelon.model.pods.pod import parse_output

    if volume == "none":
        return None
    try:
        return parse_output(volume)
    except InvalidJob as error:
        hint = "pvc:NAME for one that exists, new:10Gi for one that is made, none"
        raise InvalidJob("volume", volume, "is not a volume", hint=hint) from error


def _servers(options: Mapping[str, Any]) -> NotebookServers:
    from echelon.engines.abilities import required
    from echelon.engines.choose import CLUSTER
    from echelon.preparation.sources import engine_at

    engine = engine_at(target_of(options), default=CLUSTER)
    return required(engine.notebooks, "notebook servers: start Jupyter right here", engine.traits)
