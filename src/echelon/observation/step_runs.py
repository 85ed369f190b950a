"""From the steps of a run that is made of runs to their runs, and to the engines that have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from echelon.engines.base import Engine, RunDamaged, current_user
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.errors import InvalidJob, UnknownRun
from echelon.model.program import Program, Step
from echelon.model.run import Record, RunRef, parse_uri
from echelon.model.step_names import run_name

StepRun = tuple[RunRef, Engine]
_NO_RUN = ("waiting", "cached", "not-reached")  # a run with that name is one of an earlier start


class StepRuns:
    """Where the runs of a run's steps are. A place is looked up once."""

    def __init__(self, engine: Engine, record: Record) -> None:
        self._record = record
        self._engines = {RunRef(engine=record.ref.engine, name=""): engine}

    def at(self, address: str) -> StepRun:
        """The run that has that address."""
        ref = parse_uri(address, LOCAL)
        return ref, self._engine_of(ref)

    def of(self, steps: Iterable[Step], *, earlier: bool = False) -> dict[str, StepRun]:
        """The runs of steps, for those that have one. Where the address of a run was not written down, since
        the executor was killed at that moment, the run is found by its name. With `earlier`, so are those of
        steps that have not run since their parent was resumed, and a run that only has the name is none.
        """
        found: dict[str, StepRun] = {}
        for step in steps:
            if step.run:
                ref, engine = self.at(step.run)
                belongs = not earlier or self._belongs(ref, engine, step.name, known=True)
            elif self._record.job.program is None or (step.state in _NO_RUN and not earlier):
                continue
            else:
                ref = _by_name(self._record.ref, self._record.job.program, step.name)
                engine = self._engine_of(ref)
                belongs = self._belongs(ref, engine, step.name, known=False)
            if belongs:
                found[step.name] = ref, engine
        return found

    def _engine_of(self, ref: RunRef) -> Engine:
        place = replace(ref, name="")
        if place not in self._engines:
            self._engines[place] = choose_engine(ref.engine, context=ref.context, namespace=ref.namespace)
        return self._engines[place]

    def _belongs(self, ref: RunRef, engine: Engine, step: str, *, known: bool) -> bool:
        """Whether there is a run of that name, and it is the user's own run of that step; of a damaged one,
        its being `known` has to do.
        """
        try:
            record = engine.read(ref)
        except RunDamaged:
            return known
        except (UnknownRun, InvalidJob):
            return False
        own = not engine.traits.shared or (record.user or record.owner) == current_user()
        made_as = record.job.parent
        return own and made_as is not None and (made_as.run, made_as.step) == (self._record.ref.name, step)


def are_in(program: Program, engine: Engine) -> bool:
    """Whether the steps of a run are in that place: of a cluster, in that namespace of that context."""
    if not engine.traits.remote:
        return not program.place
    return program.place == engine.traits.place and engine.where == (program.context, program.namespace)


def of_all_starts(engine: Engine, ref: RunRef, steps: Iterable[Step]) -> dict[str, Step]:
    """These steps, and those of earlier starts of the run, each with the last address that its run had."""
    found: dict[str, Step] = {}
    told = [step for event in engine.earlier_events(ref) for step in event.steps or ()]
    for step in (*told, *steps):
        before = found.get(step.name)
        found[step.name] = step if step.run or before is None else replace(step, run=before.run)
    return found


def _by_name(parent: RunRef, program: Program, step: str) -> RunRef:
    """The address that a step's run has if nothing else is known of it."""
    name = run_name(parent.name, step)
    if not program.place:
        return RunRef(engine=parent.engine, name=name)
    return RunRef(
        engine=CLUSTER, name=name, namespace=program.namespace or None, context=program.context or None
    )
