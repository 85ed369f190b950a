"""`-n 2..8`: a run whose number of workers changes while it runs."""

from __future__ import annotations

import re

from echelon.errors import InvalidJob
from echelon.model.job import Job

_HINT = "a number, 4, or the fewest and the most workers, 2..8"


def parse_workers(name: str, value: object) -> tuple[int, int]:
    """Read a number of workers, or a range of them: the fewest and the most."""
    if isinstance(value, float) and value.is_integer():  # as in any JSON: 2.0 is 2
        value = int(value)
    match = re.fullmatch(r"(-?\d{1,9})(?:\.\.(\d{1,9}))?", str(value).strip())
    if match is None or isinstance(value, bool):
        raise InvalidJob(name, value, "is not a number of workers", hint=_HINT)
    least, most = int(match[1]), int(match[2] or match[1])
    if most < least:
        raise InvalidJob(name, value, "is not a range of workers", hint="the smaller number first")
    return least, most


def range_of(job: Job) -> str:
    """The workers of a job as they were given."""
    return str(job.workers) if job.least is None else f"{job.least}..{job.workers}"


def check_elastic(job: Job) -> None:
    """Raise InvalidJob for a range of workers beside what rules it out, and for `settle` without one."""
    if job.least is None:
        if job.settle is not None:
            hint = "give a range of workers, as in -n 2..8"
            raise InvalidJob("settle", f"{job.settle:g}s", "is for runs whose size changes", hint=hint)
        return
    workers = range_of(job)
    if job.least < 1:
        raise InvalidJob("workers", workers, "is less than 1", hint="a run has at least one worker")
    if job.shape is not None:
        hint = "leave one of them out"
        problem = "is a range beside --total-gpus, which chooses their number once"
        raise InvalidJob("workers", workers, problem, hint=hint)
    if job.roles:
        hint = f"give one number, as in -n {job.workers}, or leave --role out"
        raise InvalidJob("workers", workers, f"is a range beside a {job.roles[0].name}", hint=hint)
    if job.pod.job_kind != "job":
        hint = f"give one number, as in -n {job.workers}, or leave --as out"
        raise InvalidJob("workers", workers, f"is a range, which a {job.pod.job_kind} cannot have", hint=hint)
