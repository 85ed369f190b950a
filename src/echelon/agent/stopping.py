"""The signals that end a run's ranks, one after the other: SIGINT, SIGTERM, SIGKILL, each harder than the
one before. Pure.

A stop begins with one of them and goes on to the next when the ranks' time is over, or when a harder one is
asked for. It never goes back, so no rank gets the same signal twice. Its deadline, the time of SIGKILL, is
one value that is handed down with the order, as the seconds until then: clocks of workers differ. The client
uses the same names.

With the first signal a file appears that `ECHELON_NOTICE` names. It says why ranks are told to end, which of
`LEAVE` and its like, and when SIGKILL comes: for scripts that would rather look at a file."""

from __future__ import annotations

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Mapping

INTERRUPT, TERMINATE, KILL = "SIGINT", "SIGTERM", "SIGKILL"
SIGNALS = (INTERRUPT, TERMINATE, KILL)
GIVING_AT_END = 600.0  # seconds that the end of a run waits at most until its checkpoints have been given
LEAVE = "leave"  # a worker was told to leave: its pod is preempted, evicted, drained or deleted
STOP, TIMEOUT = "stop", "timeout"  # the run was stopped; its time limit has passed
RESIZE = "resize"  # workers have joined: all start again with more
FAILURE, DONE = "failure", "done"  # another rank or worker has failed; the run has succeeded without this one


def is_harder(signal: str, than: str | None) -> bool:
    """Whether a signal comes after another one; None is before all of them."""
    return than is None or SIGNALS.index(signal) > SIGNALS.index(than)


def after(signal: str) -> str:
    """The signal that follows; nothing follows SIGKILL."""
    return SIGNALS[min(SIGNALS.index(signal) + 1, len(SIGNALS) - 1)]


def time_left(signal: str, grace: float) -> float:
    """The seconds from a signal to SIGKILL, if ranks get `grace` seconds after each signal."""
    return grace * (len(SIGNALS) - 1 - SIGNALS.index(signal))


def notice(reason: str, who: str | None) -> dict[str, object]:
    """Why ranks are told to end, and who has asked for it, was told to leave, or has failed."""
    return {"reason": reason, "who": who}


def leave(worker: int) -> dict[str, object]:
    """The notice of all ranks when one worker is told to leave."""
    return notice(LEAVE, "worker %d" % worker)


def seconds_in(value: object) -> float | None:
    """The seconds that a message has, if it has any."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if known else None  # type: ignore[arg-type]


def asked_for(request: Mapping[str, object]) -> str:
    """The signal that a request to stop names; one of an older version says `now` or nothing."""
    named = request.get("signal")
    if named in SIGNALS:
        return str(named)
    return KILL if request.get("now") else TERMINATE
