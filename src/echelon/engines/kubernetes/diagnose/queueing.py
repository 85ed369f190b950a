"""Why a queued run is not admitted: no process looks after it. Pure.

Nothing in a cluster admits a run but the holder of its tender claim. A run whose foreground
command was killed, or whose machine is off, stays queued however much is free."""

from __future__ import annotations

from echelon.engines.kubernetes.diagnose.trouble import Trouble
from echelon.engines.kubernetes.record import Stored, is_untended


def find_untended(stored: Stored, *, has_jobs: bool, now: float) -> Trouble | None:
    """The trouble of a queued run that no process will admit; None if one will, or it is not queued."""
    if not is_untended(stored, has_jobs=has_jobs, now=now):
        return None
    name = stored.run.ref.name
    return Trouble(
        worker=None,
        kind="untended",
        sentence=f"{stored.queued[-1].reason}; no process looks after it",
        hint=f"`echelon wait {name}` admits it; on another machine, `echelon wait --take-over {name}`",
    )
