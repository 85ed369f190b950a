"""A run that did not succeed, as an error with its root cause."""

from __future__ import annotations

from echelon.errors import EchelonError
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
