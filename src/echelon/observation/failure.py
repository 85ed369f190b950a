"""A run that did not succeed, or did not end, as an error with its root cause; and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from echelon.errors import EchelonError, RunTimedOut, StateTrouble
from echelon.model.display import duration
from echelon.model.job import Job
from echelon.model.status import Status


class RunFailed(EchelonError):
    """A run did not succeed: `status` is how it ended, `exit_code` what `echelon wait` would exit with."""

    def __init__(self, message: str, *, status: Status, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.exit_code = status.exit_code or 1


def failure_of(status: Status) -> RunFailed | None:
    """How a run that is over failed, as an error with the root cause; None if it succeeded."""
    if status.state == "succeeded":
        return None
    ended = status.state.replace("-", " ")
    reason = f": {status.reason}" if status.reason else ""
    cause = status.root_cause
    failure = RunFailed(
        f"run {status.name!r} {'was ' if status.state in ('stopped', 'lost') else ''}{ended}{reason}",
        hint=(cause.hint if cause is not None else None) or f"`echelon logs {status.name}` shows its output",
        status=status,
    )
    if cause is not None and cause.tail:
        who = "the last lines" if cause.rank is None else f"the last lines of rank {cause.rank}"
        failure.add_note("\n  ".join([f"{who}:", *cause.tail]))
    return failure


def advice_on(status: Status, uri: str, job: Callable[[], Job]) -> str | None:
    """What to do about a run that failed because a file did not travel with its code, as far as the folder
    tells it from which the run was started: this process's, where that is not known.
    """
    error = status.root_cause.error if status.root_cause is not None else None
    if error is None:
        return None
    from echelon.bundle.travel import misses_file, why_missing_here
    from echelon.engines.recent import started_in

    if misses_file(error):
        with suppress(EchelonError, OSError):
            return why_missing_here(error, job(), started_in(uri) or Path.cwd())
    return None


def no_end(status: Status, timeout: float | None) -> EchelonError:
    """Why a wait for a run is over before the run is."""
    if status.state == "recorded":
        return StateTrouble(
            f"run {status.name!r} was recorded and never started",
            hint=f"submit it again, or `echelon rm {status.name}`",
        )
    waited = "" if timeout is None else f" after {duration(timeout)}"
    return RunTimedOut(f"run {status.name!r} is still {status.state}{waited}", hint="wait longer")
