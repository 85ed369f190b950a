"""How a run's end is told: the verdict, and the cause that it names, chosen among all that went wrong. Pure.

What one rank says of its own end is in `report.py`. Who calls it: `gang.py`; the client knows the outcomes
and exit codes from here, and a played run has its cause chosen here too."""

from __future__ import annotations

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

OUTCOMES = ("succeeded", "failed", "stopped", "timed-out")
LOST_EXIT_CODE = 117  # what a run exits with that lost a worker: no rank's exit code is there to be passed on
TIMEOUT_EXIT_CODE = 118
STOPPED_EXIT_CODE = 143
# Kinds of causes that are no rank's, as the client's `model/event.py` lists them.
LOST, LEFT, ABSENT = "worker-lost", "worker-left", "worker-absent"
_EXIT_CODES = {"succeeded": 0, "stopped": STOPPED_EXIT_CODE, "timed-out": TIMEOUT_EXIT_CODE}


def make_verdict(outcome: str, reason: str | None, cause: dict[str, Any] | None) -> dict[str, object]:
    """The last word on a run; its exit code is that of the cause, where there is one."""
    code = _EXIT_CODES[outcome] if cause is None else cause["exit_code"]
    return {"outcome": outcome, "exit_code": code, "reason": reason, "cause": cause}


def find_cause(ends: list[dict[str, Any]], lost: list[tuple[int, str, str]]) -> dict[str, Any]:
    """A rank that failed by itself, else a worker that was lost, else whoever was heard of first."""
    if ends and (not lost or not all(end["consequence"] for end in ends)):
        return choose_cause(ends)
    return {**cause_of_loss(lost, "it left"), "others": [_outline(end) for end in ends]}


def choose_cause(ends: list[dict[str, Any]]) -> dict[str, Any]:
    """The root cause among the ranks that failed, given in the order in which they were heard of."""
    first = min(enumerate(ends), key=lambda pair: (pair[1]["consequence"], pair[0]))[1]
    cause = {key: first[key] for key in ("summary", "worker", "rank", "exit_code", "signal", "error", "tail")}
    cause["kind"] = "rank"
    cause["others"] = [_outline(end) for end in ends if end is not first]
    return cause


def cause_of_loss(lost: list[tuple[int, str, str]], otherwise: str) -> dict[str, Any]:
    """The first of the workers that were lost, each with the reason and the kind of its loss; if none is
    known of, it was worker 0, for the reason `otherwise`.
    """
    worker, reason, kind = lost[0] if lost else (0, otherwise, LOST)
    return _without_rank("worker %d was lost: %s" % (worker, reason), worker, kind)


def cause_of_absence(missing: list[int], verb: str, patience: float) -> dict[str, Any]:
    """Workers that were waited for in vain."""
    names = ("worker " if len(missing) == 1 else "workers ") + _listed(missing)
    return _without_rank("%s %s within %g s" % (names, verb, patience), missing[0], ABSENT)


def _without_rank(summary: str, worker: int, kind: str) -> dict[str, Any]:
    return {"summary": summary, "kind": kind, "worker": worker, "exit_code": LOST_EXIT_CODE}


def _outline(end: dict[str, Any]) -> dict[str, Any]:
    """A rank's end without its words, for the list of those that were not the cause."""
    return {key: end[key] for key in ("rank", "worker", "exit_code", "signal", "error", "consequence")}


def _listed(numbers: list[int]) -> str:
    """0, 1, 2, 5 and 9 more: enough to know where to look."""
    shown = ", ".join(str(number) for number in numbers[:8])
    return shown if len(numbers) <= 8 else "%s and %d more" % (shown, len(numbers) - 8)
