"""Whether a run that has ended can start again from its results, and the code to start it with."""

from __future__ import annotations

import hashlib
from pathlib import Path
from shlex import quote

from echelon.bundle import Bundle
from echelon.engines.kubernetes.files.results import safe as at_home
from echelon.engines.kubernetes.record import Stored
from echelon.engines.machine import Fetched, SafeCheckpoints
from echelon.errors import StateTrouble
from echelon.model.pods.way_home import keeps_checkpoints


def resumable_code(stored: Stored, code: bytes | None) -> Bundle | None:
    """The code that was shipped, None if the job needs none; raises StateTrouble if only another machine has
    it. `code` is what this machine has kept of it.
    """
    job = stored.run.job
    if not job.snapshot:
        return None
    if code is None:
        raise StateTrouble(
            f"run {job.name!r} cannot be resumed here: only the machine that submitted it has its code",
            hint="resume it there, or run it again with the same --output and --reuse-results",
        )
    return Bundle(digest=hashlib.sha256(code).hexdigest(), data=code, files=0, size=0)


def check_results(stored: Stored, home: Path, own: Fetched | None, safe: SafeCheckpoints | None) -> None:
    """Raise StateTrouble if new pods of a run that began would not find what it has made so far: they would
    begin from the start. `own` and `safe` are what this machine has noted of its results.
    """
    job = stored.run.job
    if job.pod.output is not None:
        return
    if not keeps_checkpoints(job.pod):
        raise _refused(
            stored,
            f"its results are not on a volume but in {home}, which its pods cannot read",
            f"copy them to one, `echelon cp {quote(str(home))} pvc:CLAIM`, and run it again with --output "
            "pvc:CLAIM --reuse-results; --checkpoints PATH lets the next run be resumed without a volume",
        )
    if own is None:
        raise _refused(
            stored,
            "its safe checkpoints were not brought to this machine",
            f"resume it where it was submitted; there `echelon get {job.name}` says what is missing",
        )
    if safe is None:
        if own.path or own.missing:
            lost = "".join(f"; {each}" for each in own.missing)
            raise _refused(
                stored,
                f"its keeper, which had its safe checkpoints, is gone or had none of its results{lost}",
                f"if {own.path or home} has a whole one, `echelon cp` brings it to a volume, for a run with "
                "--output pvc:CLAIM --reuse-results; --keep keeps them for longer",
            )
        return  # nothing of it ever ran
    assert job.pod.checkpoints is not None
    if any(safe.parts.values()) and not at_home.whole(safe, at_home.look(safe, job.pod.checkpoints)):
        raise _refused(
            stored,
            f"none of its safe checkpoints is in {safe.path} as it was fetched",
            "they were changed, moved or deleted since",
        )


def _refused(stored: Stored, why: str, hint: str) -> StateTrouble:
    return StateTrouble(f"run {stored.run.job.name!r} cannot be resumed: {why}", hint=hint)
