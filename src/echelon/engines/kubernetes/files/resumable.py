"""Whether a run that has ended can start again in its results, and the code to start it with."""

from __future__ import annotations

import hashlib
from pathlib import Path
from shlex import quote

from echelon.bundle import Bundle
from echelon.engines.kubernetes.record import Stored
from echelon.errors import StateTrouble


def resumable_code(stored: Stored, home: Path, code: bytes | None, *, began: bool) -> Bundle | None:
    """The code that was shipped, None if the job needs none; raises StateTrouble with what keeps the run from
    being resumed. `code` is what this machine has kept of it; a run that never began has no results.
    """
    job = stored.run.job
    if began and job.pod.output is None:
        # New pods would begin from the start: checkpoints that came home are not sent to them.
        ckpt = "" if job.pod.checkpoints is None else f", with its safe checkpoints in {job.pod.checkpoints},"
        raise StateTrouble(
            f"run {job.name!r} cannot be resumed: its results are not on a volume but in {home}{ckpt}, which "
            "its pods cannot read",
            hint=f"copy them to one, `echelon cp {quote(str(home))} pvc:CLAIM`, and run it again with "
            f"--output pvc:CLAIM --reuse-results; `echelon get {job.name}` brings them, if they are not here "
            "yet",
        )
    if not job.snapshot:
        return None
    if code is None:
        raise StateTrouble(
            f"run {job.name!r} cannot be resumed here: only the machine that submitted it has its code",
            hint="resume it there, or run it again with the same --output and --reuse-results",
        )
    return Bundle(digest=hashlib.sha256(code).hexdigest(), data=code, files=0, size=0)
