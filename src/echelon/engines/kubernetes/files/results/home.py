"""Where a run's results belong on this machine, and whether they are there, or on another one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from echelon.engines.kubernetes.record import Collected, Stored
from echelon.engines.machine import Submissions
from echelon.engines.reservation import Owner, owner_of
from echelon.model.run import Record


def local_folder(stored: Stored, submissions: Submissions) -> Path:
    """Where the results belong on this machine: in the submission's folder, if this machine submitted the run
    and the folder can be used, else in ./runs. A folder that was reserved for another run since, and to which
    they were not fetched before, cannot. A path in a record (schema 1 had one) is anybody's to write.
    """
    wanted = submissions.results_of(stored.uid)
    if wanted is not None and not _is_anothers(wanted, stored, submissions):
        beside = next((each for each in (wanted, *wanted.parents[:2]) if each.is_dir()), None)
        if beside is not None and os.access(beside, os.W_OK | os.X_OK):
            return wanted
    return Path("runs").absolute() / stored.run.ref.name


def as_owner(run: Record, context: str) -> Owner:
    """The run as the one that a folder of this machine is reserved for."""
    return Owner(run=str(replace(run.ref, context=context)), created=run.created)


def _is_anothers(folder: Path, stored: Stored, submissions: Submissions) -> bool:
    owner = owner_of(folder)
    if owner is None:
        return False
    ref = stored.run.ref
    if owner.run.partition("?")[0] == str(replace(ref, context=None)):
        return False
    fetched = submissions.fetched(stored.uid, stored.run.created)
    return fetched is None or fetched.path != str(folder)


def fetched_to(stored: Stored, submissions: Submissions) -> Path | None:
    """Where on this machine the results are, if they were fetched to it."""
    folder = local_folder(stored, submissions)
    own = submissions.fetched(stored.uid, stored.run.created)
    return folder if own is not None and own.path == str(folder) and folder.is_dir() else None


def elsewhere(collected: Collected) -> str:
    """The sentence for results that another machine has."""
    return f"the results were brought to {collected.path} on {collected.host}"
