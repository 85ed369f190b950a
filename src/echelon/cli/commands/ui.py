"""`echelon ui`."""

from __future__ import annotations

import contextlib
import html
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import click

from echelon.cli.options import target_of, target_options


@click.command("ui", short_help="Show runs in the browser: logs, curves, GPUs.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="the port (default: any that is free)",
)
@click.option("--read-only", is_flag=True, help="without buttons that stop or remove runs")
@click.option("--no-browser", is_flag=True, help="only print the address")
@target_options
def ui(port: int, read_only: bool, no_browser: bool, **target: str | None) -> int:
    """Show runs on a web page of this machine until Ctrl-C: their state, logs and curves as they come, why
    one failed, results to download, and who holds which GPUs.

    Only this machine reaches it, and only with the address that is printed, which holds a secret. An open
    page changes nothing: what it shows is read, as `ps`, `status` and `logs` read it.

    \b
    Examples:
      echelon ui
      echelon ui --on k8s --read-only
      echelon ui --port 8123 --no-browser
    """
    from echelon.cli.printing import render
    from echelon.cli.printing.say import say
    from echelon.preparation.sources import engine_at
    from echelon.ui import load_server

    server = load_server().Server(engine_at(target_of(target)), port=port, read_only=read_only)
    format_ = target["format"] or "text"
    if format_ != "text":
        render.data({"address": server.address}, format_)
    else:
        say(server.address)
        render.notice("open this address in a browser; Ctrl-C stops the page, not the runs")
    with contextlib.ExitStack() as stack:
        if not no_browser and format_ == "text" and _has_browser():
            stack.enter_context(_opened(server.address))
        server.run()
    return 0


def _has_browser() -> bool:
    """Whether there is a screen to show one on; browsers for terminals are none."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


@contextlib.contextmanager
def _opened(address: str) -> Iterator[None]:
    """Have the browser open a file of this user's alone that leads to the address, until the end: the token
    is on no command line, which other users could list.
    """
    with tempfile.TemporaryDirectory(prefix="echelon-ui-") as folder:
        page = Path(folder) / "open.html"
        page.touch(mode=0o600)
        page.write_text(
            f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" '
            f'content="0; url={html.escape(address)}"><title>echelon</title>',
            encoding="utf-8",
        )
        webbrowser.open(page.as_uri())
        yield
