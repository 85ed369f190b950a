"""`echelon volume`: what a cluster keeps when pods are gone; listed, made and removed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from echelon.cli.options import target_of, target_options
from echelon.cli.printing.say import say
from echelon.model.engine.volume import MODES, check_unused

if TYPE_CHECKING:
    from echelon.engines.abilities import Volumes
    from echelon.model.engine.volume import Volume

_SHORT = {mode: short.upper() for short, mode in MODES.items()}


@click.group("volume", short_help="List, create and remove a cluster's volumes.")
def volume() -> None:
    """List, create and remove volumes of a cluster's namespace: what stays when pods are gone.

    \b
    Examples:
      echelon volume create data --size 20Gi --mode rwx
      echelon cp ./data pvc:data
      echelon run --on k8s --mount pvc:data:/data:ro train.py
    """


@volume.command("ls", short_help="List volumes, and who uses them.")
@target_options
def list_all(**target: str | None) -> int:
    """List the volumes of the namespace: how large, how they may be used, what becomes of their data when
    they are removed, and who uses them.

    \b
    Examples:
      echelon volume ls
      echelon volume ls -o json
    """
    from echelon.cli.printing import render

    volumes = _volumes(target)
    found = volumes.list_all()
    if (format_ := target["format"] or "text") != "text":
        render.data(found, format_)
    elif found:
        heads = ("NAME", "STATUS", "CAPACITY", "MODE", "CLASS", "RECLAIM", "AGE", "USED BY")
        render.table(heads, map(_row, found))
    else:
        render.notice(f"no volumes in {volumes.place}")
    return 0


@volume.command("create", short_help="Create a volume.")
@click.argument("name")
@click.option("--size", default="10Gi", show_default=True, metavar="SIZE", help="how much it holds")
@click.option(
    "--mode",
    type=click.Choice(list(MODES)),
    default="rwo",
    show_default=True,
    help="who may use it: pods of one node (rwo), of many (rwx), of many to read (rox), one pod (rwop)",
)
@click.option("--class", "storage_class", metavar="NAME", help="the storage class (default: the cluster's)")
@click.option("--label", "marks", multiple=True, metavar="KEY=VALUE", help="a label for it")
@target_options
def create(
    name: str,
    size: str,
    mode: str,
    storage_class: str | None,
    marks: Sequence[str],
    **target: str | None,
) -> int:
    """Make a volume. Many clusters give it its storage when a pod first uses it; until then it is Pending.

    \b
    Examples:
      echelon volume create data --size 20Gi --mode rwx
      echelon volume create work --class fast --label team=vision
    """
    from echelon.cli.printing import render
    from echelon.model.pods.pod import parse_node_selector, parse_object_name
    from echelon.model.resources import parse_size

    made = _volumes(target).create(
        parse_object_name("volume", name),
        size=parse_size("size", size),
        mode=MODES[mode],
        storage_class=storage_class,
        labels=parse_node_selector(_labels(marks)),
    )
    if (format_ := target["format"] or "text") != "text":
        render.data(made, format_)
    else:
        say(made.name)
    return 0


@volume.command("rm", short_help="Remove volumes that are not in use.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="do not ask")
@target_options
def remove(names: tuple[str, ...], yes: bool, **target: str | None) -> int:
    """Remove volumes that are not in use, and, where their class says so, the data on them.

    \b
    Examples:
      echelon volume rm data
      echelon volume rm --yes scratch1 scratch2
    """
    from echelon.cli.printing import render

    volumes = _volumes(target)
    chosen = [volumes.read(name) for name in dict.fromkeys(names)]
    for each in chosen:  # all of them, before the first is gone
        check_unused(each)
    if not yes:
        _confirm(chosen)
    for each in chosen:
        volumes.remove(each.name)  # looked at again: a person may take long to confirm
    render.removed([each.name for each in chosen], target["format"] or "text")
    return 0


def _confirm(chosen: Sequence[Volume]) -> None:
    from echelon.cli.printing.say import confirm_deletion

    fate = {"Delete": "its data is deleted", "Retain": "its data is kept by the cluster"}
    about = [
        f"{each.name}: {_size(each)}, {fate.get(each.reclaim or '', 'its data may be deleted')}"
        for each in chosen
    ]
    question = f"Remove {len(chosen)} volume{'s' * (len(chosen) != 1)}?"
    confirm_deletion(question, about, if_none="the data may go")


def _row(each: Volume) -> tuple[str, ...]:
    from echelon.cli.printing.words import duration

    users = [*each.runs, *(pod for pod in each.pods if not _is_run_s(pod, each.runs))]
    return (
        each.name,
        each.status,
        _size(each),
        ",".join(_SHORT.get(mode, mode) for mode in each.modes),
        each.storage_class or "-",
        each.reclaim or "unknown",
        duration(time.time() - each.created),
        ", ".join(users) or "-",
    )


def _is_run_s(pod: str, runs: Sequence[str]) -> bool:
    return any(pod.startswith(f"{run}-") for run in runs)


def _size(each: Volume) -> str:
    from echelon.model.resources import format_memory

    return format_memory(each.size)


def _labels(words: Sequence[str]) -> dict[str, str]:
    from echelon.errors import InvalidJob

    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not equals:
            raise InvalidJob("label", name, "has no value", hint="write KEY=VALUE, as in team=vision")
    return {name: value for name, _, value in pairs}


def _volumes(target: Mapping[str, str | None]) -> Volumes:
    from echelon.engines.abilities import required
    from echelon.engines.choose import CLUSTER
    from echelon.preparation.sources import engine_at

    engine = engine_at(target_of(target), default=CLUSTER)
    return required(engine.volumes, "volumes", engine.traits)
