"""What can be found together of a run in a cluster: words for its record, Jobs, pods and what logs tell.

`evidence.py` makes objects of them. A combination is named by them:

    started/stopped/-/- + failed-policy + over-failed,no-leader + logs told-failed,-

is a run that has started, with a stop and no end in its record, nothing fetched; its Job has failed by its
pod failure policy; the leader has ended with a verdict, the other worker since it missed the leader; the
leader's log has the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from echelon.values import frozen


@frozen
class Facts:
    """What a case is made of: a word of each table below."""

    jobs: str
    leader: str
    peer: str
    told: str = "-"  # by the leader's log
    peers: str = "-"  # by the other worker's
    keeper: str = "-"
    phase: str = "started"
    stop: str = "-"
    end: str = "-"
    fetched: str = "-"

    def __str__(self) -> str:
        logs = f" + logs {self.told},{self.peers}" if (self.told, self.peers) != ("-", "-") else ""
        keeper = f" + keeper {self.keeper}" if self.keeper != "-" else ""
        record = f"{self.phase}/{self.stop}/{self.end}/{self.fetched}"
        return f"{record} + {self.jobs} + {self.leader},{self.peer}{logs}{keeper}"


# The record

PHASES = (
    "recorded",
    "waits",  # its Jobs wait for admission
    "being-made",  # it starts at once, and a client is making its Jobs at this moment
    "cut-off",  # likewise; the client that made the Jobs is gone, and did not tie the record to them
    "started",  # it was left to the scheduler
    "on-volume",  # likewise; its results are on a volume, so that no worker stays for them
    "admitted",  # its Jobs had waited
)
STOPS = (
    "-",
    "stopped",
    "stopped-late",  # after the leader had decided
    "given-up",
    "timed-out",
)
ENDS = ("-", "succeeded", "failed", "stopped")
FETCHED = ("-", "fetched")

# Jobs: what is said of each, and its conditions

JOBS = (
    "none",
    "running",
    "suspended",
    "withdrawn",
    "complete",
    "completing",  # it has met its criteria, and its pods leave
    "failed-policy",
    "failed-indexes",
    "failed-deadline",
    "failing-policy",  # its pods leave, and it is not final
    "failing-deadline",
    "deleted",
    "two-running",
    "two-first-failed",
    "two-first-complete",
    "two-one-missing",
    "two-one-suspended",
)

# Pods

LEADERS = (
    "none",
    "pending",
    "running",
    "replaced",  # it runs, after one that was lost
    "replacing",  # one that was lost, and another one that has not begun
    "over-succeeded",  # it has ended, with a verdict in its termination message
    "over-failed",
    "over-stopped",
    "over-left",  # it was told to leave, and no restart was left
    "killed-after",  # it had told that the run has succeeded, stayed, and was killed
    "killed-replacing",  # likewise, and another one has not begun
    "killed-replaced",  # likewise, and another one runs
    "killed-refailed",  # likewise, and has failed, since no other worker came any more
    "bare-0",  # it has ended so, and left no verdict
    "bare-over",
    "bare-left",
    "oom",
    "leaving",  # its pod is deleted, and it still runs
    "left",  # its pod is deleted, and it has ended
    "cut-off",  # its node does not respond
    "cut-off-deleted",
)
PEERS = (
    "none",
    "pending",
    "running",
    "replaced",
    "done",
    "rank-failed",
    "no-leader",
    "left-for-good",
    "oom",
    "leaving",
    "cut-off",
)

# Logs

TOLD = (
    "-",  # nothing: no pod, or nobody can read it
    "empty",  # it can be read, and has no line yet, or none any more
    "goes-on",
    "decided",  # the verdict is there (failed), and the last line is not
    "told-succeeded",
    "told-failed",
    "told-stopped",
    "told-left",  # failed, since a worker was told to leave
)
PEERS_TOLD = ("-", "goes-on", "alone-succeeded", "alone-failed")
KEEPERS = ("-", "silent", "told-succeeded", "told-failed", "gone")


# Which of them go together

_WORKS = ("running", "replaced")
_NOT_BEGUN = ("none", "pending")
_TELLS = {  # what the log of a leader in that state may tell, where it can be read
    "running": ("empty", "goes-on", "decided", "told-succeeded", "told-failed", "told-stopped"),
    "replaced": ("empty", "goes-on", "told-failed"),
    "replacing": (),  # the log of the new one is empty
    "over-succeeded": ("told-succeeded",),
    "over-failed": ("told-failed",),
    "over-stopped": ("told-stopped",),
    "over-left": ("told-left",),
    "killed-after": ("told-succeeded",),
    "killed-replacing": (),
    "killed-replaced": ("empty", "goes-on", "told-succeeded"),
    "killed-refailed": ("told-failed",),
    "bare-0": ("told-succeeded",),
    "bare-over": ("told-failed", "told-stopped"),
    "bare-left": ("told-left",),
    "oom": ("goes-on",),
    "leaving": ("goes-on", "told-succeeded", "told-failed", "told-left"),
    "left": ("goes-on",),
}
_SEEN = {  # states of the leader that a Job in that state may go with
    "none": ("none", "running", "leaving", "over-succeeded", "over-failed", "left", "cut-off"),
    "running": LEADERS,
    "suspended": ("none", "leaving", "left", "over-left", "over-failed", "over-succeeded"),
    "withdrawn": ("none", "leaving"),
    "complete": ("none", "over-succeeded", "bare-0"),
    "completing": ("over-succeeded", "bare-0"),
    # A failed Job's pods are ended, those of dead nodes stay; who is late has not seen so yet.
    "failed-policy": (
        *("none", "running", "over-failed", "over-stopped", "bare-over", "oom", "leaving", "left"),
        *("cut-off", "killed-after", "killed-refailed"),
    ),
    "failed-indexes": ("none", "over-left", "bare-left", "oom", "left", "killed-after", "cut-off"),
    "failed-deadline": ("none", "over-stopped", "over-failed", "bare-over", "left", "killed-after"),
    "failing-policy": (
        *("none", "running", "over-failed", "over-stopped", "bare-over", "oom", "leaving", "left"),
        *("cut-off", "cut-off-deleted"),
    ),
    "failing-deadline": ("none", "pending", "running", "leaving", "left", "over-stopped", "cut-off-deleted"),
    "deleted": ("none", "running", "leaving", "left", "over-succeeded", "over-failed", "cut-off-deleted"),
    "two-running": tuple(each for each in LEADERS if not each.startswith("killed-re")),
    "two-first-failed": ("none", "over-failed", "over-stopped", "bare-over", "leaving", "left"),
    "two-first-complete": ("none", "over-succeeded", "bare-0"),
    "two-one-missing": ("none", "pending", "running"),
    "two-one-suspended": ("none", "pending", "running"),
}
_BESIDE = {  # states of the other worker that go with the leader's
    "none": ("none", "running", "done", "no-leader", "left-for-good", "leaving", "cut-off"),
    "pending": ("none", "pending", "running"),
    "running": (
        "none",
        "pending",
        "running",
        "replaced",
        "done",
        "rank-failed",
        "no-leader",
        "oom",
        "leaving",
    ),
    "replaced": ("running", "done", "replaced"),
    "replacing": ("running", "done", "no-leader"),
    "over-succeeded": ("none", "running", "done", "cut-off"),
    "over-failed": ("none", "pending", "running", "rank-failed", "done", "oom", "no-leader", "leaving"),
    "over-stopped": ("none", "pending", "running", "done", "leaving"),
    "over-left": ("none", "done", "running", "leaving"),
    "killed-after": ("none", "running", "done"),
    "killed-replacing": ("running", "done"),
    "killed-replaced": ("running", "done"),
    "killed-refailed": ("done", "none"),
    "bare-0": ("done", "running"),
    "bare-over": ("none", "done", "running", "rank-failed", "no-leader"),
    "bare-left": ("none", "done", "running"),
    "oom": ("none", "running", "no-leader", "leaving"),
    "leaving": ("none", "running", "no-leader", "leaving"),
    "left": ("none", "running", "no-leader", "leaving", "left-for-good"),
    "cut-off": ("none", "running", "done", "no-leader", "cut-off", "oom"),
    "cut-off-deleted": ("none", "running", "no-leader", "oom"),
}
_BY_JOB = {  # states of the other worker that go with its Job's
    "none": ("none", "running", "done", "leaving", "no-leader"),
    "suspended": ("none", "leaving", "done", "left-for-good"),
    "withdrawn": ("none", "leaving", "done", "left-for-good"),
    "complete": ("none", "done"),
    "completing": ("done",),
    "failed-policy": tuple(each for each in PEERS if each not in ("pending", "running", "replaced")),
    "failing-policy": tuple(each for each in PEERS if each not in ("pending", "replaced")),
    "failed-indexes": ("none", "done", "oom", "leaving", "left-for-good"),
    "failed-deadline": ("none", "done", "oom", "leaving", "left-for-good"),
    "failing-deadline": ("none", "running", "leaving"),
    "deleted": ("none", "running", "done", "leaving", "no-leader"),
    "two-running": ("none", "pending", "running", "no-leader"),
    "two-first-failed": ("none", "pending", "running", "done"),
    "two-first-complete": ("none", "pending", "running", "done"),
    "two-one-missing": ("none",),
    "two-one-suspended": ("none",),
}
_RECORDS = (  # stop, end, and whether results are fetched. Whoever may write records can make any of them
    ("-", "-", "-"),
    ("-", "succeeded", "-"),
    ("stopped", "-", "-"),
)
_RARE_RECORDS = (  # of runs that have started, and where the other worker is of little account
    ("-", "failed", "-"),
    ("stopped", "stopped", "-"),
    ("-", "succeeded", "fetched"),
    ("stopped", "succeeded", "-"),
    ("stopped-late", "-", "-"),
    ("given-up", "-", "-"),
    ("-", "stopped", "-"),
    ("-", "failed", "fetched"),
    ("-", "-", "fetched"),
    ("stopped", "failed", "-"),
    ("stopped-late", "failed", "-"),
    ("given-up", "failed", "-"),
    ("timed-out", "-", "-"),
)


# The rule: controllers, kubelets and agents tell the truth, each of its own moment, and the Jobs are listed
# before the pods; the record may contain whatever somebody wrote into it. Of what is alike, one is enough.


def _can_be_found(facts: Facts) -> object:
    """Whether Jobs, pods and their logs go together."""
    return (
        facts.leader in _SEEN[facts.jobs]
        and facts.peer in _BESIDE[facts.leader]
        and _peer_goes_with_job(facts)
        and (facts.told == "-" or facts.told in _TELLS.get(facts.leader, ()))
        and _peer_tells(facts)
        and _keeper_tells(facts)
        and decided(facts)
    )


def _goes_with_phase(facts: Facts) -> bool:
    """Whether Jobs and pods are what a run in that phase may have."""
    bare = (facts.leader, facts.peer) == ("none", "none")
    match facts.phase:
        case "recorded":  # it has no plan, so that no Job is its own
            return facts.jobs == "none" and bare
        case "being-made" | "cut-off":
            begun = facts.leader in (*_NOT_BEGUN, "running") and facts.peer in (*_NOT_BEGUN, "running")
            made = ("running", "two-running", "two-one-missing", "two-one-suspended")
            return facts.jobs in made and begun and facts.told in ("-", "goes-on")
        case "waits":
            return facts.jobs in ("suspended", "withdrawn", "none") and bare
        case "admitted":
            known = ("none", "pending", "running", "leaving", "over-succeeded", "over-failed", "over-left")
            jobs = ("running", "suspended", "complete", "failed-policy")
            return facts.jobs in jobs and facts.leader in known and facts.peer in ("none", "running", "done")
        case "on-volume":
            jobs = ("running", "complete", "failed-policy", "failing-policy")
            known = ("running", "replaced", "replacing", "over-succeeded", "over-failed", "oom", "none")
            alone = facts.peers == "-" and facts.peer in ("none", "running", "done", "no-leader")
            return facts.jobs in jobs and facts.leader in known and alone
        case _:
            return facts.jobs not in ("two-one-missing", "two-one-suspended")


def _peer_goes_with_job(facts: Facts) -> bool:
    """Whether the other worker is as its Job says; one that failed by its policy has a pod that shows why."""
    shows = facts.leader in ("none", "over-failed", "over-stopped", "bare-over", "killed-refailed")
    by_policy = facts.jobs in ("failed-policy", "failing-policy")
    return facts.peer in _BY_JOB.get(facts.jobs, PEERS) and (
        not by_policy or shows or facts.peer == "no-leader"
    )


def _peer_tells(facts: Facts) -> bool:
    """Whether the other worker's log may tell that: it has the end only if it holds its results without its
    leader.
    """
    if facts.peers == "-":
        return True
    if facts.peers == "goes-on":
        return facts.peer == "running" and facts.leader in ("none", "replacing", "replaced", "left", "oom")
    gone = ("none", "replacing", "replaced", "left", "oom", "over-left", "over-failed", "killed-after")
    more = ("killed-replacing", "killed-replaced", "cut-off", "cut-off-deleted")
    return facts.peer in ("running", "done", "no-leader") and facts.leader in (*gone, *more)


def _keeper_tells(facts: Facts) -> bool:
    """Whether a keeper knows that: what the leader told it, at its end."""
    if facts.keeper == "-":
        return True
    simple = facts.jobs in ("none", "running", "complete", "failed-policy", "failing-policy")
    works = facts.leader in _WORKS and facts.told == "goes-on" and facts.keeper.startswith("told")
    return simple and not works and facts.peers == "-" and facts.peer in ("none", "running", "done")


def decided(facts: Facts) -> frozenset[str]:
    """How the run was decided, by all who know it and tell the truth: what is not excluded by any. Several
    where nobody knows; none where they contradict each other.
    """
    said = {
        "over-succeeded": "succeeded",
        "bare-0": "succeeded",
        "killed-after": "succeeded",
        "killed-replacing": "succeeded",
        "killed-replaced": "succeeded",
        "over-failed": "failed",
        "over-left": "failed",
        "bare-left": "failed",
        "over-stopped": "stopped",
        "decided": "failed",
        "told-succeeded": "succeeded",
        "told-failed": "failed",
        "told-stopped": "stopped",
        "told-left": "failed",
        "alone-succeeded": "succeeded",
        "alone-failed": "failed",
        "complete": "succeeded",
        "completing": "succeeded",
        "two-first-complete": "succeeded",
        "rank-failed": "failed",
    }
    if facts.leader == "killed-refailed":  # its two pods say different things, and the first was right
        return frozenset({"succeeded"})
    words = (facts.jobs, facts.leader, facts.peer, facts.told, facts.peers, facts.keeper)
    left = {"succeeded", "failed", "stopped"}.intersection(*({said[each]} for each in words if each in said))
    ill = facts.leader == "bare-over" or facts.peer == "no-leader" or facts.jobs.endswith("policy")
    return frozenset(left - {"succeeded"} if ill or facts.jobs == "two-first-failed" else left)


def _keeper_goes_with(facts: Facts) -> bool:
    """Whether a run with that record is looked at with a keeper: few are."""
    usual = (facts.stop, facts.fetched) == ("-", "-") and facts.end in ("-", "succeeded")
    return facts.keeper == "-" or (facts.phase == "started" and usual)


def _is_worth(facts: Facts) -> bool:
    """Whether another case does not show the same."""
    if (facts.stop, facts.end, facts.fetched) in _RECORDS:
        return True
    if facts.phase not in ("recorded", "waits", "started"):
        return False
    plain = facts.jobs in ("none", "running", "suspended", "complete", "failed-policy", "failed-deadline")
    return plain and facts.peers in ("-", "alone-failed") and facts.peer in ("none", "running")


def all_facts() -> Iterator[Facts]:
    """Every combination of facts that there can be."""
    found = [
        Facts(jobs=jobs, leader=leader, peer=peer, told=told, peers=peers, keeper=keeper)
        for jobs in JOBS
        for leader in _SEEN[jobs]
        for peer in _BESIDE[leader]
        for told in ("-", *_TELLS.get(leader, ()))
        for peers in PEERS_TOLD
        for keeper in KEEPERS
    ]
    there = list(filter(_can_be_found, found))
    for phase in PHASES:
        mine = [each for each in (replace(one, phase=phase) for one in there) if _goes_with_phase(each)]
        for (stop, end, fetched), each in itertools.product((*_RECORDS, *_RARE_RECORDS), mine):
            facts = replace(each, stop=stop, end=end, fetched=fetched)
            if _keeper_goes_with(facts) and _is_worth(facts):
                yield facts
