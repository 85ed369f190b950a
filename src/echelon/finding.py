"""From what a user says of a run (nothing, a name, an address) to the run and the engine that has it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from echelon.engines.base import Engine, RunDamaged, current_user
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine
from echelon.engines.recent import started_from
from echelon.errors import EchelonError, InvalidJob, UnknownRun, Unreachable
from echelon.model.run import RunRef, parse_uri
from echelon.model.step_names import cut_names
from echelon.preparation.sources import Target, find_surroundings, where_to_look

Found = tuple[RunRef, Engine]
T = TypeVar("T")
Tell = Callable[[str], object]
_PATIENCE = 6.0  # seconds for a place that is only looked into because the run is not where it was expected


class UnknownHere(UnknownRun):
    """No run has that name in the default place, and the other one does not answer."""


def find(
    uri: str | None, target: Target, tell: Tell = lambda _note: None, *, keep_stdin: bool = False
) -> Found:
    """A run that exists: by its address, by its name, or the newest of this folder.

    A bare name that the default place does not know is looked up in the other one, unless the target names a
    place. The name of a notebook's step may be the uncut one. `tell` is told what was found where the user
    has not said it; `keep_stdin` is for a command that starts the run and stays."""
    if uri is None:
        found = _newest(target)
        tell(f"run {found[0].name}, the newest of this folder")
        return found
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
        raise unknown from None


def _named(uri: str, target: Target, tell: Tell, *, keep_stdin: bool) -> Found:
    try:
        return _read(uri, target, keep_stdin=keep_stdin)
    except UnknownRun as error:
        try:
            other = None if target.on is not None or "://" in uri else _in_other_place(uri, target)
        except Unreachable as silent:
            unasked = f"the cluster could not be asked: {silent.message}"
            raise UnknownHere(error.message, hint=f"{unasked}; {error.hint}") from None
        if other is None:
            raise
        tell(f"run {uri} is {other[0]}")
        return other


def _read(uri: str, target: Target, *, keep_stdin: bool = False) -> Found:
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


def _in_other_place(name: str, target: Target) -> Found | None:
    """The user's own run of that name on the cluster, if this machine is the default, or the other way round;
    None if there is none.
    """
    default = where_to_look(target, find_surroundings()).on or LOCAL
    other = Target(
        on=CLUSTER if default == LOCAL else LOCAL, context=target.context, namespace=target.namespace
    )

    def look() -> Found | None:
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


def _newest(target: Target) -> Found:
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
