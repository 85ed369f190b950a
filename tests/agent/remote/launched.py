"""Real agents of workers with different numbers of ranks, whose command starts once, on worker 0. Each
worker has an address of its own, as in pods, so that all but worker 0 are reached through the remote
shell.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from tests.agent.conftest import Agents
from tests.conftest import PATIENCE

from echelon.frameworks.mpi import launch
from echelon.model.output.log import LogLine, parse_line
from echelon.model.plan import Launch
from echelon.model.world import Group, World

SLOTS = (2, 1, 3)


def describe(agents: Agents, made: Launch, **more: object) -> None:
    """Write the task of a launcher for workers with these numbers of ranks."""
    agents.task["groups"] = [
        {
            "role": "worker",
            "workers": 1,
            "procs": procs,
            "launch": {
                "argv": list(made.argv),
                "per": made.per,
                "wiring": dict(made.wiring),
                "files": dict(made.files),
                "env": dict(made.env),
            },
        }
        for procs in SLOTS
    ]
    agents.describe_again(**more)


def mpi(argv: Sequence[str]) -> Launch:
    """As the framework does it."""
    return launch(argv, World(groups=tuple(Group(workers=1, procs=procs) for procs in SLOTS)), 0)


def start_all(agents: Agents, monkeypatch: pytest.MonkeyPatch, workers: int = len(SLOTS)) -> None:
    for worker in range(workers):
        start(agents, monkeypatch, worker)


def start(agents: Agents, monkeypatch: pytest.MonkeyPatch, worker: int, failures: int = 0) -> None:
    monkeypatch.setenv("ECHELON_POD_IP", f"127.0.0.{worker + 1}")
    agents.start(worker, failures=failures, python=_on_host(agents, f"pod-{worker}"))


def _on_host(agents: Agents, name: str) -> str:
    """A Python that runs on a host of that name, as in a pod, where that can be: a host has one daemon of
    mpirun, which keeps its files by the host's name.
    """
    if os.geteuid() or shutil.which("unshare") is None:
        return sys.executable
    path = agents.folder / f"python-{name}"
    path.write_text(
        f'#!/bin/sh\nexec unshare --uts sh -c \'hostname {name}; exec {sys.executable} "$@"\' sh "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def lines(agents: Agents, workers: int = len(SLOTS)) -> list[tuple[int | None, int, str]]:
    """What was written, with its rank and the worker that has it, in no order."""
    parsed = (parse_line(raw, worker) for worker in range(workers) for raw in agents.output(worker))
    found = [(each.rank, each.worker, each.text) for each in parsed if isinstance(each, LogLine)]
    return sorted(found, key=lambda line: (-1 if line[0] is None else line[0], line[1:]))


def verdict(agents: Agents, workers: int = len(SLOTS)) -> dict[str, Any]:
    """Wait for all agents to end."""
    for worker in range(workers):
        agents.processes[worker].wait(2 * PATIENCE)
    return agents.verdict()
