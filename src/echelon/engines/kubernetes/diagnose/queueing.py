"""Why a queued run is not admitted, or one whose client was cut off does not start: no process looks after
it. And why a run that had started waits: its Job was suspended from outside. Pure.

Nothing in a cluster admits a run but the holder of its tender claim. A run whose foreground
command was killed, or whose machine is off, stays queued however much is free."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from echelon.engines.kubernetes.diagnose.kueue import waits_in
from echelon.engines.kubernetes.diagnose.trouble import Trouble
from echelon.engines.kubernetes.record import Stored, is_free, is_untended
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state.whole import is_cut_off, is_half_made
from echelon.engines.kubernetes.suspended import is_suspended, why_suspended

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object


def find_untended(stored: Stored, jobs: Sequence[Object], *, now: float) -> Trouble | None:
    """The trouble of a queued run that no process will admit, or of one that was cut off in its start and
    that no process completes; None if one will, or it is neither.
    """
    if is_cut_off(stored, jobs, now) and is_free(stored.claim, now):
        return _untended(stored, "its submission was cut off before all of its Jobs were started", "starts")
    if not is_untended(stored, now):
        return None
    return _untended(stored, stored.queued[-1].reason, "admits")


def find_suspended(stored: Stored, jobs: Sequence[Object]) -> Trouble | None:
    """The trouble of a run that was suspended from outside, and whom it waits for; None of any other. Of a
    run in a queue of Kueue's, its Workload says more (`kueue.py`).
    """
    if stored.stop is not None or waits_in(jobs) or is_half_made(stored, jobs):
        return None
    job = next(filter(is_suspended, jobs), None)
    if job is None:
        return None
    patch = json.dumps(dialects.of(job).suspended(suspend=False), separators=(",", ":"))
    about = job["metadata"]
    where = f"{str(job.get('kind') or 'Job').lower()} {about['name']}"
    return Trouble(
        worker=None,
        kind="suspended",
        sentence=why_suspended(jobs),
        hint=f"kubectl -n {about.get('namespace')} patch {where} --type=merge -p '{patch}'",
    )


def _untended(stored: Stored, why: str, does: str) -> Trouble:
    name = stored.run.ref.name
    return Trouble(
        worker=None,
        kind="untended",
        sentence=f"{why}; no process looks after it",
        hint=f"`echelon wait {name}` {does} it; on another machine, `echelon wait --take-over {name}`",
    )
