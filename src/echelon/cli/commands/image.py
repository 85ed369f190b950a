"""`echelon image build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from echelon.cli.options import target_of, target_options
from echelon.cli.printing.say import say

if TYPE_CHECKING:
    from echelon.image.build import Recipe
    from echelon.image.oci import Platform

_FILE = click.Path(path_type=Path)


@click.group("image", short_help="Build an image of the project, without Docker.")
def image() -> None:
    """Build an image of the project, without Docker.

    Runs never need one: code is shipped and any image with Python will do. It is for those who want code and
    packages in one image, of a known digest.

    \b
    Examples:
      echelon image build --base python:3.12 --push registry.example.org/me/trainer:1
    """


@image.command("build", short_help="Put the project and its packages on a base image, and push it.")
@click.argument("project", type=click.Path(path_type=Path), default=Path())
@click.option("--base", metavar="REF", help="the image to build on, or oci-archive:FILE")
@click.option("--push", metavar="REF", default="", help="push the image there")
@click.option("--to", metavar="FILE", type=_FILE, help="write an OCI archive")
@click.option(
    "--name", metavar="REF", default="", help="the image's name in the archive, if it is not pushed"
)
@click.option(
    "--include", metavar="PATTERN", multiple=True, help="add these files even if .gitignore excludes them"
)
@click.option("--pip", metavar="PACKAGE", multiple=True, help="install this package")
@click.option(
    "--requirements", metavar="FILE", type=_FILE, multiple=True, help="install what this file lists"
)
@click.option("--no-deps", is_flag=True, help="install only what is named: the base has what that needs")
@click.option(
    "--python", metavar="X.Y", default="", help="the base's Python (default: what its PYTHON_VERSION says)"
)
@click.option(
    "--libc",
    metavar="NAME",
    default="glibc-2.28",
    show_default=True,
    help="the base's C library, or musl-1.2",
)
@click.option(
    "--platform",
    metavar="OS/ARCH",
    help="for example linux/arm64 (default: what the cluster has with --on k8s, else linux/amd64)",
)
@click.option("--plain-http", metavar="HOST", multiple=True, help="talk to this registry without TLS")
@click.option("-f", "--file", "dockerfile", metavar="FILE", type=_FILE, help="build this Dockerfile instead")
@target_options
def build(project: Path, dockerfile: Path | None, platform: str | None, **options: Any) -> int:
    """Put the project and its packages on a base image, and push it; no Docker, no root, nothing unpacked.

    PROJECT is a folder of it, or a script (default: the working folder). What is added is what a run would
    ship, in /workspace, and the packages, in /echelon/site. The same input gives the same digest. With -f
    the work is handed to buildctl, podman or docker, whichever is here.

    \b
    Examples:
      echelon image build --base python:3.12 --push registry.example.org/me/trainer:1
      echelon image build --base nvcr.io/nvidia/pytorch:25.01-py3 --python 3.12 --pip einops --no-deps \\
          --push registry.example.org/me/trainer:2
      echelon image build --base oci-archive:base.tar --to trainer.tar --name me/trainer:1
      echelon image build -f Dockerfile --push registry.example.org/me/trainer:3
    """
    _end_tidily()
    format_ = options["format"] or "text"
    wanted = _platform(platform, options)
    if dockerfile is not None:
        _hand_over(dockerfile, project, wanted, options, format_)
        return 0
    if not options["base"]:
        raise click.UsageError("Missing option '--base' (or -f for a Dockerfile).")
    from echelon.bundle import find_project

    return _build(_recipe(options, wanted, project=find_project(project)), format_)


def _recipe(options: dict[str, Any], platform: Platform | None, *, project: Path) -> Recipe:
    from echelon.image.build import Recipe

    return Recipe(
        base=options["base"],
        project=project,
        push=options["push"],
        to=options["to"],
        name=options["name"],
        include=options["include"],
        packages=options["pip"],
        requirements=options["requirements"],
        dependencies=not options["no_deps"],
        python=options["python"],
        libc=options["libc"],
        platform=platform,
        plain_http=options["plain_http"],
    )


def _build(recipe: Recipe, format_: str) -> int:
    from echelon.cli.printing import render
    from echelon.image.build import build

    built = build(recipe, render.notice)
    for note in built.notes:
        render.notice(note)
    if format_ == "text":
        say(built.image or built.archive)
    else:
        render.data(built, format_)
    return 0


def _platform(text: str | None, options: dict[str, Any]) -> Platform | None:
    if text:
        from echelon.image.oci import parse_platform

        return parse_platform(text)
    from echelon.engines.choose import CLUSTER, LOCAL
    from echelon.preparation.sources import engine_at

    engine = engine_at(target_of(options), default=CLUSTER if options["context"] else LOCAL)
    found = engine.platforms()
    if found is None:
        return None
    from echelon.image.oci import choose_platform

    return choose_platform(found)


def _hand_over(
    dockerfile: Path, project: Path, platform: Platform | None, options: dict[str, Any], format_: str
) -> None:
    from echelon.cli.printing import render
    from echelon.image.dockerfile import Handover, hand_over
    from echelon.image.reference import parse_reference

    ours = [f"--{name}" for name in ("base", "include", "pip", "requirements", "python") if options[name]]
    if ours:
        raise click.UsageError(f"{', '.join(ours)} cannot go with -f: say it in the Dockerfile.")
    if not options["push"] and not (options["to"] and options["name"]):
        raise click.UsageError("Say --push REF, or --to FILE and --name REF.")
    name = str(parse_reference("push" if options["push"] else "name", options["push"] or options["name"]))
    work = Handover(
        dockerfile=dockerfile,
        context=project,
        name=name,
        push=bool(options["push"]),
        to=options["to"],
        platform=platform,
    )
    builder = hand_over(work)
    archive = str(options["to"] or "")
    if format_ == "text":
        say(name if options["push"] else archive)
    else:
        render.data({"image": name, "builder": builder, "archive": archive}, format_)


def _end_tidily() -> None:
    """Let SIGTERM end the work as Ctrl-C does: folders and half an archive are removed on the way out."""
    import signal
    import sys

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
