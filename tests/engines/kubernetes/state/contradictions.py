"""Where those who judge how a run stands contradict each other today, by cause, and who is right.

`status` reads the most, so that the others are compared with it: each that says otherwise of the same
evidence has its cause here. Of several, the first counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.engines.kubernetes.state.facts import Facts, decided

from echelon.values import frozen

Answers = Mapping[str, str]
UNSAID = ("-", "unreachable")  # no answer: it has none, or says that it cannot know
_BY_OBJECTS = ("ps", "stop", "upkeep")  # who ask logs only if objects show no end, or not at all


@frozen
class Cause:
    """Why some judges contradict `status`, and which answer is right."""

    name: str
    judges: tuple[str, ...]
    holds: Callable[[Facts, Answers], bool]
    right: str


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
    if len(known) != 1 or not _began(facts) or facts.phase == "held":
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


def _log_ends(facts: Facts) -> bool:
    """Whether the leader's log tells an end, and its pod has not ended."""
    return facts.told.startswith("told") and facts.leader in (
        "running",
        "replaced",
        "leaving",
        "killed-replaced",
    )


def _gives_end(facts: Facts, answers: Answers) -> bool:
    """Whether somebody has gone by the end in the record."""
    return facts.end != "-" and facts.end in answers.values()


CAUSES = (
    Cause(
        name="a run that never began, with an end or fetched results in its record",
        judges=("rm", "logs", "collecting"),
        holds=lambda facts, _: not _began(facts),
        right="It is recorded, queued or stopped, whatever its record says of an end or of results. `rm` may "
        "remove it and `logs -f` leave it; that is not to say that it is over.",
    ),
    Cause(
        name="a held run that somebody has suspended: pods are not looked at",
        judges=("ps", "top"),
        holds=lambda facts, _: facts.phase == "held-admitted" and facts.jobs == "suspended",
        right="`ps`: once admitted, its pods count, and a leader that told its end has ended it. `look` must "
        "leave pods out only while there is no plan.",
    ),
    Cause(
        name="two pods of the leader say different ends",
        judges=_BY_OBJECTS,
        holds=lambda facts, _: facts.leader == "killed-refailed",
        right="The first verdict of a run is its end: the pod that replaced a leader which had told it knows "
        "nothing of it. Today objects go by the newest verdict, logs by the last one that was read.",
    ),
    Cause(
        name="upkeep asks no log, and calls a run going on that its leader's log has ended",
        judges=("upkeep",),
        holds=lambda _, answers: answers["upkeep"] == "on",
        right="`status`. Until somebody has written the end, upkeep ends the Jobs of a stopped run whose "
        "workers hold results (EndJobs), gives up and frees pods. It must ask before it acts.",
    ),
    Cause(
        name="upkeep goes by the end in the record, though nothing bears it out",
        judges=("upkeep",),
        holds=lambda facts, answers: answers["upkeep"] == facts.end and answers["status"] == "on",
        right="`status`: the end is unproven, and what would prove it is the leader's log. Taking it for "
        "true suspends all care: no pod is freed, no stop carried out, no gang rolled back.",
    ),
    Cause(
        name="the leader left without a message, and its log has the end",
        judges=_BY_OBJECTS,
        holds=lambda facts, _: facts.leader.startswith("bare") and facts.told != "-",
        right="`status`: the log of a leader that has ended without a verdict decides. Upkeep writes "
        "`failed` into the record of a run that was stopped.",
    ),
    Cause(
        name="the keeper knows the end, and is not asked",
        judges=("ps", "wait", "late", "logs", "stop", "rm", "upkeep"),
        holds=lambda facts, _: facts.keeper.startswith("told"),
        right="`status`: where no leader can tell, the keeper decides before the objects do. `wait` hears it "
        "only of a run whose record has an end, `ps` only if the objects show one, `stop` and `rm` only if "
        "they show none, upkeep never.",
    ),
    Cause(
        name="another worker knows the end, and is not asked",
        judges=("ps", "wait", "late", "stop", "upkeep"),
        holds=lambda facts, _: facts.peers.startswith("alone"),
        right="`status`: a worker that holds its results alone has the verdict in its log. Who follows a run "
        "reads it only if it saw the leader leave, or the record has an end; `ps` and upkeep never.",
    ),
    Cause(
        name="logs -f ends with any worker's verdict",
        judges=("logs",),
        holds=lambda _, answers: answers["logs"] == "over",
        right="Both: the leader's last line is missing, so that the run is not over; that nothing more is "
        "expected after 20 s of silence is a matter of lines, not of the run's end.",
    ),
    Cause(
        name="logs -f waits for workers that begin anew, though the run has ended by a rank",
        judges=("logs",),
        holds=lambda facts, _: facts.jobs == "suspended",
        right="`status`: only workers that were told to leave begin anew when their Job goes on.",
    ),
    Cause(
        name="the Job is final, gone or withdrawn, while a leader that still runs tells another end",
        judges=_BY_OBJECTS,
        holds=lambda facts, answers: (
            _log_ends(facts) and not _gives_end(facts, answers) and answers["ps"] != "on"
        ),
        right="`status`: a leader that runs is asked before its Job is believed, and a stop without Jobs "
        "ends a run only if no pod of it is at work.",
    ),
    Cause(
        name="ps asks no leader whose pod is being deleted",
        judges=("ps",),
        holds=lambda facts, answers: answers["ps"] == "on" and facts.leader == "leaving",
        right="`status`: its log can be read until it is gone.",
    ),
    Cause(
        name="ps asks no leader of a run that keeps nothing in its pods",
        judges=("ps",),
        holds=lambda facts, answers: answers["ps"] == "on" and facts.phase == "on-volume",
        right="`status`, though only for the moments between the last line and the pod's end.",
    ),
    Cause(
        name="ps lists no pods of a run whose record has an end and of which none lives",
        judges=("ps",),
        holds=lambda facts, _: (
            facts.end != "-"
            and facts.leader.startswith(("over", "killed", "bare"))
            and facts.peer not in ("running", "replaced", "pending", "leaving", "cut-off")
        ),
        right="`status`: the verdict in a termination message is worth more than the record. The price is "
        "a list of the pods of runs whose Jobs do not say the same as their records.",
    ),
    Cause(
        name="ps goes by the end in the record where the leader cannot be asked or may not know",
        judges=("ps",),
        holds=lambda facts, answers: answers["ps"] == facts.end and answers["status"] == "on",
        right="`status`, as `rm` and `stop` say too: unproven, shown as going on with what is lacking. "
        "`ps` turns to the record whenever a closer look says starting, restarting, stopping or queued.",
    ),
    Cause(
        name="the record's end is preferred to a log that tells another",
        judges=_BY_OBJECTS,
        holds=_gives_end,
        right="`status`: a log decides how a run has ended, the record only where none is left. A false end "
        "stays in the record: upkeep takes it for its own.",
    ),
    Cause(
        name="top asks only leaders that run, and only for their last line",
        judges=("top",),
        holds=lambda *_: True,
        right="`status`, where it says that the run is over: its workers hold GPUs without work. Of a leader "
        "whose Job is suspended, `top` takes the end of its pod for the run's.",
    ),
)
