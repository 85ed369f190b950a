"""The folder of a sweep: what its executor continues by, and the table of its
trials. How the trials stand, the
events of its run tell.

::

    runs/NAME/
        sweep.json      what was asked for; its owner's alone, since it may hold variables
        code.tar.gz     the code that was shipped, the same for all trials
        trials.csv      the trials: their values, and what they have reached
        7/              results of trial 7"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from echelon.bundle.archive import Bundle
from echelon.engines.decoding import decode
from echelon.engines.durable import replace_file, write_file
from echelon.errors import StateTrouble, from_os_error
from echelon.model.job import Job
from echelon.model.program import Objective, Step
from echelon.model.trials import steps_as_csv
from echelon.sweeps.search import Search
from echelon.sweeps.spaces import Trial
from echelon.values import frozen

PRIVATE = ("sweep.json", "code.tar.gz")  # what is in the folder and is not a result
SCHEMA = 1
_SPEC, _CODE = PRIVATE
_TABLE = "trials.csv"


@frozen
class Code:
    """What is known of the code that was shipped, beside its bytes."""

    digest: str
    files: int
    size: int


@frozen
class Sweep:
    """What was asked for."""

    name: str
    job: Job  # with the parameters in braces
    trials: tuple[Trial, ...]
    key: str  # of this sweep alone: another one of the same name has other trials
    search: Search | None = None  # that chooses the values of the trials
    objective: Objective | None = None
    parallel: int | None = None  # trials at the same time
    fail_fast: bool = False
    early_stop: bool = False
    on: str = ""  # where its trials run: "" is this machine
    context: str = ""
    namespace: str = ""
    code: Code | None = None
    schema: int = SCHEMA


def write(folder: Path, sweep: Sweep, bundle: Bundle | None) -> None:
    """Write down what was asked for, to a folder that has none of it."""
    try:
        if bundle is not None:
            write_file(folder / _CODE, bundle.data)
        write_file(folder / _SPEC, msgspec.json.format(msgspec.json.encode(sweep), indent=1))
    except OSError as error:
        raise from_os_error(error, folder) from error


def read(folder: Path) -> tuple[Sweep, Bundle | None]:
    """What was asked for, and the code; raises StateTrouble if it cannot be read."""
    path = folder / _SPEC
    try:
        sweep = decode(path.read_bytes(), Sweep)
        data = (folder / _CODE).read_bytes() if sweep.code is not None else b""
    except OSError as error:
        raise from_os_error(error, path) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateTrouble(f"{path} cannot be read: {error}", hint="start the sweep anew") from None
    if sweep.code is None:
        return sweep, None
    code = sweep.code
    return sweep, Bundle(digest=code.digest, data=data, files=code.files, size=code.size)


def write_table(folder: Path, steps: Sequence[Step], objective: Objective | None) -> None:
    """Replace the table of the trials."""
    replace_file(folder / _TABLE, steps_as_csv(steps, objective).encode(), sync=False)
