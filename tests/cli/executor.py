"""A run that is made of runs, on this machine: the parent's program runs scripts as its steps.

It stands for an executor, as small as one can be: steps beside each other in a level, one level after the
other, and none after one that has failed; SIGINT and SIGTERM stop what runs. It is started as
`executor.py PARENT LEVEL ...`, a level being scripts with commas between."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder.store import append_event
from echelon.handle import Run
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.program import Parent, Program, Step
from echelon.model.step_names import run_name
from echelon.submit import Prepared, submit


def start(name: str, *levels: str) -> Run:
    """Start such a run, whose steps are named after their scripts."""
    job = Job(
        name=name,
        command=(sys.executable, str(Path(__file__).resolve()), name, *levels),
        framework="plain",
        cwd=str(Path.cwd()),
        results=str(Path("runs", name).absolute()),
        program=Program(title="notebook", source=str(Path("book.ipynb").absolute())),
    )
    return submit(Prepared(job=job), LocalEngine(), stays=False)


class Executor:
    """What the parent's program does."""

    def __init__(self, name: str, levels: list[list[str]]) -> None:
        self.name, self.levels = name, levels
        self.engine = LocalEngine()
        self.steps = {script: Step(name=script) for level in levels for script in level}
        self.runs: dict[str, Run] = {}
        self.stopped = False

    def tell(self, *changed: Step) -> None:
        """Tell how steps stand now."""
        self.steps |= {step.name: step for step in changed}
        event = Event(kind="steps", at=time.time(), steps=changed)
        append_event(self.engine.store.dir(self.name), event)

    def run(self) -> int:
        """Run all of them."""
        signal.signal(signal.SIGINT, self.stop)
        signal.signal(signal.SIGTERM, self.stop)
        self.tell(*self.steps.values())
        code = 0
        for level in self.levels:
            for script in level:
                if code or self.stopped:
                    self.tell(replace(self.steps[script], state="not-reached"))
                else:
                    self.begin(script)
            for script in level:
                code = self.end(script) or code
        return code

    def begin(self, script: str) -> None:
        """Start a step."""
        name = run_name(self.name, script)
        job = Job(
            name=name,
            script=str(Path(f"{script}.py").absolute()),
            python=sys.executable,
            framework="plain",
            cwd=str(Path.cwd()),
            results=str(Path("runs", self.name, "steps", script).absolute()),
            parent=Parent(run=self.name, step=script),
        )
        run = self.runs[script] = submit(Prepared(job=job), self.engine, stays=False)
        self.tell(replace(self.steps[script], state="running", run=run.uri, started=time.time()))

    def end(self, script: str) -> int:
        """Wait for the end of a step; returns its exit code."""
        if script not in self.runs:
            return 0
        status = self.runs[script].wait(show=False)
        cause = status.root_cause
        reason = (cause.summary if cause is not None else None) or status.reason or ""
        cell = 3 if status.state == "failed" else None
        self.tell(
            replace(self.steps[script], state=status.state, reason=reason, cell=cell, ended=time.time())
        )
        return status.exit_code or 0

    def stop(self, *_: object) -> None:
        """Start none any more, and stop those that run."""
        self.stopped = True
        for run in self.runs.values():
            run.stop(wait=False)


if __name__ == "__main__":
    sys.exit(Executor(sys.argv[1], [each.split(",") for each in sys.argv[2:]]).run())
