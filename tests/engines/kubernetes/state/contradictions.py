"""Who says otherwise than `status` of how a run stands, and why it may.

`status` reads the most, so that the others are compared with it: all ask the same judge, and what they do not
read for a reason of their own is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.engines.kubernetes.state.facts import Facts, decided

from echelon.values import frozen

Answers = Mapping[str, str]
UNSAID = ("-", "unreachable")  # no answer: it has none, or says that it cannot know


@frozen
class Cause:
    """Why some judges may say otherwise than `status`."""

    name: str
    judges: tuple[str, ...]
    holds: Callable[[Facts, Answers], bool]
    why: str


def differs(judge: str, answers: Answers) -> bool:
    """Whether a judge contradicts `status`: another end, or only one of them says that the run is over."""
    said, other = answers[judge], answers["status"]
    if said in UNSAID:
        return False
    if "on" in (said, other) or said == "over":
        return (said == "on") != (other == "on")
    return said != other


def rightly(facts: Facts) -> str | None:
    """How a run has ended that somebody who tells the truth knows the decision of; None of any other."""
    known = decided(facts)
    if len(known) != 1 or not _began(facts) or facts.phase == "waits":
        return None
    (outcome,) = known
    by_stop = {"stopped": "stopped", "given-up": "failed", "timed-out": "timed-out"}
    return outcome if outcome == "succeeded" else by_stop.get(facts.stop, outcome)


def status_is_wrong(facts: Facts) -> bool:
    """Whether `status` may tell another end than the one that was decided, as far as is known: by the last of
    two verdicts; or by a stop that came later than the verdict, where the objects alone are gone by.
    """
    late = facts.stop == "stopped-late" and (
        facts.jobs == "none" or facts.leader in ("bare-left", "bare-over")
    )
    return facts.leader == "killed-refailed" or late


def cause_of(facts: Facts, judge: str, answers: Answers) -> Cause | None:
    """Why a judge contradicts `status` on a case; None if no cause is known."""
    return next((each for each in CAUSES if judge in each.judges and each.holds(facts, answers)), None)


def _began(facts: Facts) -> bool:
    return facts.phase not in ("recorded", "queued", "held") and not (
        facts.phase in ("being-made", "cut-off") and facts.jobs == "none"
    )


CAUSES = (
    Cause(
        name="a run that never began, with an end or fetched results in its record",
        judges=("rm", "logs", "collecting"),
        holds=lambda facts, _: not _began(facts),
        why="It is recorded, queued or stopped, whatever its record says. `rm` may remove it and `logs -f` "
        "leave it; that is not to say that it is over.",
    ),
    Cause(
        name="logs -f ends with any worker's verdict, and asks no keeper",
        judges=("logs",),
        holds=lambda *_: True,
        why="That no more lines are to come is another question than whether the run is over.",
    ),
    Cause(
        name="ps lists no pods of a run whose record has an end and of which none lives",
        judges=("ps",),
        holds=lambda facts, answers: answers["ps"] == facts.end and not _lives(facts),
        why="A verdict in a termination message is worth more than the record. To ask for it would take a "
        "list of all pods that have ended; where its Jobs deny it, the run is looked at all the same.",
    ),
    Cause(
        name="top asks only leaders that run, and only for their last line",
        judges=("top",),
        holds=lambda *_: True,
        why="It asks whether GPUs are held without work, of all runs at once.",
    ),
)


def _lives(facts: Facts) -> bool:
    """Whether a pod of the run has not ended."""
    living = ("pending", "running", "replaced", "replacing", "leaving", "cut-off", "killed-repl")
    return facts.leader.startswith(living) or facts.peer.startswith(living)
