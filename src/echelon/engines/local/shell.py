"""A shell with the environment of a rank of this machine: a child of this process, on its own terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from echelon.agent.ranks import shell
from echelon.engines.abilities import choose_rank
from echelon.engines.job_secrets import read_secrets
from echelon.engines.local.folder import store
from echelon.engines.local.folder.store import RunStore
from echelon.errors import InvalidJob, Unavailable
from echelon.model.job import Job
from echelon.model.run import RunRef

_AGENT = Path(shell.__file__).parents[1] / "__main__.py"


class LocalShell:
    """Shells beside the ranks of local runs."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs

    def enter(
        self, ref: RunRef, command: Sequence[str] = (), *, worker: int | None = None, rank: int | None = None
    ) -> int:
        """Run a command with the environment of a rank."""
        folder = self._runs.find(ref.name)
        record = store.read_record(folder)
        chosen = choose_rank(record, worker, rank)
        if not Path(shell.path_of(str(folder.path), chosen.rank)).exists():
            raise Unavailable(
                f"rank {chosen.rank} of run {ref.name!r} does not run",
                hint=f"`echelon status {ref.name}` shows which ranks do",
            )
        words = [sys.executable, "-I", "-S", str(_AGENT), "shell", str(folder.task), str(chosen.rank)]
        environment = {**os.environ, **_secrets(record.job)}
        with _leaving_interrupts_to_it():
            code = subprocess.call([*words, *command], env=environment)
        return 128 - code if code < 0 else code


def _secrets(job: Job) -> dict[str, str]:
    """A run's secrets, from where it took them; one that is not there any more does not bar the way."""
    try:
        return read_secrets(job, os.environ)
    except InvalidJob:
        return {}


@contextlib.contextmanager
def _leaving_interrupts_to_it() -> Iterator[None]:
    """Ctrl-C is for the command; a handler, unlike SIG_IGN, is not passed on to it."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
