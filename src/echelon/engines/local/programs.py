"""Runs that are made of runs: their executors write into the run's folder, and read there what is asked.

A stop of such a run goes to its steps, each with the time that it was given. The executor itself is never
killed before it has written down how they ended: it gets SIGTERM, and its own time beyond theirs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from echelon.agent import stopping
from echelon.engines.abilities import StopOrder
from echelon.engines.local import forks
from echelon.engines.local.folder import rundir, store
from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.local.folder.store import RunStore
from echelon.model.event import Event
from echelon.model.program import Program
from echelon.model.run import RunRef, StopSignal

_STEPS = "steps"  # of a request to stop: what the steps are told


class LocalPrograms:
    """Those of one state folder."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs

    def tell(self, ref: RunRef, event: Event) -> None:
        """Append to the run's events."""
        store.append_event(self._runs.dir(ref.name), event)

    def asked(self, ref: RunRef) -> StopOrder | None:
        """By the request in the run's folder."""
        told = (rundir.read_json(self._runs.dir(ref.name).stop) or {}).get(_STEPS)
        if not isinstance(told, dict) or told.get("signal") not in stopping.SIGNALS:
            return None
        return StopOrder(signal=told["signal"], grace=stopping.seconds_in(told.get("grace")))

    def starting_many(self) -> AbstractContextManager[None]:
        """Supervisors are forks of one process."""
        return forks.forking()


def request_to_stop(
    folder: RunDir, program: Program, signal: StopSignal, grace: float | None
) -> dict[str, Any]:
    """What is asked of a run that is made of runs. A second order to kill kills the executor."""
    before = rundir.read_json(folder.stop) or {}
    steps = before.get(_STEPS)
    if signal == "SIGKILL" and isinstance(steps, dict) and steps.get("signal") == signal:
        return {"signal": signal, "now": True, "grace": None, _STEPS: steps}
    given = 0.0 if signal == "SIGKILL" else grace
    own = None if given is None else given + program.wind_up
    return {"signal": "SIGTERM", "now": False, "grace": own, _STEPS: {"signal": signal, "grace": grace}}
