"""A run that is made of runs, as an ordinary run of this machine: the job of its executor, and what the
executor tells it and is told.

The executor runs under echelon's own Python, asks for no place in the queue, and passes on to its steps the
environment in which the user started it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from pathlib import Path
from typing import Protocol

from echelon.agent.gang.verdict import STOPPED_EXIT_CODE
from echelon.engines.abilities import Programs, StopOrder, required
from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.errors import EchelonError
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.program import DONE, Program, Step
from echelon.model.run import RunRef

_OWN = (
    "ECHELON_RUN",
    "ECHELON_WORKER",
    "ECHELON_WORKERS",
    "ECHELON_RANK",
    "ECHELON_RANKS",
    "ECHELON_RESTART",
    "ECHELON_OUTPUT",
    "ECHELON_NOTICE",
)  # fmt: skip - of the executor, as of any rank
_IF_NOT_SET = ("OMP_NUM_THREADS", "PYTHONUNBUFFERED")  # what an agent sets for ranks whose user has not
_NEVER = 1e9  # seconds of silence: an executor is silent for as long as its steps run
_LAST_ENDED = 30.0  # seconds for what a step's run does when it has ended, such as to compress its output


def job_of_parent(
    name: str,
    results: Path,
    module: str,
    arguments: Sequence[str],
    program: Program,
    *,
    grace: float,
    timeout: float | None = None,
) -> Job:
    """The job whose ranks are one executor: `module`, with these arguments. `grace` is that of its steps."""
    return Job(
        name=name,
        command=(sys.executable, "-P", "-m", module, *arguments),
        framework="plain",
        env={name: "" for name in _IF_NOT_SET if name not in os.environ},
        grace=grace + program.wind_up,
        timeout=timeout,
        stall=_NEVER,
        results=str(results),
        resume=True,  # the folder holds what the executor reads
        cwd=str(Path.cwd()),
        program=program,
    )


class Ended(Protocol):
    """A step, as far as its end is concerned."""

    @property
    def state(self) -> str:
        """How it stands."""

    @property
    def exit_code(self) -> int | None:
        """That of its run, if it has one."""


class Own:
    """The run that this process is the executor of."""

    def __init__(self) -> None:
        self._engine: Engine = choose_engine(LOCAL)
        self._programs: Programs = required(self._engine.programs, "runs of runs", self._engine.traits)
        self.ref = RunRef(engine=LOCAL, name=os.environ["ECHELON_RUN"])
        self._signalled: StopOrder | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note_signal)
        restore(os.environ, self._engine.read(self.ref).plan)

    def tell(self, event: Event) -> None:
        """Something has happened."""
        self._programs.tell(self.ref, event)

    def told(self) -> dict[str, Step]:
        """How the steps stood when the last executor of this run ended, by all events about them."""
        events = chain(self._engine.earlier_events(self.ref), self._engine.events(self.ref))
        return {step.name: step for event in events for step in event.steps or ()}

    def asked(self) -> StopOrder | None:
        """The stop that was asked for; that of a time-out came as a signal alone."""
        return self._programs.asked(self.ref) or self._signalled

    def starting_many(self) -> AbstractContextManager[None]:
        """The context in which the steps are started."""
        return self._programs.starting_many()

    def _note_signal(self, number: int, _frame: object) -> None:
        self._signalled = StopOrder(signal="SIGINT" if number == signal.SIGINT else "SIGTERM")


def run_executor(work: Callable[[Own], int]) -> int:
    """Do the work of the executor that this process is; returns its exit code."""
    own = Own()
    try:
        with own.starting_many():
            return work(own)
    except EchelonError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    finally:
        await_children()


def engine_of_steps(on: str, context: str, namespace: str) -> Engine:
    """The engine on which steps run: `on` is "" for this machine."""
    return choose_engine(CLUSTER if on else LOCAL, context=context or None, namespace=namespace or None)


def exit_code_of(steps: Iterable[Ended]) -> int:
    """As the first step that failed; 0 if all are done."""
    states = list(steps)
    if all(step.state in DONE for step in states):
        return 0
    return next((step.exit_code for step in states if step.exit_code), STOPPED_EXIT_CODE)


def restore(environment: MutableMapping[str, str], plan: Plan | None) -> None:
    """Take out of an environment what an agent has put in for the executor, and its steps must not have."""
    wiring: Mapping[str, str] = plan.launches[0].wiring if plan is not None else {}
    for name in (*_OWN, *wiring):
        environment.pop(name, None)
    for name in _IF_NOT_SET:
        if not environment.get(name):
            environment.pop(name, None)


def await_children() -> None:
    """Wait for the processes that this one has started: the supervisor of a step's run may still have
    something to do when the run has ended.
    """
    deadline = time.monotonic() + _LAST_ENDED
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.02)
