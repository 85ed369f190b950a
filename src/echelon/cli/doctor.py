"""`echelon doctor`."""

from __future__ import annotations

import os

import click

from echelon.cli.options import target_options


@click.command("doctor", short_help="Say what this machine has, and what is missing for what.")
@target_options
def doctor(**target: str | None) -> int:
    """Say what this machine has, what is missing, what does not work without it, and what to do about it.

    Exits with 1 if something is missing without which nothing works.

    \b
    Examples:
      echelon doctor
      echelon doctor -o json
    """
    from echelon.cli import render
    from echelon.engines.choose import choose_engine
    from echelon.engines.local.checkup import check_up
    from echelon.submit import find_python

    choose_engine(target["on"])
    findings = render.findings(check_up(find_python(os.environ)), target["format"] or "text")
    return int(any(each.level == "missing" for each in findings))
