"""A job that ran, as the job file that asks for the same again: for a person who wants to see it, or run it.

What a job file has no words for stands below it as a comment: nothing is left out in silence, since the
settings are read back and compared."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from echelon.errors import EchelonError
from echelon.jobfile.writing import write_job_file
from echelon.model.job import Job
from echelon.model.meaning import to_job, to_settings
from echelon.model.settings import Settings

# Found anew by every run: the Python, the folder, how often it was started, and what it is tracked with.
_SETTLED = ("python", "cwd", "earlier", "starts_ranks", "commit", "changed", "began")


def job_file_of(job: Job) -> str:
    """The text of the job file."""
    settings = to_settings(job)
    return f"{write_job_file(settings)}{_comment(job, settings)}"


def _comment(job: Job, settings: Settings) -> str:
    """What the settings do not say of the job."""
    asked = msgspec.to_builtins(job)
    try:
        read = msgspec.to_builtins(to_job(settings, name=job.name))
    except EchelonError:
        read = msgspec.to_builtins(Job(name=job.name))
    left = _differing(asked, read)
    if not left:
        return ""
    text = yaml.safe_dump(left, sort_keys=False, allow_unicode=True, width=100)
    return "".join(f"# {line}\n" for line in ["and, which this file does not say:", *text.splitlines()])


def _differing(given: dict[str, Any], read: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in given.items():
        other = read.get(key)
        if key in _SETTLED or value == other:
            continue
        if isinstance(value, dict) and isinstance(other, dict):
            found[key] = _differing(value, other)
        else:
            found[key] = value
    return {key: value for key, value in found.items() if value not in ({}, None)}
