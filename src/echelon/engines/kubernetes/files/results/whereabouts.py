"""Where the results of a run are, and how long they stay there: what its job says of it. Pure.

A submission needs this, and nothing of what fetches results (`collecting.py`, `fetching.py`)."""

from __future__ import annotations

from dataclasses import replace

from echelon.engines.kubernetes import names
from echelon.model.job import Job
from echelon.model.pods.way_home import without_exec
from echelon.model.run import Record


def keeps_results(record: Record) -> bool:
    """Whether the workers themselves keep what the run has made; on a volume it stays without them."""
    return record.job.pod.output is None or bool(record.job.pod.collect)


def note_on_rights(job: Job) -> str | None:
    """What a user without the right to `pods/exec` should know before the run starts."""
    output = job.pod.output
    if output is not None and output.claim is not None and not job.pod.collect:
        return None
    return (
        "you may not create pods/exec, so results that lie in the workers cannot be fetched, and a stop ends "
        "them with their pods; --output pvc:NAME keeps them on a volume"
    )


def note_on_restarts(job: Job) -> str | None:
    """What a user whose workers are replaced should know of what these wrote."""
    lasting = any(mount.kind != "emptydir" and not mount.read_only for mount in job.pod.mounts)
    if not job.restarts or job.pod.output is not None or job.pod.checkpoints is not None or lasting:
        return None
    return (
        "a worker that is replaced starts with an empty folder: --checkpoints ckpt brings back what the "
        "script has written to {output}/ckpt; --output pvc:NAME or new:10Gi keeps all on a volume"
    )


def note_on_checkpoints(job: Job) -> str | None:
    """What a user whose checkpoints are to outlive their pod should know of where they are, and of what
    brings them back.
    """
    path = job.pod.checkpoints
    if path is None:
        return None
    if job.pod.output is not None:
        return f"{{output}}/{path} is on the volume of --output: its checkpoints need nothing more"
    if job.resume:
        return (
            f"checkpoints that are in the results folder are not sent to the pods: {{output}}/{path} is "
            "empty when the script starts; --output pvc:NAME goes on from what is on a volume"
        )
    if not job.restarts:
        return (
            f"--checkpoints {path} brings back what a lost pod has written when another takes its place, "
            "which needs --restarts N"
        )
    return None


def without_linger(job: Job) -> Job:
    """The job of a user without the right to `pods/exec`."""
    return replace(job, pod=without_exec(job.pod))


def stay_on_volume(record: Record) -> bool:
    """Whether the results, logs too, are on a volume of the user's, and stay there."""
    return record.job.pod.output is not None and record.job.pod.output.claim is not None


def has_own_claim(record: Record) -> bool:
    """Whether the results are on a volume that was made for this run alone."""
    return record.job.pod.output is not None and record.job.pod.output.claim is None


def kept_volumes(record: Record, *, keep_own: bool) -> tuple[str, ...]:
    """The volumes on which results stay when the run is forgotten."""
    output = record.job.pod.output
    if output is None:
        return ()
    if output.claim is not None:
        return (f"pvc:{output.claim}/{output.path}".rstrip("/"),)
    return (f"pvc:{names.claim_name(record.ref.name)}",) if keep_own and record.plan is not None else ()
