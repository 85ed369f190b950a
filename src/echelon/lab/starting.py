"""Pipeline runs that the panel starts: each is the command `echelon notebook run`, as a process that goes on
when the Jupyter server or the browser ends."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import IO

from echelon.engines.choose import CLUSTER, LOCAL
from echelon.errors import EchelonError, RunExists
from echelon.lab.requests import Asked
from echelon.lab.state import newest_run
from echelon.notebook.kept.folder import PipelineRecord, is_held
from echelon.notebook.kept.noted import Noted, noted_pipelines

_PULSE = 0.1  # seconds between two looks for the run
_PATIENCE = 120.0  # seconds until a run must be there
_OF_CLUSTER = ("image", "volume", "context", "namespace")
_SHOWN = 4000  # characters of what a command said that did not come to start


class StartFailed(EchelonError):
    """The command ended before there was a run; the message is what it said."""


def command_of(notebook: Path, asked: Asked, python: str | None) -> list[str]:
    """The command, as a user would type it in the notebook's folder; `python` is for its steps here."""
    words = [sys.executable, "-m", "echelon", "notebook", "run", str(notebook)]
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


def continued(asked: Asked, record: PipelineRecord) -> Asked:
    """A run goes on where it is."""
    return replace(asked, context=record.context or None, namespace=record.namespace or None)


class Starter:
    """Starts pipeline runs, and remembers their processes, so that none stays a zombie."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, notebook: Path, asked: Asked, python: str | None) -> str:
        """Start a run and return its name; raises StartFailed if the command refuses."""
        self._processes = [each for each in self._processes if each.poll() is None]
        newest = newest_run(notebook)
        if asked.start is not None and newest is not None and is_held(newest.folder):
            raise RunExists(f"{newest.record.name} runs now", hint="wait for its end, or stop it")
        if asked.start is not None and newest is not None:
            asked = continued(asked, newest.record)
        before = {found.record.name for found in noted_pipelines()}
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command_of(notebook, asked, python),
                cwd=notebook.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # of the ranks: their runs keep it
                stderr=said,
                start_new_session=True,
            )
            self._processes.append(process)
            deadline = time.monotonic() + _PATIENCE
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise StartFailed(
                        "the run is not there yet", hint="the command goes on; look again later"
                    )
                if (found := _begun(notebook, asked, before)) is not None:
                    return found.record.name
                time.sleep(_PULSE)
            found = newest_run(notebook)
            if found is not None and (found.record.name not in before or process.returncode == 0):
                return found.record.name  # it was quick
            raise StartFailed(_told(said))


def _begun(notebook: Path, asked: Asked, before: Collection[str]) -> Noted | None:
    found = newest_run(notebook)
    if found is None or (asked.start is None and found.record.name in before):
        return None
    return found if is_held(found.folder) else None


def _told(said: IO[bytes]) -> str:
    said.seek(0)
    return said.read().decode("utf-8", "replace")[-_SHOWN:].strip() or "the command said nothing"
