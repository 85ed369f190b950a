"""Pipelines that the panel starts: by the command `echelon notebook run`, as a user would at a terminal. It
returns when the run is submitted; the run goes on when the Jupyter server or the browser ends."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from echelon.engines.choose import CLUSTER, LOCAL
from echelon.engines.decoding import decode
from echelon.errors import EchelonError
from echelon.lab.requests import RunRequest
from echelon.lab.state import newest_run, program_of
from echelon.model.program import Program
from echelon.values import frozen

_OF_CLUSTER = ("image", "volume", "context", "namespace")
_SHOWN = 4000  # characters of what a command said that submitted nothing


class StartFailed(EchelonError):
    """The command submitted no run; the message is what it said."""


@frozen
class _Submitted:
    name: str


def command_of(notebook: Path, asked: RunRequest, python: str | None) -> list[str]:
    """The command, as a user would type it in the notebook's folder; `python` is for its steps here."""
    words = [sys.executable, "-m", "echelon", "notebook", "run", "-d", "-o", "json", str(notebook)]
    words += ["--on", CLUSTER if asked.in_cluster else LOCAL]
    for name, text in asked.parameters.items():
        words += ["--param", f"{name}={text}"]
    if asked.no_gpus:
        words += ["--no-gpus"]
    if asked.start is not None:
        words += ["--from", asked.start]
    if asked.in_cluster:
        for name in _OF_CLUSTER:
            if text := getattr(asked, name):
                words += [f"--{name}", text]
    if python is not None and not asked.in_cluster:
        words += ["--python", python]
    return words


def continued(asked: RunRequest, program: Program) -> RunRequest:
    """A run goes on where it is."""
    return replace(asked, context=program.context or None, namespace=program.namespace or None)


def start(notebook: Path, asked: RunRequest, python: str | None) -> str:
    """Start a run, or go on with the newest one, and return its name; raises StartFailed if it is refused."""
    if asked.start is not None and (newest := newest_run(notebook)) is not None:
        asked = continued(asked, program_of(newest))
    done = subprocess.run(
        command_of(notebook, asked, python),
        cwd=notebook.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,  # who ends the server while it submits does not end it
        check=False,
    )
    try:
        return decode(done.stdout, _Submitted).name
    except msgspec.DecodeError:
        said = done.stderr.decode("utf-8", "replace")[-_SHOWN:].strip()
        raise StartFailed(said or "the command said nothing") from None
