"""`echelon top`."""

from __future__ import annotations

import sys

import click

from echelon.cli.options import target_options


@click.command("top", short_help="Show devices and who uses them, live.")
@click.option("--once", is_flag=True, help="show it once; this is also what a pipe gets")
@target_options
def top(once: bool, **target: str | None) -> int:
    """Show the machine's GPUs, CPUs and memory, and which run uses them, live until Ctrl-C.

    \b
    Examples:
      echelon top
      echelon top -o json
    """
    from echelon.cli import render
    from echelon.engines.choose import choose_engine
    from echelon.engines.local.engine import LocalEngine
    from echelon.engines.local.usage import measure_usage

    engine = choose_engine(target["on"])
    assert isinstance(engine, LocalEngine)
    format_ = target["format"] or "text"
    live = not once and format_ == "text" and sys.stdout.isatty()
    render.repeatedly(
        lambda: measure_usage(engine),
        lambda found: render.usage(found, format_),
        every=1.7 if live else None,
    )
    return 0
