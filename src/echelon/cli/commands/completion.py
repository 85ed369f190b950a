"""`echelon completion`."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

_WHERE = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/echelon.fish"}


@click.command("completion", short_help="Print the shell's completion script.")
@click.argument(
    "shell",
    type=click.Choice(list(_WHERE)),
    default=lambda: Path(os.environ.get("SHELL", "bash")).name,
)
def completion(shell: str) -> int:
    """Print what makes the shell complete commands, flags and the names of runs.

    \b
    Examples:
      echelon completion bash >> ~/.bashrc
      echelon completion fish > ~/.config/fish/completions/echelon.fish
    """
    from echelon.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "echelon", "_ECHELON_COMPLETE").source())
    return 0
