"""The command: `python -m testbed up|down|status|reset|build|kubeconfig|node|api|image|controller|...`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable

from echelon.errors import EchelonError
from testbed import chromium, cluster, controllers, debian, images, programs, registry, versions
from testbed.paths import KUBECONFIG


def main() -> int:
    """Parse, one call, print."""
    words = _parser().parse_args()
    if getattr(words, "kubernetes", None):
        os.environ[versions.VARIABLE] = words.kubernetes
    actions: dict[str, Callable[[], str | None]] = {
        "up": _up,
        "down": cluster.down,
        "status": lambda: json.dumps(cluster.status(), indent=2),
        "reset": cluster.reset,
        "kubeconfig": lambda: str(KUBECONFIG),
        "build": lambda: _build_named(words.names) if words.names else _build(only_core=words.core),
        "node add": lambda: cluster.add_node(words.name),
        "node kill": lambda: cluster.kill_node(words.name),
        "node remove": lambda: cluster.remove_node(words.name),
        "api stop": cluster.stop_api,
        "api start": cluster.start_api,
        "image build": lambda: str(images.build(words.name)),
        "image load": lambda: cluster.load_image(words.name),
        "controller start": lambda: controllers.start(words.name),
        "controller stop": lambda: controllers.stop(words.name),
        "registry start": registry.start,
        "browser": chromium.install,
    }
    try:
        answer = actions[" ".join(filter(None, (words.command, getattr(words, "action", ""))))]()
    except EchelonError as error:
        print(f"testbed: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    if answer:
        print(answer)
    return 0


def _build(*, only_core: bool) -> str:
    """What every cluster needs comes first, then what only some tests ask for."""
    debian.install_packages()
    core = [*programs.ALWAYS, versions.current()]
    built = [programs.folder(name) for name in core]
    built += [images.build(name) for name in cluster.BASIC_IMAGES]
    if not only_core:
        others = (*images.RECIPES, *images.BELOW)
        built += [images.build(name) for name in others if name not in cluster.BASIC_IMAGES]
        built += [programs.folder(name) for name in versions.needed() if name not in core]
    return "\n".join(map(str, built))


def _build_named(names: list[str]) -> str:
    """Only these programs, which are those of controllers and of other versions of Kubernetes."""
    return "\n".join(str(programs.folder(name)) for name in names)


def _up() -> str:
    cluster.up()
    return f"export KUBECONFIG={KUBECONFIG}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="testbed", description="A real Kubernetes, for tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in {
        "up": "build what is missing, start the cluster, print the export line",
        "down": "end everything that was made, also after a crash",
        "status": "who started the cluster, its daemons, its nodes",
        "reset": "back to how it was after `up`",
        "kubeconfig": "the path of the administrator's kubeconfig",
        "build": "build every program and image that is missing, or the programs named, and start nothing",
        "browser": "install Chromium if there is none, and print its path",
    }.items():
        command = commands.add_parser(name, help=text)
        if name in ("up", "build"):
            command.add_argument("--kubernetes", metavar="VERSION", help="an older one, such as 1.31")
        if name == "build":
            command.add_argument("--core", action="store_true", help="only what `make test` needs")
            there = f"one of {', '.join(programs.SOURCES)}"
            command.add_argument("names", nargs="*", metavar="NAME", help=there)
    groups: dict[str, tuple[str, dict[str, str | None]]] = {
        "node": ("a node more, or less", {"add": "?", "kill": None, "remove": None}),
        "api": ("the API server goes away, and comes back", {"stop": "", "start": ""}),
        "image": ("container images for tests", {"build": None, "load": None}),
        "controller": ("controllers by name", {"start": None, "stop": None}),
        "registry": ("an image registry", {"start": ""}),
    }
    for group, (text, actions) in groups.items():
        each = commands.add_parser(group, help=text).add_subparsers(dest="action", required=True)
        for action, arity in actions.items():
            word = each.add_parser(action)
            if arity != "":
                word.add_argument("name", nargs=arity, default="" if arity else None)
    return parser


if __name__ == "__main__":
    sys.exit(main())
