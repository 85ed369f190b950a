"""Every error that a user can see, each with a hint and an exit code of its own.

Foreign errors (OSError, YAML, HTTP) are translated where they enter, so that the CLI handles this tree only::

    EchelonError                       1
    ├── OutputFailed                 109  what is printed cannot be written: standard output is full
    ├── InvalidJob                   110  a field of the job is wrong: which, its value, the fix
    ├── UnknownRun                   111  no run of that name
    ├── RunExists                    112  the name is taken
    ├── Unplaceable                  113  larger than the machine or the cluster
    ├── NoRoomNow                    114  it would have to wait, and --no-wait was given
    ├── StateTrouble                 115  the state or results folder cannot be used
    ├── CannotShip                   116  a function or a project that cannot be shipped
    ├── RunLost                      117  the run ended without a verdict
    ├── RunTimedOut                  118  --timeout ended it, or a wait took too long
    ├── Unavailable                  119  something needed is missing here
    ├── Unreachable                  120  the cluster does not answer
    ├── Denied                       121  the cluster does not know the user, or does not let them
    ├── Refused                      122  the cluster refused the request: quota, webhook, invalid
    ├── ResultsIncomplete            123  not all results of a run are here: of which worker, and why
    └── RunStuck                     124  ranks did nothing, or waited in vain, for --stall

A run's own failure is not an error of echelon: `run` and `wait` exit with the code of the first failing rank
(128+n for a signal); in Python it is `RunFailed`, with that code (`observation/failure.py`). 2 is a usage
error, 130 an interruption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any


class EchelonError(Exception):
    """The root: a message that names the problem, and a hint that says what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | Callable[[], str] = "") -> None:
        super().__init__(message)
        self.message = message
        self._hint = hint
        self.others: tuple[EchelonError, ...] = ()  # what is wrong besides, where several things are

    @cached_property
    def hint(self) -> str:
        """What to do. One that takes long to find is looked for when it is shown."""
        return self._hint if isinstance(self._hint, str) else self._hint()

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class OutputFailed(EchelonError):
    """What the command prints cannot be written."""

    exit_code = 109


class InvalidJob(EchelonError):
    """A field of the job is wrong."""

    exit_code = 110

    def __init__(self, field: str, value: object, problem: str, *, hint: str = "") -> None:
        super().__init__(f"{field}: {value!r} {problem}", hint=hint)
        self.field = field
        self.value = value


class UnknownRun(EchelonError):
    """No run of that name."""

    exit_code = 111


class RunExists(EchelonError):
    """The name is taken by another run."""

    exit_code = 112


class Unplaceable(EchelonError):
    """The request is larger than the machine or the cluster will ever offer."""

    exit_code = 113


class NoRoomNow(EchelonError):
    """The run would be queued, and --no-wait was given."""

    exit_code = 114


class StateTrouble(EchelonError):
    """A folder that echelon must write to, or a file in it, cannot be used."""

    exit_code = 115


class CannotShip(EchelonError):
    """Code, a function or a value that cannot be shipped to the workers."""

    exit_code = 116


class RunLost(EchelonError):
    """The run ended without a verdict."""

    exit_code = 117


class RunTimedOut(EchelonError):
    """A time limit that the user set has passed."""

    exit_code = 118


class Unavailable(EchelonError):
    """Something that the request needs is not here."""

    exit_code = 119


class Unreachable(EchelonError):
    """The cluster's API server does not answer."""

    exit_code = 120


class Denied(EchelonError):
    """The API server does not know the user, or the user lacks a right."""

    exit_code = 121


class Refused(EchelonError):
    """The API server refused a valid request."""

    exit_code = 122


class ResultsIncomplete(EchelonError):
    """Not all results of a run that is over are where they belong. The run itself may have succeeded.

    `left_out` are files that cannot be copied at all, beside those that are missing: `model.copy.LeftOut`."""

    exit_code = 123
    left_out: Sequence[Any] = ()


class RunStuck(EchelonError):
    """The ranks of a run did nothing, or waited for each other in vain, for the time of --stall."""

    exit_code = 124


def from_output_error(error: OSError, stream: str = "standard output") -> OutputFailed:
    """The error of a write to one of our own streams."""
    problem = error.strerror or str(error)
    return OutputFailed(
        f"cannot write to {stream}: {problem}", hint="free some space, or redirect it elsewhere"
    )


def from_os_error(error: OSError, path: object = None) -> StateTrouble:
    """An operating system's error as an error of ours; `path` is used if the error itself has none."""
    import errno

    where = error.filename or path
    if error.errno == errno.ENOSPC:
        return StateTrouble(
            f"the disk is full at {where}", hint="free some space, or choose a folder on another disk"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
        return StateTrouble(
            f"cannot use {where}: {error.strerror}",
            hint="choose a folder that you may write to (ECHELON_HOME for the state, --results for results)",
        )
    return StateTrouble(
        f"{where}: {error.strerror or error}", hint="check that the path exists and that you may use it"
    )
