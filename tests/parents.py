"""Runs that are made of runs, as their executors write them down: without an executor, so that a test says
what has happened."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import rundir, store
from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.program import Parent, Program, Step
from echelon.model.run import Record, RunRef
from echelon.notebook.kept.folder import PRIVATE, PipelineFolder, PipelineRecord, StepRecord, write_record
from echelon.preparation.prepare import Prepared
from echelon.submit import submit


@dataclass(frozen=True, slots=True)
class Written:
    """A parent of this machine."""

    record: Record
    folder: RunDir

    def tell(self, *steps: Step) -> None:
        """The executor says how steps stand."""
        store.append_event(self.folder, Event(kind="steps", at=time.time(), steps=steps))

    def end(self, event: Event) -> None:
        """The supervisor writes down the end."""
        store.append_event(self.folder, event)
        store.write_final(self.folder, event)

    def keep(self, **steps: StepRecord) -> None:
        """The executor writes down what it goes on by."""
        folder = PipelineFolder(Path(self.record.results))
        folder.path.mkdir(parents=True, exist_ok=True)
        assert self.record.job.program is not None
        kept = PipelineRecord(
            name=folder.name, notebook=self.record.job.program.source, created=1.0, steps=steps
        )
        write_record(folder, kept)


@contextmanager
def at_work(
    name: str, *steps: Step, notebook: Path = Path("/home/ann/book.ipynb"), **more: str
) -> Iterator[Written]:
    """A parent of this machine whose supervisor and executor are there inside this context. Unless its end
    was written down, both are killed at the end of it."""
    program = Program(title="notebook", source=str(notebook), private=PRIVATE, **more)
    record = Record(
        ref=RunRef(engine="local", name=name),
        job=Job(name=name, command=("executor",), framework="plain", program=program),
        created=time.time(),
        owner="ann",
        results=str(notebook.parent / "runs" / name),
    )
    folder = LocalEngine().store.create(record, secret="secret", bundle=None)
    folder.supervisor.write_text("{}")
    made = Written(record, folder)
    with rundir.hold(folder) as lock:
        assert lock is not None
        kept = os.dup(lock)  # as the supervisor has it: others may look whether it is held
    try:
        for kind in ("admitted", "worker-running"):
            store.append_event(folder, Event(kind=kind, at=time.time(), worker=0))  # type: ignore[arg-type]
        made.tell(*steps)
        yield made
    finally:
        os.close(kept)


class Played(MemoryEngine):
    """Parents and steps that are played; each runs until it is stopped, or `load` has ended."""

    def __init__(self) -> None:
        lines = ("loaded", "loss=0.5 step=1")
        super().__init__(
            {
                "parent.py": Act(lasts=True),
                "load.py": Act(lines=lines),
                "train.py": Act(lasts=True),
                "alone.py": Act(),
            }
        )

    def add_parent(self, name: str, *steps: Step) -> None:
        self._add(
            Job(name=name, program=Program(title="notebook", source="/home/ann/book.ipynb")), "parent.py"
        )
        self.tell(name, *steps)

    def add_steps(self, parent: str, *steps: str) -> None:
        for step in steps:
            job = Job(name=f"{parent}-{step}", parent=Parent(run=parent, step=step))
            self._add(job, f"{step}.py")

    def add(self, name: str) -> None:
        self._add(Job(name=name), "alone.py")

    def tell(self, name: str, *steps: Step) -> None:
        with self._changed:
            self._tell(self._runs[name], "steps", steps=steps)

    def _add(self, job: Job, script: str) -> None:
        submit(Prepared(job=replace(job, script=script, framework="plain")), self, stays=False)
