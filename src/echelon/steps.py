"""The runs that a run is made of: where they are, which of them are left, and their removal with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from echelon.engines.base import Engine, RunDamaged, current_user
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.errors import EchelonError, InvalidJob, StateTrouble, UnknownRun
from echelon.model.program import Program, Step
from echelon.model.run import Record, RunRef, parse_uri
from echelon.model.status import FINAL, Status
from echelon.model.step_names import run_name
from echelon.observation.standing import read_standing

StepRun = tuple[RunRef, Engine]
Tell = Callable[[str], object]
_NO_RUN = ("waiting", "cached", "not-reached")  # a run with that name is one of an earlier start


def runs_of_steps(
    engine: Engine, record: Record, steps: Iterable[Step], *, earlier: bool = False
) -> dict[str, StepRun]:
    """The runs of steps, for those that have one. Where the address of a run was not written down, since the
    executor was killed at that moment, the run is found by its name. With `earlier`, so are those of steps
    that have not run since their parent was resumed, and a run that only has the name is none.
    """
    program = record.job.program
    if program is None:
        return {}
    engines = {RunRef(engine=record.ref.engine, name=""): engine}
    found: dict[str, StepRun] = {}
    for step in steps:
        ref = parse_uri(step.run, LOCAL) if step.run else _by_name(record.ref, program, step.name)
        place = replace(ref, name="")
        if not step.run and step.state in _NO_RUN and not earlier:
            continue
        if place not in engines:
            engines[place] = choose_engine(ref.engine, context=ref.context, namespace=ref.namespace)
        known = bool(step.run)
        if (known and not earlier) or _belongs(ref, engines[place], record.ref.name, step.name, known=known):
            found[step.name] = ref, engines[place]
    return found


def left_running(engine: Engine, record: Record, status: Status) -> Iterator[StepRun]:
    """The runs of steps that go on although their parent is over: its executor was killed."""
    if status.state not in FINAL or status.state == "succeeded":
        return
    for ref, there in runs_of_steps(engine, record, status.steps).values():
        if _goes_on(ref, there):
            yield ref, there


def remove(
    ref: RunRef, engine: Engine, record: Record, status: Status, tell: Tell, *, force: bool = False
) -> Sequence[str]:
    """Forget a run that is made of runs, with the runs of its steps and the volume that was made for it.
    Returns the volumes that have results of steps. Raises StateTrouble while it or one of its steps goes on.
    """
    name = ref.name
    if status.state not in (*FINAL, "recorded"):
        raise StateTrouble(f"run {name!r} has not ended", hint=f"`echelon stop {name}` first")
    runs = runs_of_steps(engine, record, _of_all_starts(ref, engine, status), earlier=True)
    for step, (at, there) in runs.items():
        if _goes_on(at, there):
            raise StateTrouble(
                f"step {step} of {name!r} still runs: run {at.name}", hint=f"`echelon stop {name}` ends it"
            )
    kept: list[str] = []
    for at, there in runs.values():
        with suppress(UnknownRun):
            kept += there.remove(at, tell, force=force)
    if record.job.program is not None:
        _remove_volume(name, record.job.program, status, tell, force=force)
    return [*kept, *engine.remove(ref, tell, force=force)]


def _by_name(parent: RunRef, program: Program, step: str) -> RunRef:
    """The address that a step's run has if nothing else is known of it."""
    name = run_name(parent.name, step)
    if not program.place:
        return RunRef(engine=parent.engine, name=name)
    return RunRef(
        engine=CLUSTER, name=name, namespace=program.namespace or None, context=program.context or None
    )


def _belongs(ref: RunRef, engine: Engine, parent: str, step: str, *, known: bool) -> bool:
    """Whether there is a run of that name, and it is the user's own run of that step; of a damaged one, its
    being `known` has to do.
    """
    try:
        record = engine.read(ref)
    except RunDamaged:
        return known
    except (UnknownRun, InvalidJob):
        return False
    own = not engine.traits.shared or (record.user or record.owner) == current_user()
    made_as = record.job.parent
    return own and made_as is not None and (made_as.run, made_as.step) == (parent, step)


def _goes_on(ref: RunRef, engine: Engine) -> bool:
    """Whether a run that may be gone by now has not ended. Of a damaged one, its removal finds that out."""
    try:
        return read_standing(engine, ref)[1].state not in FINAL
    except (UnknownRun, RunDamaged):
        return False


def _of_all_starts(ref: RunRef, engine: Engine, status: Status) -> list[Step]:
    """The steps of every start of a run, each with the last address that it had."""
    found: dict[str, Step] = {}
    told = [step for event in engine.earlier_events(ref) for step in event.steps or ()]
    for step in (*told, *status.steps):
        before = found.get(step.name)
        found[step.name] = step if step.run or before is None else replace(step, run=before.run)
    return list(found.values())


def _remove_volume(name: str, program: Program, status: Status, tell: Tell, *, force: bool) -> None:
    """Remove the volume that was made for a run, unless files of the steps are there alone."""
    claim, _, path = program.volume.partition("/")
    if not claim:
        return
    if not program.volume_uid:
        tell(f"variables and files of {name} stay on pvc:{program.volume}")
        return
    if status.fetched_to is None and not force:
        copy = f"`echelon cp pvc:{claim}/{path or name}/work DIR` copies them"
        hint = f"{copy}, `echelon volume rm {claim}` deletes it"
        tell(f"volume {claim} stays: files of the steps of {name} are there alone; {hint}")
        return
    there = choose_engine(CLUSTER, context=program.context or None, namespace=program.namespace or None)
    if there.volumes is None:
        return
    try:
        if there.volumes.read(claim).uid != program.volume_uid:
            hint = f"`echelon volume rm {claim}` removes it"
            tell(f"volume {claim} stays: it was not made for {name}, but has the name; {hint}")
            return
        there.volumes.remove(claim, program.volume_uid)
        tell(f"volume {claim}, which was made for {name}, is removed")
    except InvalidJob:
        pass  # it is gone
    except EchelonError as error:
        tell(f"volume {claim}, which was made for {name}, stays: {error}")
