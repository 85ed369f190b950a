"""Runs that are made of runs, played: what their executors would tell is told by the test."""

from __future__ import annotations

from dataclasses import replace

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.model.engine.traits import Traits, Where
from echelon.model.job import Job
from echelon.model.program import Parent, Program, Step
from echelon.preparation.prepare import Prepared
from echelon.submit import submit

_LOADED = ("loaded", "loss=0.5 step=1")
LOAD = Step(name="load", state="succeeded", run="memory://book-1-load", started=1.0, ended=3.0)
TRAIN = Step(name="train", after=("load",), gets={"load": ("x",)}, size="2 workers, torch")


class Played(MemoryEngine):
    """Parents go on until they are stopped, and so does the step `train`; `load` has ended."""

    def __init__(self) -> None:
        lasting = dict.fromkeys(("parent.py", "train.py"), Act(lasts=True))
        super().__init__({**lasting, "load.py": Act(lines=_LOADED), "alone.py": Act()})

    def add_parent(self, name: str, *steps: Step) -> None:
        program = Program(title="notebook", source="/home/ann/book.ipynb")
        self._add(Job(name=name, program=program), "parent.py")
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


class PlayedCluster(Played):
    """The same in a cluster; parents of its steps are on this machine."""

    traits = Traits(place="the cluster", remote=True)
    where = Where("c", "team")
