"""A run that is made of runs, whose executor is the test: it starts the steps, and tells how they stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, Program
from echelon.handle import Run
from echelon.model import ends, program
from echelon.model.event import Event, RootCause
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.model.program import Parent, Step
from echelon.model.run import RunRef
from echelon.model.step_names import run_name
from echelon.submit import Prepared, submit


class Pipeline:
    """On the memory engine."""

    def __init__(self, *steps: str, name: str = "book-1") -> None:
        self.name = name
        self.engine = MemoryEngine({"executor": Act(lasts=True)})
        job = Job(
            name=name,
            command=("executor",),
            framework="plain",
            program=program.Program(title="notebook", source="/home/me/book.ipynb"),
        )
        self.run = submit(Prepared(job=job), self.engine)
        self.steps = {step: Step(name=step) for step in steps}
        self.tell(*steps)

    def tell(self, *steps: str) -> None:
        """Tell how these steps stand."""
        self._event("steps", steps=tuple(self.steps[step] for step in steps))

    def change(self, step: str, **how: Any) -> None:
        """A step stands otherwise than before."""
        self.steps[step] = replace(self.steps[step], **how)
        self.tell(step)

    def begin(self, step: str, act: Program | None = None, **more: Any) -> Run:
        """Start a step: one that lasts, unless it is said what it does."""
        name = run_name(self.name, step)
        self.engine._programs[f"{step}.py"] = act or Act(lasts=True)
        job = Job(
            name=name,
            script=f"{step}.py",
            framework="plain",
            parent=Parent(run=self.name, step=step),
            **more,
        )
        self.engine.results.pop(f"runs/{name}", None)
        run = submit(Prepared(job=job), self.engine, replace=True)
        self.change(step, state="running", run=run.uri, started=1.0)
        return run

    def resume(self, step: str, act: Program) -> None:
        """Start a step again that has failed, in the same run."""
        self.engine._programs[f"{step}.py"] = act
        Run(RunRef(engine="memory", name=run_name(self.name, step)), self.engine).resume()
        self.change(step, state="running", ended=None)

    def write(self, step: str, *lines: str, rank: int = 0, **more: Any) -> None:
        """A rank of a step writes something; without a step, the executor."""
        name = run_name(self.name, step) if step else self.name
        with self.engine._changed:
            run = self.engine._runs[name]
            for text in lines:
                run.lines.append(LogLine(text=text, at=self.engine._now(), worker=rank, rank=rank, **more))
            self.engine._changed.notify_all()

    def end(self, step: str, state: Any = "succeeded", **how: Any) -> None:
        """A step has ended."""
        with self.engine._changed:
            run = self.engine._runs[run_name(self.name, step)]
            if not run.ended:
                run.events.append(ends.succeeded(at=self.engine._now()))
                self.engine._changed.notify_all()
        self.change(step, state=state, ended=4.2, **how)

    def finish(self) -> None:
        """All is over."""
        with self.engine._changed:
            self.engine._runs[self.name].events.append(ends.succeeded(at=self.engine._now()))
            self.engine._changed.notify_all()

    def fail(self, cause: RootCause) -> None:
        """Its executor has failed."""
        self._event("failed", cause=cause)
        self._event("finished", cause=cause, outcome="failed", exit_code=1)
        with self.engine._changed:
            self.engine._changed.notify_all()

    def _event(self, kind: Any, **more: Any) -> Event:
        with self.engine._changed:
            run = self.engine._runs[self.name]
            self.engine._tell(run, kind, **more)
            return run.events[-1]
