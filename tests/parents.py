"""Runs that are made of runs, without an executor: what it would tell is told by the test."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelon.engines.abilities import required
from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.engines.local.engine import LocalEngine
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.handle import Run
from echelon.model.engine.traits import Traits, Where
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.program import Parent, Program, Step
from echelon.model.run import Record, RunRef
from echelon.preparation.prepare import Prepared
from echelon.submit import submit
from tests.conftest import PATIENCE, wait_until

NOTEBOOK = Program(title="notebook", source="/home/ann/train.ipynb", wind_up=1.0)
IN_CLUSTER = replace(NOTEBOOK, place="the cluster", context="c", namespace="team")
_UNTIL = "until test -e end-$0; do sleep 0.02; done; exit $(cat end-$0)"


def parent(*steps: Step, name: str = "t-1", program: Program = NOTEBOOK) -> Run:
    """One that goes on until it is ended."""
    job = Job(
        name=name,
        command=("sh", "-c", _UNTIL, name),
        framework="plain",
        program=program,
        cwd=str(Path.cwd()),
        grace=1.0,
    )
    run = submit(Prepared(job=job), LocalEngine(), stays=False)
    if steps:
        tell(run, *steps)
    wait_until(lambda: run.status().state == "running", "the executor")
    return run


def tell(run: Run, *steps: Step, **more: Any) -> None:
    """What its executor has to say of its steps."""
    engine = LocalEngine()
    programs = required(engine.programs, "runs of runs", engine.traits)
    event = Event(kind="steps", at=time.time(), steps=steps, **more)
    programs.tell(RunRef(engine=LOCAL, name=run.name), event)


def end(run: Run, code: int = 0) -> None:
    """Let its executor exit."""
    Path(f"end-{run.name}").write_text(str(code))
    run.wait(PATIENCE, show=False)


def kill(run: Run) -> None:
    """Kill its executor."""
    wait_until(lambda: run.status().workers[0].rank_pids, "the executor's process")
    os.kill(next(iter(run.status().workers[0].rank_pids.values())), signal.SIGKILL)
    run.wait(PATIENCE, show=False)


def step_run(step: str, *command: str, of: str = "t-1", name: str = "", engine: Engine | None = None) -> Run:
    """The run of a step, which has ended unless it is given a command that has not."""
    job = Job(
        name=name or f"{of}-{step}",
        command=command or ("true",),
        framework="plain",
        parent=Parent(run=of, step=step),
        cwd=str(Path.cwd()),
    )
    run = submit(Prepared(job=job), engine or LocalEngine(), stays=False)
    if not command:
        run.wait(PATIENCE, show=False)
    return run


class Cluster(MemoryEngine):
    """A cluster whose runs are played: `true` ends at once, `sleep` when it is stopped."""

    traits = Traits(place="the cluster", remote=True, shared=True)

    def __init__(self, context: str = "c", namespace: str = "team") -> None:
        super().__init__({"true": Act(), "sleep": Act(lasts=True)})
        self.where = Where(context, namespace)

    def read(self, ref: RunRef) -> Record:
        from echelon.engines.base import current_user

        return replace(super().read(ref), user=current_user())


def put_there(monkeypatch: pytest.MonkeyPatch, cluster: Engine, places: Sequence[str] = ()) -> None:
    """Let the modules that look for a cluster find this one."""

    def choose(
        place: str | None = None, *, context: str | None = None, namespace: str | None = None, **more: Any
    ) -> Engine:
        if place not in (CLUSTER, "memory"):
            return choose_engine(place, context=context, namespace=namespace, **more)
        wanted = (context or cluster.where.context, namespace or cluster.where.namespace)
        return cluster if cluster.where == wanted else Cluster(*wanted)

    for module in (
        "finding",
        "steps",
        "observation.step_runs",
        "children",
        "preparation.sources",
        "api",
        *places,
    ):
        monkeypatch.setattr(f"echelon.{module}.choose_engine", choose)
