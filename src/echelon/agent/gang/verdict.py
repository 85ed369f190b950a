"""A run's verdict, and its cause, chosen among all failures. Pure.

The end of a single rank is described in `ranks/report.py`. The client shares the outcomes and exit codes, and
the memory engine the choice of the cause."""

from __future__ import annotations

from echelon.agent.task import LEFT_FOR_GOOD, RUN_OVER

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

    from echelon.agent.gang.hang import Finding
    from echelon.agent.task import Place

OUTCOMES = ("succeeded", "failed", "stopped", "timed-out")
LOST_EXIT_CODE = 117  # of a run that lost a worker: there is no rank's exit code to pass on
TIMEOUT_EXIT_CODE = 118
STUCK_EXIT_CODE = 124  # of a run whose ranks did nothing for too long
STOPPED_EXIT_CODE = 143
# Kinds of causes that are no rank's, as the client's `model/event.py` lists them.
LOST, LEFT, ABSENT, LAUNCHER, STUCK, RESIZED = (
    "worker-lost",
    "worker-left",
    "worker-absent",
    "launcher",
    "stuck",
    "resized",
)
_MOST_PLACES = 4
_EXIT_CODES = {"succeeded": 0, "stopped": STOPPED_EXIT_CODE, "timed-out": TIMEOUT_EXIT_CODE}


def make_verdict(outcome: str, reason: str | None, cause: dict[str, Any] | None) -> dict[str, object]:
    """The final result of a run; its exit code is that of the cause, where there is one."""
    code = _EXIT_CODES[outcome] if cause is None else cause["exit_code"]
    return {"outcome": outcome, "exit_code": code, "reason": reason, "cause": cause}


def only_left(verdict: dict[str, object]) -> bool:
    """Whether a run has failed through nothing but workers that were told to leave. Who suspends its Job
    tells them so too, and they begin anew when it goes on.
    """
    cause = verdict["cause"]
    return isinstance(cause, dict) and cause.get("kind") == LEFT


def code_of(verdict: dict[str, object], *, for_good: bool) -> int:
    """The exit code of a leader by a verdict; `for_good` says that it was told to leave itself, and that no
    other pod is to be in its place.
    """
    if verdict["outcome"] == "succeeded":
        return 0
    return LEFT_FOR_GOOD if for_good and only_left(verdict) else RUN_OVER


def find_cause(ends: list[dict[str, Any]], lost: list[tuple[int, str, str]]) -> dict[str, Any]:
    """A rank that failed by itself, else a lost worker, else the first failure that was reported."""
    if ends and (not lost or not all(end["consequence"] for end in ends)):
        return choose_cause(ends)
    return {**cause_of_loss(lost, "it left"), "others": _outlines(ends)}


def choose_cause(ends: list[dict[str, Any]]) -> dict[str, Any]:
    """The root cause among the failed ranks, given in the order in which they were reported. Of those that
    may only have followed another one, the launcher of all ranks, and those that it ended without a word,
    come last.
    """

    def order(pair: tuple[int, dict[str, Any]]) -> tuple[bool, bool, bool, int]:
        number, end = pair
        says_nothing = bool(end.get("cut_off")) and end["error"] is None
        return end["consequence"], says_nothing, end["rank"] is None, number

    first = min(enumerate(ends), key=order)[1]
    keys = ("summary", "worker", "rank", "exit_code", "signal", "error", "hint", "tail")
    cause = {key: first[key] for key in keys}
    cause["kind"] = LAUNCHER if cause["rank"] is None else "rank"
    cause["others"] = _outlines([end for end in ends if end is not first])
    return cause


def cause_of_loss(lost: list[tuple[int, str, str]], otherwise: str) -> dict[str, Any]:
    """The first of the workers that were lost, each with the reason and the kind of its loss; if none is
    known of, it was worker 0, for the reason `otherwise`.
    """
    worker, reason, kind = lost[0] if lost else (0, otherwise, LOST)
    return _without_rank("worker %d was lost: %s" % (worker, reason), worker, kind)


def cause_of_growth(who: str) -> dict[str, Any]:
    """The cause of a start with more workers: nothing has failed."""
    return {"summary": who, "kind": RESIZED, "exit_code": 0}


def cause_of_absence(missing: list[int], verb: str, patience: float) -> dict[str, Any]:
    """The cause for workers that did not come in time."""
    names = ("worker " if len(missing) == 1 else "workers ") + _listed(missing)
    return _without_rank("%s %s within %g s" % (names, verb, patience), missing[0], ABSENT)


def cause_of_stall(
    limit: float, ends: list[dict[str, Any]], said: str | None = None, hang: Finding | None = None
) -> dict[str, Any]:
    """The cause for ranks that did nothing for so many seconds, or waited for each other, as was `said`;
    `ends` are theirs, when they were stopped, and `hang` what was seen of them before.
    """
    summary = said
    if summary is None:
        summary = "the run was stuck: no rank printed or computed for %g s (--stall)" % limit
        if hang is not None:
            summary = "%s; %s" % (summary, hang.sentence)
    return {
        "summary": summary,
        **({"peers": "; ".join(hang.lines)} if hang is not None and hang.lines else {}),
        "kind": STUCK,
        "exit_code": STUCK_EXIT_CODE,
        "hint": "the last lines of the ranks' output tell where each of them was",
        "others": _outlines(ends),
    }


def after_early_ends(summary: str, well: dict[int, float]) -> str:
    """How a rank failed that has lost its peers: some had ended well before, and none failed by itself."""
    first = min(well.values())
    return "%s exited 0 after %.0f s, and then %s" % (_ranks(sorted(well)), first, summary)


def describe_peers(well: dict[int, float], running: list[int], places: dict[str, str]) -> str:
    """How the ranks stood when they were stopped: those that had ended well, for which others may
    have waited, those that ran, and where these were.
    """
    parts = []
    if well:
        first = min(well.values())
        when = "after %.0f s" % first if len(well) == 1 else "the first after %.0f s" % first
        parts.append("%s had exited 0%s %s" % (_ranks(sorted(well)), "," if len(well) > 1 else "", when))
        if running:
            parts.append("%s %s still running" % (_ranks(running), "was" if len(running) == 1 else "were"))
    if places:
        known = sorted(places.items(), key=lambda place: int(place[0]))[:_MOST_PLACES]
        parts.append(", ".join("rank %s was in %s" % place for place in known))
    return "; ".join(parts)


def ranks_left(
    places: list[Place], workers: set[int], well: dict[int, float], ends: list[dict[str, Any]]
) -> list[int]:
    """The ranks of some workers that have ended neither well nor otherwise."""
    ended = set(well).union(end["rank"] for end in ends)
    firsts = [(place.first_rank, place.procs) for place in places if place.worker in workers]
    ranks = (rank for first, procs in firsts for rank in range(first, first + procs))
    return [rank for rank in ranks if rank not in ended]


def _ranks(numbers: list[int]) -> str:
    return ("rank " if len(numbers) == 1 else "ranks ") + _listed(numbers)


def _without_rank(summary: str, worker: int, kind: str) -> dict[str, Any]:
    return {"summary": summary, "kind": kind, "worker": worker, "exit_code": LOST_EXIT_CODE}


def _outlines(ends: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ranks' ends without their output, for the list of failures that were not the cause; a launcher, which
    fails because its ranks do, is not among them.
    """
    keys = ("rank", "worker", "exit_code", "signal", "error", "consequence")
    return [{key: end[key] for key in keys} for end in ends if end["rank"] is not None]


def _listed(numbers: list[int]) -> str:
    """0, 1, 2, 5 and 9 more: enough to know where to look."""
    shown = ", ".join(str(number) for number in numbers[:8])
    return shown if len(numbers) <= 8 else "%s and %d more" % (shown, len(numbers) - 8)
