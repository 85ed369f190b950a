"""What a tracker is told that only the submission knows, and whether it can be reached at all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from echelon.errors import InvalidJob
from echelon.model.job import Job
from echelon.model.surroundings import Surroundings

_GIT = 5.0  # seconds that git may take


def settle_tracking(job: Job, surroundings: Surroundings) -> Job:
    """Note the commit of the project. Raises InvalidJob where the metrics could go nowhere."""
    if job.tracking is None:
        return job
    if job.tracking.to == "mlflow":
        from echelon.tracking.mlflow import server_of

        server_of(surroundings.environment)
    elif job.pod.output is not None and job.pod.output.claim is not None:
        hint = "--track mlflow needs no folder; or leave --output out"
        raise InvalidJob("track", "tensorboard", "has no folder here: the results are on a volume", hint=hint)
    commit = _git(surroundings.folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return job
    changed = _git(surroundings.folder, "status", "--porcelain", "--untracked-files=no")
    return replace(job, tracking=replace(job.tracking, commit=commit, changed=bool(changed)))


def _git(folder: Path, *words: str) -> str:
    """What git prints; nothing where there is no repository, or no git."""
    import subprocess  # imported only for runs that name a tracker

    git = shutil.which("git")
    if git is None:
        return ""
    try:
        done = subprocess.run(
            [git, "--no-optional-locks", *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""
