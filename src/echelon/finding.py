"""From what a user says of a run (nothing, a name, NAME/STEP, an address) to the run and the engine that has
it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from echelon.engines.base import Engine, RunDamaged, current_user
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.engines.recent import started_from
from echelon.errors import EchelonError, InvalidJob, StateTrouble, UnknownRun, Unreachable
from echelon.model.job import is_name
from echelon.model.program import Step
from echelon.model.run import RunRef, parse_uri
from echelon.model.status import Status
from echelon.model.step_names import cut_names, run_name
from echelon.observation.standing import read_standing
from echelon.observation.step_runs import StepRuns, are_in
from echelon.preparation.sources import Target, find_surroundings, where_to_look
from echelon.state_home import state_home

RunAndEngine = tuple[RunRef, Engine]
T = TypeVar("T")
Tell = Callable[[str], object]
_PATIENCE = 6.0  # seconds for a place that is only looked into because the run is not where it was expected
_MANY = 20  # steps; more are not listed one by one
_OLD = 90 * 86400.0  # seconds for which pipelines of an earlier version are spoken of
_ADDRESS = f"{LOCAL}://"
_WITHOUT_RUN = {
    "waiting": "is waiting: it has no run yet",
    "recorded": "is being submitted: it has no run yet",
    "cached": "was taken from an earlier run: cached",
    "kept": "was kept from an earlier start, and its run is gone",
    "not-reached": "was not reached: it has no run",
}


class UnknownHere(UnknownRun):
    """No run has that name in the default place, and the other one does not answer."""


def find(
    uri: str | None, target: Target, tell: Tell = lambda _note: None, *, keep_stdin: bool = False
) -> RunAndEngine:
    """A run that exists: by its address, by its name, as a step of a run, or the newest of this folder.

    A bare name that the default place does not know is looked up in the other one, unless the target names a
    place. The name of a notebook's run or step may be the uncut one. `tell` is told what was found where the
    user has not said it; `keep_stdin` is for a command that starts the run and stays."""
    if uri is None:
        found = _newest(target)
        tell(f"run {found[0].name}, the newest of this folder")
        return found
    if uri.startswith(_ADDRESS) and "/" in uri.removeprefix(_ADDRESS):
        uri, target = uri.removeprefix(_ADDRESS), replace(target, on=LOCAL)
    if "/" in uri and "://" not in uri:
        return _step(uri, target, tell, keep_stdin=keep_stdin)
    try:
        return _named(uri, target, tell, keep_stdin=keep_stdin)
    except (InvalidJob, UnknownRun) as error:
        unknown: EchelonError = error
        for name in () if "://" in uri else cut_names(uri):
            try:
                return _named(name, target, tell, keep_stdin=keep_stdin)
            except UnknownRun as other:
                unknown = other if isinstance(unknown, InvalidJob) else unknown
        if isinstance(unknown, InvalidJob) and unknown.field == "name":
            unknown.hint = "`echelon ps -a` lists the runs"  # and not a name that a run might have
        if (folder := earlier_pipelines().get(uri)) is not None:
            unknown.hint = f"an earlier version of echelon has run it; its results are in {folder}"
        raise unknown from None


def step_names(text: str) -> tuple[str, ...]:
    """The names that the run of NAME/STEP may have; NAME may be the uncut one, and STEP have - for _."""
    name, _, step = text.partition("/")
    steps = (step, step.replace("-", "_"))
    return tuple(dict.fromkeys(run_name(each, one) for each in (name, *cut_names(name)) for one in steps))


def earlier_pipelines() -> dict[str, Path]:
    """The folders of pipelines that an earlier version of echelon has run: those were no runs."""
    found: dict[str, Path] = {}
    with suppress(OSError, StateTrouble):
        for file in sorted((state_home() / "pipelines").glob("*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                folder = Path(json.loads(file.read_bytes())["folder"])
                fresh = time.time() - file.stat().st_mtime < _OLD
                if fresh and (folder / "pipeline.json").is_file():
                    found[file.stem] = folder
    return found


def _named(uri: str, target: Target, tell: Tell, *, keep_stdin: bool) -> RunAndEngine:
    try:
        return _read(uri, target, keep_stdin=keep_stdin)
    except UnknownRun as error:
        if "://" in uri:
            raise
        if (parent := _parent(uri, target)) is not None:
            return parent
        if target.on is not None:
            raise
        return _elsewhere(uri, [uri], target, error, tell)


def _elsewhere(uri: str, names: Sequence[str], target: Target, error: UnknownRun, tell: Tell) -> RunAndEngine:
    """The run that has one of the names in the other place. Raises `error` if there is none."""
    try:
        other = next(filter(None, (_in_other_place(name, target) for name in names)), None)
    except Unreachable as silent:
        unasked = f"the cluster could not be asked: {silent.message}"
        raise UnknownHere(error.message, hint=f"{unasked}; {error.hint}") from None
    if other is None:
        raise error
    tell(f"run {uri} is {other[0]}")
    return other


def _read(uri: str, target: Target, *, keep_stdin: bool = False) -> RunAndEngine:
    """Raises UnknownRun if there is none."""
    found = where_to_look(target, find_surroundings())
    ref = parse_uri(uri, found.on or LOCAL)
    context, namespace = ref.context or found.context, ref.namespace or found.namespace
    engine = choose_engine(
        ref.engine,
        context=context,
        namespace=namespace,
        keep_stdin=keep_stdin,
        watched="/" in ref.name,
    )
    with suppress(RunDamaged):  # it exists, and its handle can say so and remove it
        ref = engine.read(ref).ref
    return ref, engine


def _parent(name: str, target: Target) -> RunAndEngine | None:
    """The run of this machine that has that name, if it is made of runs in the place that is meant: it is one
    of that place, too. None if there is none.
    """
    looked = where_to_look(target, find_surroundings())
    engine = choose_engine(LOCAL)
    with suppress(UnknownRun, InvalidJob, RunDamaged):
        record = engine.read(parse_uri(name, LOCAL))
        if (program := record.job.program) is None:
            return None
        place = choose_engine(looked.on, context=looked.context, namespace=looked.namespace)
        return (record.ref, engine) if not place.traits.remote or are_in(program, place) else None
    return None


def _step(uri: str, target: Target, tell: Tell, *, keep_stdin: bool) -> RunAndEngine:
    """The run of NAME/STEP: as its parent has it, if that is on this machine, or by its name."""
    parent_name, _, wanted = uri.partition("/")
    parents = (_parent(name, target) for name in (parent_name, *cut_names(parent_name)))
    if (parent := next(filter(None, parents), None)) is not None:
        return _step_of(*parent, wanted, keep_stdin=keep_stdin)
    names = tuple(filter(is_name, step_names(uri)))
    if not names:
        raise InvalidJob("name", uri, "is not a run's name", hint="`echelon ps -a` lists the runs")
    unknown = UnknownRun(f"no run {uri!r}")
    for name in names:
        try:
            return _read(name, target, keep_stdin=keep_stdin)
        except UnknownRun as error:
            unknown.hint = unknown.hint or error.hint
    if (folder := earlier_pipelines().get(parent_name)) is not None:
        unknown.hint = f"an earlier version of echelon has run it; its results are in {folder}"
    if target.on is not None:
        raise unknown
    return _elsewhere(uri, names, target, unknown, tell)


def _step_of(ref: RunRef, engine: Engine, wanted: str, *, keep_stdin: bool) -> RunAndEngine:
    record, status = read_standing(engine, ref)
    step = next((each for each in status.steps if each.name in (wanted, wanted.replace("-", "_"))), None)
    if step is None:
        problem = f"run {ref.name!r} has no {status.step_word} {wanted!r}"
        raise UnknownRun(problem, hint=_steps_there_are(status))
    for at, _ in StepRuns(engine, record).of([step]).values():
        with suppress(UnknownRun):
            return _read(str(at), Target(), keep_stdin=keep_stdin)
    raise UnknownRun(
        f"{status.step_word} {step.name} of {ref.name} {_why_no_run(step)}",
        hint=step.hint or f"`echelon status {ref.name}` shows every {status.step_word}",
    )


def _steps_there_are(status: Status) -> str:
    names = [step.name for step in status.steps]
    if not names:
        return f"`echelon status {status.name}` shows how it stands"
    some = ", ".join(names) if len(names) <= _MANY else f"{names[0]} to {names[-1]}"
    return f"its {status.step_word}s are {some}"


def _why_no_run(step: Step) -> str:
    if step.run:
        return "has no run any more: it was removed"
    if (told := _WITHOUT_RUN.get(step.state)) is not None:
        return told
    return f"has no run: {step.state}" + (f": {step.reason}" if step.reason else "")


def _in_other_place(name: str, target: Target) -> RunAndEngine | None:
    """The user's own run of that name on the cluster, if this machine is the default, or the other way round;
    None if there is none.
    """
    default = where_to_look(target, find_surroundings()).on or LOCAL
    other = Target(
        on=CLUSTER if default == LOCAL else LOCAL, context=target.context, namespace=target.namespace
    )

    def look() -> RunAndEngine | None:
        ref, engine = _read(name, other)
        record = engine.read(ref)
        own = not engine.traits.shared or (record.user or record.owner) == current_user()
        return (ref, engine) if own else None

    return look_elsewhere(look)


def look_elsewhere(look: Callable[[], T | None]) -> T | None:
    """What a look into a place that was not asked for finds; None if it fails. Raises Unreachable if that
    place cannot be reached, or has not answered within a moment.
    """
    found: list[T] = []
    silent: list[Unreachable] = []

    def try_it() -> None:
        try:
            if (one := look()) is not None:
                found.append(one)
        except Unreachable as error:
            silent.append(error)
        except (EchelonError, OSError):
            pass

    looking = threading.Thread(target=try_it, name="looking elsewhere", daemon=True)
    looking.start()
    looking.join(_PATIENCE)
    if looking.is_alive():
        raise Unreachable(f"it has not answered within {_PATIENCE:g} s")
    if silent:
        raise silent[0]
    return found[0] if found else None


def _newest(target: Target) -> RunAndEngine:
    """The newest run of this folder that is still known; with a target, there."""
    for uri in started_from(Path.cwd()):
        ref = parse_uri(uri, LOCAL)
        wanted = (target.on or ref.engine, target.context or ref.context, target.namespace or ref.namespace)
        if wanted != (ref.engine, ref.context, ref.namespace):
            continue
        with suppress(UnknownRun):
            return _read(uri, target)
    raise UnknownRun(
        "no run was started from this folder, or none is left", hint="name one; `echelon ps -a` lists them"
    )
