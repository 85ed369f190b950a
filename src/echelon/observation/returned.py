"""What the function of a run returned, rank by rank: read from the run's results, wherever they are."""

from __future__ import annotations

import tempfile
from pathlib import Path

from echelon.codecs.reading import read_value
from echelon.codecs.writing import rank_folder, seal_name
from echelon.engines.base import Engine
from echelon.errors import InvalidJob, ResultsIncomplete
from echelon.model.job import is_function
from echelon.model.run import RunRef
from echelon.model.status import Status


def read_returned(engine: Engine, ref: RunRef, status: Status, rank: int) -> object:
    """The value that a rank returned; raises CannotShip if that rank refused it, and ResultsIncomplete if
    there is none.
    """
    record = engine.read(ref)
    if not is_function(record.job):
        raise InvalidJob(
            "run",
            ref.name,
            "did not run a function: a script returns nothing",
            hint="save to the folder in $ECHELON_OUTPUT, and use run.get()",
        )
    worker = next(each.worker for each in status.workers if rank in each.ranks)
    own = rank_folder(rank)
    # Workers that share no folder have their results apart, those of worker 0 excepted.
    problem = ""
    places = [own, f"worker-{worker}/{own}"] if worker else [own]
    who = f"rank {rank} of run {ref.name!r}"
    here = Path(record.results, own)
    if not engine.traits.remote and here.is_dir():  # the ranks wrote it there themselves
        return read_value(here, who, _seal(engine, ref, rank))
    with tempfile.TemporaryDirectory(prefix="echelon-") as folder:
        for place in places:
            try:
                found = engine.fetch(ref, place, Path(folder))
            except InvalidJob as error:
                problem = error.message
            else:
                return read_value(found, who)
    raise ResultsIncomplete(
        f"{who} has returned nothing: {problem}",
        hint="it left by sys.exit, was ended with the run, or its results were deleted",
    )


def _seal(engine: Engine, ref: RunRef, rank: int) -> str | None:
    """The digest of the pickle that the rank wrote, if it did."""
    seals = engine.seals(ref)
    try:
        return None if seals is None else (seals / seal_name(rank)).read_text("ascii")
    except (OSError, ValueError):
        return None


def read_all_returned(engine: Engine, ref: RunRef, status: Status) -> list[object]:
    """The values of all ranks; None for one that did not come to return, such as a parameter server. Raises
    ResultsIncomplete if none did.
    """
    found: list[object] = []
    missing: list[ResultsIncomplete] = []
    ranks = sorted(rank for worker in status.workers for rank in worker.ranks)
    for rank in ranks:
        try:
            found.append(read_returned(engine, ref, status, rank))
        except ResultsIncomplete as error:
            missing.append(error)
            found.append(None)
    if len(missing) == len(ranks):
        raise missing[0]
    return found
