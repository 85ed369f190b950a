"""`echelon cp`: files between this machine and a cluster's volumes, or from a run's results."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from echelon.cli.options import find_run, target_of, target_options
from echelon.cli.printing.say import say
from echelon.model.job import is_name
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.handle import Run
    from echelon.model.copy import Copied, LeftOut
    from echelon.model.pods.pod import PodOptions

_SHOWN = 20  # files that are named when something is left out


@frozen
class Location:
    """One end of a copy, as it was typed; `name` is the volume's or the run's."""

    kind: Literal["local", "volume", "run"]
    text: str
    name: str = ""
    path: str = ""
    content: bool = False  # what is in the folder, not the folder


@click.command("cp", short_help="Copy files to and from a cluster's volumes.")
@click.argument("source")
@click.argument("destination")
@click.option("--image", metavar="IMAGE", help="for the pod that copies: any with Python 3.8 or newer")
@target_options
def cp(source: str, destination: str, image: str | None, **target: str | None) -> int:
    """Copy a file or a folder to a volume (pvc:NAME/path) and back, or from a run's results (RUN:path).

    The rule is that of `cp -r`: into a folder that exists, else under the name that is given; SOURCE/. is
    what is in a folder, and so is a whole volume (pvc:NAME) or run (RUN:). What is there already and the same
    is not copied again; a copy to or from a volume that was cut off continues when the same command is given
    again. Every file is checked by its sha256.

    \b
    Examples:
      echelon cp data pvc:data/fashion-mnist     a new folder fashion-mnist, or fashion-mnist/data
      echelon cp data/. pvc:data/fashion-mnist   what is in data, always
      echelon cp pvc:results/run-7/ckpt .
      echelon cp RUN:logs logs/
      echelon cp RUN/STEP:logs logs/
    """
    ends = parse_place(source), parse_place(destination)
    kinds = tuple(end.kind for end in ends)
    if kinds == ("run", "local"):
        return _from_run(*ends, target)
    if kinds not in (("local", "volume"), ("volume", "local")):
        raise click.UsageError(
            "one of the two is on this machine, the other is pvc:NAME/path or, to copy from, RUN:path"
        )
    return _with_volume(*ends, image, target)


def parse_place(text: str) -> Location:
    """Read one end of a copy. A local file whose name has a colon in it is written ./NAME."""
    from echelon.model.pods.pod import parse_volume_path

    inside = text.endswith("/.")
    if text.startswith("pvc:"):
        on = parse_volume_path("volume", text.removesuffix("/.").rstrip("/"))
        path = on.path + "/" * text.endswith("/")
        return Location(kind="volume", text=text, name=on.claim, path=path, content=inside or not on.path)
    name, colon, path = text.partition(":")
    if colon and name and not _is_path(name) and not name.startswith(".") and not Path(text).exists():
        path = path.removesuffix("/.").rstrip("/") or "."
        return Location(kind="run", text=text, name=name, path=path, content=inside or path == ".")
    if not text:
        raise click.UsageError("an empty path names nothing")
    return Location(kind="local", text=text, content=inside or text in (".", ".."))


def _is_path(name: str) -> bool:
    """Whether what stands before a colon is of a path here, and no run, or step of a run (NAME/STEP)."""
    run, slash, step = name.partition("/")
    return bool(slash) and (not is_name(run) or not step or "/" in step or Path(run).exists())


def _with_volume(
    source: Location, destination: Location, image: str | None, target: Mapping[str, str | None]
) -> int:
    from echelon.cli.printing.progress import CopyProgress
    from echelon.engines.abilities import required
    from echelon.engines.choose import CLUSTER
    from echelon.preparation.sources import engine_at

    sends = destination.kind == "volume"
    volume = destination if sends else source
    if sends and not Path(source.text).exists():
        from echelon.errors import InvalidJob

        raise InvalidJob("source", source.text, "is not there", hint="check its spelling")
    engine = engine_at(target_of(target), default=CLUSTER)
    volumes = required(engine.volumes, "volumes", engine.traits)
    options = _pod_options(image)
    began = time.monotonic()
    # SIGTERM ends it as Ctrl-C does: the pod that copies must not stay behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with CopyProgress(volume.text) as show:
        try:
            if sends:
                here, content = Path(source.text), source.content
                copied = volumes.send(here, volume.name, volume.path, options, show, content=content)
            else:
                there, content = volume.path, source.content
                copied = volumes.fetch(volume.name, there, destination.text, options, show, content=content)
        except KeyboardInterrupt:
            show.notice("interrupted; the same command continues from here")
            raise
    return _report(copied, time.monotonic() - began, target["format"] or "text")


def _from_run(source: Location, destination: Location, target: Mapping[str, str | None]) -> int:
    from echelon.cli.printing import render

    began = time.monotonic()
    left_out: list[LeftOut] = []
    try:
        fetched = _fetch(find_run(source.name, target), source, Path(destination.text), left_out.append)
    finally:
        render.left_out(left_out)
    render.fetched(fetched, time.monotonic() - began, target["format"] or "text")
    return 0


def _fetch(run: Run, source: Location, to: Path, notice: Callable[[LeftOut], object]) -> Path:
    """Copy from a run's results by the rule of `cp -r`; `get` itself always copies into a folder."""
    if source.path == "." or (to.is_dir() and not source.content):
        return run.get(source.path, to, notice=notice)
    import tempfile

    from echelon.engines.results import copy_result
    from echelon.errors import ResultsIncomplete

    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=".echelon-partial-") as folder:
        trouble = None
        try:
            found = run.get(source.path, folder, notice=notice)
        except ResultsIncomplete as error:  # what came is copied
            found, trouble = Path(folder) / Path(source.path).name, error
        if found.is_dir():
            copy_result(found, ".", to)
        elif trouble is None:
            found.replace(to)
    if trouble is not None:
        raise trouble
    return to


def _pod_options(image: str | None) -> PodOptions:
    """What [tool.echelon] has for pods, as far as it concerns one that only copies."""
    from dataclasses import replace

    from echelon.model.meaning import to_job
    from echelon.model.settings import Settings
    from echelon.preparation.sources import find_surroundings, gather

    settings = gather(Settings(image=image), find_surroundings())
    settings = replace(settings, script=None, module=None, command=("cp",), args=None, roles=None)
    return to_job(settings, name="cp").pod


def _report(copied: Copied, seconds: float, format_: str) -> int:
    from echelon.cli.printing import render
    from echelon.cli.printing.words import duration, near, one_line
    from echelon.model.resources import format_memory

    if format_ != "text":
        render.data(
            {
                "target": copied.target,
                "files": copied.files,
                "bytes": copied.size,
                "there": copied.there,
                "seconds": round(seconds, 3),
                "left_out": copied.left_out,
                "changed": copied.changed,
            },
            format_,
        )
    else:
        say(copied.target if copied.target.startswith("pvc:") else near(copied.target))
        there = f", {copied.there} of them were there already" if copied.there else ""
        files = f"{copied.files} file{'s' * (copied.files != 1)}"
        render.notice(f"{files}, {format_memory(copied.size)} in {duration(seconds)}{there}")
    for number, each in enumerate(copied.left_out):
        if number == _SHOWN:
            render.notice(f"and {len(copied.left_out) - _SHOWN} more were not copied")
            break
        render.notice(f"not copied: {one_line(each.path)}: {each.why}")
    for path in copied.changed[:_SHOWN]:
        render.notice(f"was being written all the while, and may be torn: {one_line(path)}")
    return 1 if copied.left_out or copied.changed else 0
