"""Why a queued run is not admitted, or one whose client was cut off does not start: no process looks after
it. Pure.

Nothing in a cluster admits a run but the holder of its tender claim. A run whose foreground
command was killed, or whose machine is off, stays queued however much is free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from echelon.engines.kubernetes.diagnose.trouble import Trouble
from echelon.engines.kubernetes.record import Stored, is_free, is_untended
from echelon.engines.kubernetes.state.whole import is_cut_off

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object


def find_untended(stored: Stored, jobs: Sequence[Object], *, now: float) -> Trouble | None:
    """The trouble of a queued run that no process will admit, or of one that was cut off in its start and
    that no process completes; None if one will, or it is neither.
    """
    if is_cut_off(stored, jobs, now) and is_free(stored.claim, now):
        return _untended(stored, "its submission was cut off before all of its Jobs were started", "starts")
    if not is_untended(stored, has_jobs=bool(jobs), now=now):
        return None
    return _untended(stored, stored.queued[-1].reason, "admits")


def _untended(stored: Stored, why: str, does: str) -> Trouble:
    name = stored.run.ref.name
    return Trouble(
        worker=None,
        kind="untended",
        sentence=f"{why}; no process looks after it",
        hint=f"`echelon wait {name}` {does} it; on another machine, `echelon wait --take-over {name}`",
    )
