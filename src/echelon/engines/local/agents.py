"""Starting the agents of a run on this machine: all as forks of the supervisor, a replacement by itself.

Each agent has its own session, and is handed a few descriptors of its supervisor's and no others."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from echelon.agent import task as agent_task

_PROGRAM = Path(agent_task.__file__).with_name("__main__.py")


class Order(NamedTuple):  # importing `dataclasses` would cost every run its first milliseconds
    """One agent to be started: its options, the descriptors that are handed to it, the file of its output,
    and the variables that it has beside our own.
    """

    options: dict[str, str]
    descriptors: list[int]
    log: Path
    environment: dict[str, str]


class Agent:
    """The process of an agent."""

    def __init__(self, pid: int, process: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self._process = process  # kept, since it warns when it is dropped before its end

    def ended(self, code: int) -> None:
        """Note that the process was reaped."""
        if self._process is not None:
            self._process.returncode = code


def start(task: Path, order: Order) -> Agent:
    """Start one agent."""
    words = [word for option in order.options.items() for word in option]
    with order.log.open("ab") as log:
        process = subprocess.Popen(
            _command(str(task), *words),
            env={**os.environ, **order.environment},
            stdin=None,
            stdout=log,
            stderr=log,
            pass_fds=order.descriptors,
            start_new_session=True,
        )
    return Agent(process.pid, process)


def start_together(task: Path, orders: Sequence[Order]) -> list[Agent]:
    """Start agents as forks of this process, which imports once what all of them need (`agent/several.py`).
    Returns those that were started, in order; fewer than were wanted if no more processes can be made.
    """
    from echelon.agent import several
    from echelon.agent.__main__ import live

    for order in orders:
        order.log.touch()  # what is wrong with the disk is an error of ours, not an agent's
    several.import_agent()
    started: list[Agent] = []
    with contextlib.suppress(OSError):
        for order in orders:
            run = partial(live, str(task), order.options)
            pid = several.fork_agent(order.descriptors, str(order.log), order.environment, run)
            started.append(Agent(pid))
    return started


def _command(*words: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(_PROGRAM), *words]
