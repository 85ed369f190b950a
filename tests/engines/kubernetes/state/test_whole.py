"""Whether a run of several Jobs is whole, and which of its Jobs go on after its end, decided on values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.rendered import CASES, SHIPPED, planned
from tests.engines.kubernetes.small import RUNNING, ended, pod

from echelon.agent.task import INTERRUPTED, RUN_OVER
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import SUBMISSION, Stop, Stored
from echelon.engines.kubernetes.render.dialects import job as dialect
from echelon.engines.kubernetes.state import whole
from echelon.model import ends
from echelon.model.event import Event

NOW = 1_800_000_000.0
RUN, PLAN = planned(CASES["roles"])
NAMES = tuple(names.job_names(RUN.ref.name, PLAN.world))
TIED = frozenset({"job-0"})
STOP = Stop(at=NOW, reason="stopped by ann")
FAILED = ends.failed("rank 1 exited with code 3", at=NOW, kind="rank")


def stored(**more: Any) -> Stored:
    run = replace(RUN, plan=PLAN)
    return Stored(**{"run": run, "uid": "the-record", "admitted": NOW, **more})


def jobs(*conditions: str, suspend: bool = False, reason: str = "") -> list[Object]:
    """All Jobs of the run; the first one with conditions."""
    made = dialect.render(RUN, PLAN, SHIPPED)
    for each in made:
        each["spec"]["suspend"] = suspend
    made[0]["status"] = {
        "conditions": [{"type": name, "status": "True", "reason": reason} for name in conditions]
    }
    return made


def named(found: list[Object]) -> tuple[str, ...]:
    return tuple(each["metadata"]["name"] for each in found)


def test_half_of_it() -> None:
    assert len(NAMES) > 1
    assert not whole.is_half_made(stored(), jobs()), "only the mark is missing"
    assert whole.is_half_made(stored(), jobs()[:1])
    assert whole.is_half_made(stored(), jobs(suspend=True)), "they are there, and nobody has released them"
    assert whole.is_half_made(stored(), [jobs()[0], *jobs(suspend=True)[1:]])
    assert not whole.is_half_made(stored(owners=TIED), jobs()[:1]), "somebody has deleted the other"
    assert not whole.is_half_made(stored(owners=TIED), jobs(suspend=True)), "somebody has suspended them"
    assert not whole.is_half_made(stored(run=RUN), []), "it has no plan yet"
    assert not whole.is_half_made(stored(dialect="tfjob"), jobs()[:1]), "one object is all of it"


def test_who_is_at_it() -> None:
    late = NOW + SUBMISSION + 1
    half = jobs()[:1]
    assert whole.is_being_made(stored(), half, NOW + 1)
    assert not whole.is_cut_off(stored(), half, NOW + 1)
    assert whole.is_cut_off(stored(), half, late)
    assert not whole.is_being_made(stored(), half, late)
    assert whole.is_being_made(stored(), [], NOW + 1)
    assert not whole.is_cut_off(stored(), [], late), "it is taken up by repeating it"
    assert not whole.is_cut_off(stored(stop=STOP), half, late)
    assert not whole.is_cut_off(stored(end=FAILED), half, late)


LEFT = [pod(0, state=ended(RUN_OVER))]


@pytest.mark.parametrize(
    ("end", "about", "there", "pods", "some"),
    [
        (FAILED, {}, jobs("Failed"), LEFT, True),
        (FAILED, {}, jobs("Failed"), [pod(0, state=ended(0))], True),
        (ends.succeeded(at=NOW), {}, jobs("Complete"), LEFT, False),  # all had come, and leave by themselves
        (
            FAILED,
            {},
            jobs(),
            [pod(0, state=RUNNING)],
            False,
        ),  # the leader holds: they are told when they come
        (FAILED, {}, jobs(), [pod(0, state=ended(INTERRUPTED))], False),  # evicted: the others hold theirs
        (FAILED, {}, jobs("Failed", reason="FailedIndexes"), [], False),
        (ends.stopped("by ann", at=NOW), {"stop": STOP}, jobs("Failed", reason="DeadlineExceeded"), [], True),
        (ends.stopped("by ann", at=NOW), {"stop": STOP}, jobs("Failed", reason="FailedIndexes"), [], False),
        (FAILED, {}, jobs("Failed", reason="DeadlineExceeded"), [], False),
    ],
)
def test_what_goes_on_after_the_end(
    end: Event, about: dict[str, Any], there: list[Object], pods: list[Pod], some: bool
) -> None:
    found = whole.left_over(end, stored(owners=TIED, **about), there, pods)
    assert named(found) == (NAMES[1:] if some else ())


def test_jobs_that_have_ended_are_left_alone() -> None:
    there = jobs("Failed")
    there[1]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert named(whole.other_jobs(stored(), there)) == NAMES[2:]


def test_whether_any_rank_ran() -> None:
    started = [Event(kind="worker-started", at=1.0, worker=0), Event(kind="stopping", at=2.0)]
    assert whole.none_ran(started)
    assert not whole.none_ran([*started, Event(kind="worker-running", at=3.0, worker=0)])
