"""A results folder that is reserved for a run elsewhere is free once that run has ended, or does not exist
any more: its engine is asked. A run of this machine holds its folder itself (`engines/reservation.py`)."""

from __future__ import annotations

from pathlib import Path

from echelon.agent.files.tree import MARKER
from echelon.engines import reservation
from echelon.engines.base import Engine
from echelon.engines.choose import LOCAL, choose_engine
from echelon.engines.reservation import Owner
from echelon.errors import EchelonError, StateTrouble, UnknownRun
from echelon.model.run import RunRef, parse_uri


def free_folder(folder: Path, name: str, engine: Engine) -> None:
    """Withdraw the reservation of a folder for a run elsewhere that has ended, so that the run `name` of this
    engine can have it. Raises StateTrouble if that run goes on, or cannot be asked. It brings its results, if
    they were not fetched yet, to `runs/NAME` then.
    """
    owner = reservation.owner_of(folder)
    if owner is None or owner.state:
        return
    try:
        ref = parse_uri(owner.run, LOCAL)
        if ref.name == name and _is_there(ref, engine):
            return  # the run itself: its submission was cut off, or it is resumed
        goes_on = _goes_on(ref, owner, engine)
    except UnknownRun:
        goes_on = False
    except EchelonError as error:
        raise StateTrouble(
            f"the results folder {folder} is reserved for {reservation.describe(owner)}; whether that has "
            f"ended is not known: {error.message}",
            hint=f"--results chooses another folder; if that run is gone, remove {folder / MARKER}",
        ) from error
    if goes_on:
        raise reservation.in_use(folder, owner)
    reservation.withdraw(folder, owner)


def _goes_on(ref: RunRef, owner: Owner, engine: Engine) -> bool:
    if not _is_there(ref, engine):
        engine = choose_engine(ref.engine, context=ref.context, namespace=ref.namespace)
    if engine.read(ref).created != owner.created:
        return False  # another run of that name
    return not any(event.kind == "finished" for event in engine.events(ref))


def _is_there(ref: RunRef, engine: Engine) -> bool:
    """Whether a run elsewhere is where this engine is."""
    return engine.traits.remote and engine.where == (ref.context or "", ref.namespace or "")
