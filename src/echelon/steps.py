"""The runs that a run is made of: which of them are left, and their removal with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from echelon.engines.base import Engine, RunDamaged
from echelon.engines.choose import CLUSTER, choose_engine
from echelon.errors import EchelonError, InvalidJob, StateTrouble, UnknownRun
from echelon.model.program import Program
from echelon.model.run import Record, RunRef
from echelon.model.status import FINAL, Status
from echelon.observation.standing import read_standing
from echelon.observation.step_runs import StepRun, StepRuns, of_all_starts

Tell = Callable[[str], object]


def left_running(engine: Engine, record: Record, status: Status) -> Iterator[StepRun]:
    """The runs of steps that go on although their parent is over: its executor was killed."""
    if status.state not in FINAL or status.state == "succeeded":
        return
    for ref, there in StepRuns(engine, record).of(status.steps).values():
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
    steps = of_all_starts(engine, ref, status.steps).values()
    runs = StepRuns(engine, record).of(steps, earlier=True)
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


def _goes_on(ref: RunRef, engine: Engine) -> bool:
    """Whether a run that may be gone by now has not ended. Of a damaged one, its removal finds that out."""
    try:
        return read_standing(engine, ref)[1].state not in FINAL
    except (UnknownRun, RunDamaged):
        return False


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
