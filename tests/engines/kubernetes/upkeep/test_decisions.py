"""What upkeep a run is given, decided on values alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.small import RUNNING, ended, job, own_job, pod, stored, view

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.diagnose import Trouble
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.upkeep.actions import (
    Action,
    DropPayload,
    EndJobs,
    FreePod,
    GiveUp,
    KeepEnd,
    LookAfter,
    RollBack,
    SeeWhole,
    TieRecord,
    Withdraw,
)
from echelon.engines.kubernetes.upkeep.decisions import RunView, decide, late_runs
from echelon.model.ends import succeeded
from echelon.model.plan import Launch, Placement, Plan, Seat
from echelon.model.pods.pod import Keeper
from echelon.model.resources import Resources
from echelon.model.world import Group, World

NOW = 1_800_000_000.0
END = succeeded(at=NOW)
LEAVES = "2026-01-01T00:05:00Z"


def due(seen: View, **more: Any) -> list[Action]:
    return decide(RunView(objects=seen, **more), NOW)


def cut_off(*, leaves: bool) -> Pod:
    """A pod on a node that does not respond, deleted or not."""
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    more: dict[str, Any] = {"deletionTimestamp": LEAVES} if leaves else {}
    return pod(1, state=RUNNING, status={"conditions": conditions}, **more)


def hopeless(**more: Any) -> Trouble:
    given = {"kind": "image", "healable": False, "since": NOW - 600, **more}
    return Trouble(worker=0, sentence="image a/b:1 does not exist", **given)


def test_a_run_that_is_well_needs_nothing() -> None:
    assert due(view(pods=[pod(0, state=RUNNING), pod(1, state=RUNNING)])) == []


def test_a_record_whose_submission_was_cut_off_is_tied_to_its_jobs() -> None:
    assert due(view(started=False)) == [TieRecord()]
    assert due(view(started=False, jobs=[])) == []


def test_a_dead_nodes_pod_is_freed_once_its_time_is_over() -> None:
    assert due(view(pods=[cut_off(leaves=True)])) == [FreePod(pod="demo-1-abcde", uid="demo-1-abcde")]
    assert due(view(pods=[cut_off(leaves=False)])) == []
    assert due(view(pods=[pod(1, state=RUNNING, deletionTimestamp=LEAVES)])) == []
    seen = RunView(objects=view(pods=[cut_off(leaves=True)]))
    assert decide(seen, 0.0) == [], "its node still has time to answer"


def test_what_cannot_heal_is_given_up_once() -> None:
    assert due(view(), troubles=[hopeless()]) == [GiveUp(reason="image a/b:1 does not exist")]
    assert due(view(), troubles=[hopeless(healable=True)]) == []
    assert due(view(), troubles=[hopeless(since=NOW - 1)]) == []
    said = view(stop={"at": NOW - 1, "reason": "stopped by ann"})
    assert due(said, troubles=[hopeless()]) == [], "the run is being stopped"


def test_a_stop_that_was_left_in_the_record_is_carried_out() -> None:
    stop = {"at": NOW - 20, "reason": "stopped by ann"}
    leads = [pod(0, state=RUNNING)]
    assert due(view(stop=stop)) == [EndJobs()]
    assert due(view(stop=stop, pods=leads)) == [], "its leader is at it"
    assert due(view(stop={**stop, "at": NOW - 120}, pods=leads)) == [EndJobs()]
    longer = {**stop, "at": NOW - 120, "grace": 300.0}
    assert due(view(stop=longer, pods=leads)) == [], "its ranks were given more time"
    saves = view(stop={**stop, "at": NOW - 120}, pods=leads)
    pods = replace(saves.stored.run.job.pod, checkpoints="ckpt", keeper=Keeper())
    run = replace(saves.stored.run, job=replace(saves.stored.run.job, pod=pods))
    saves = replace(saves, stored=replace(saves.stored, run=run))
    assert due(saves) == [], "its last checkpoints are given"
    assert decide(RunView(objects=saves), NOW + 1000) == [EndJobs()]
    assert due(view(stop={**stop, "at": NOW - 1})) == []
    given_up = {"at": NOW - 1, "reason": "no image", "outcome": "failed"}
    assert due(view(stop=given_up)) == [EndJobs()], "the tender that gave up was killed before it ended them"


def admitted(*pods: Pod, ago: float = 100.0, **more: Any) -> View:
    """A gang of two that was admitted, as far as its pods are there."""
    seen = view(pods=list(pods), started=True)
    nodes = more.pop("nodes", ("node-a", "node-b"))
    plan = Plan(
        world=World(groups=(Group(workers=2, procs=1, resources=Resources()),)),
        launches=(Launch(argv=("true",)),),
        placement=Placement(seats=tuple(Seat(worker=at, node=node) for at, node in enumerate(nodes))),
    )
    run = replace(seen.stored.run, plan=plan)
    about = {"admitted": NOW - ago, "run": run, "shape": plan, **more}
    return replace(seen, stored=replace(seen.stored, **about))


def pending(worker: int, **about: Any) -> Pod:
    return pod(worker, status={"phase": "Pending"}, spec={"nodeName": None}, **about)


def test_a_gang_that_is_not_whole_in_time_is_rolled_back() -> None:
    (found,) = due(admitted(pod(0), pending(1)))
    assert isinstance(found, RollBack)
    assert found.reason.startswith("1 of 2 workers found a node in 30 s, so all of them wait again")
    (none,) = due(admitted())
    assert isinstance(none, RollBack), "no pod at all was made"
    assert due(admitted(pod(0), pending(1), ago=5.0)) == [], "the scheduler is at it"
    second = own_job(workers=1, suspend=True)
    second["metadata"] |= {"name": "demo-2", "uid": "2"}
    (cut,) = due(replace(admitted(pod(0)), jobs=[own_job(workers=1), second]))
    assert isinstance(cut, RollBack), "the client was killed between two patches"
    assert due(replace(admitted(), jobs=[own_job(suspend=True)])) == [], "somebody else has suspended it"
    assert due(admitted(pod(0), pending(1), whole=True)) == [], "it was left to the scheduler"
    assert due(admitted(pod(0), pending(1), nodes=("", ""))) == [], "nodes are added for its pods"


def test_a_gang_that_was_whole_once_is_never_rolled_back() -> None:
    assert due(admitted(pod(0), pod(1), ago=1.0)) == [SeeWhole()]
    assert due(admitted(pod(0), pending(1), whole=True)) == []
    index = {names.COMPLETION_INDEX: "1"}
    replaced = pending(1, annotations={**index, names.FAILURE_COUNT: "1"})
    assert due(admitted(pod(0), replaced)) == [SeeWhole()], "its tender was away when it was whole"
    evicted = pending(1, annotations={**index, names.EVICTION_COUNT: "2"})
    assert due(admitted(pod(0), evicted)) == [SeeWhole()]
    done = own_job()
    done["status"]["succeeded"] = 1
    assert due(replace(admitted(pod(0)), jobs=[done])) == [SeeWhole()]


def test_what_is_hopeless_is_given_up_and_not_tried_again() -> None:
    assert due(admitted(pod(0), pending(1)), troubles=[hopeless()]) == [
        GiveUp(reason="image a/b:1 does not exist")
    ]


def test_a_run_that_waits_too_long_leaves_the_queue() -> None:
    waits = view(jobs=[], started=False, queued=[{"at": 101.0, "reason": "no room"}])
    created = waits.stored.run.created
    assert decide(RunView(objects=waits), created + 6.9 * 86400) == []
    (found,) = decide(RunView(objects=waits), created + 7.1 * 86400)
    assert isinstance(found, Withdraw)
    assert (found.stop.outcome, found.stop.reason) == (
        "timed-out",
        "it was queued for 7 d 0 h, and not admitted (--queue-timeout)",
    )


def test_a_run_that_may_not_wait_does_not_wait_after_a_roll_back_either() -> None:
    waits = view(jobs=[], started=False, queued=[{"at": 101.0, "reason": "1 of 2 workers found a node"}])
    run = waits.stored.run
    hasty = replace(waits.stored, run=replace(run, job=replace(run.job, no_wait=True)))
    assert decide(RunView(objects=replace(waits, stored=hasty)), run.created + 1) == [], "it was not admitted"
    back = replace(hasty, queued=tuple(replace(each, admitted=100.0) for each in hasty.queued))
    (found,) = decide(RunView(objects=replace(waits, stored=back)), run.created + 1)
    assert isinstance(found, Withdraw)
    assert (found.stop.outcome, found.stop.reason) == (
        "timed-out",
        "it did not start, and may not wait (--no-wait): 1 of 2 workers found a node",
    )
    patient = replace(back, run=run)
    assert decide(RunView(objects=replace(waits, stored=patient)), run.created + 1) == []


def test_a_queued_run_that_was_stopped_is_withdrawn() -> None:
    """Its user's command was killed after it wrote the stop, and before it changed the Job."""
    stop = {"at": NOW - 20, "reason": "stopped by ann"}
    waits = view(jobs=[], stop=stop)
    shape = admitted().stored.shape
    waits = replace(waits, stored=replace(waits.stored, shape=shape), waiting=[own_job(suspend=True)])
    withdrawn, kept = due(waits)
    assert isinstance(withdrawn, Withdraw)
    assert withdrawn.stop.reason == "stopped by ann"
    assert isinstance(kept, KeepEnd)


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_a_run_that_is_taken_back_from_kueue_is_not_tied_to_what_is_deleted(kind: str) -> None:
    """Its record would go with it."""
    waits = own_job() | {"kind": kind, "spec": {"suspend": True, "runPolicy": {"suspend": True}}}
    waits["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    stop = {"at": NOW - 600, "reason": "stopped by ann"}
    assert due(view(jobs=[waits], started=False)) == [TieRecord()]
    assert due(view(jobs=[waits], started=False, stop=stop)) == [EndJobs()], "its client was killed"


def test_other_runs_are_looked_at_only_when_their_own_tender_is_late() -> None:
    def marked(name: str, *, suspend: bool, **notes: float) -> Object:
        made = job(suspend=suspend)
        labels = {"echelon.dev/run": name}
        written = {f"echelon.dev/{key}": str(value) for key, value in notes.items()}
        made["metadata"] |= {
            "name": name,
            "labels": labels,
            "annotations": {"echelon.dev/plan": "x", **written},
        }
        return made

    jobs = [
        marked("new", suspend=False, admitted=NOW - 20),
        marked("late", suspend=False, admitted=NOW - 60),
        marked("whole", suspend=False, admitted=NOW - 60, whole=NOW - 50),
        marked("tried", suspend=True, tended=NOW - 60),
        marked("forsaken", suspend=True, tended=NOW - 7200),
    ]
    assert late_runs(jobs, NOW) == ["late", "forsaken"]
    seen = RunView(objects=view(pods=[pod(0)]), around=[*jobs, marked("demo", suspend=False, admitted=1.0)])
    assert decide(seen, NOW) == [LookAfter(run="late"), LookAfter(run="forsaken")], (
        "whatever its own run does"
    )
    other = marked("late", suspend=False, admitted=NOW - 60)
    other["metadata"]["name"] = "late-2"
    assert late_runs([other, job()], NOW) == [], "only first Jobs tell"


def test_an_end_is_kept_and_then_what_only_pods_need_is_dropped() -> None:
    leader = pod(0, state=ended(0, message=json.dumps({"outcome": "succeeded", "exit_code": 0})))
    (kept,) = due(view(pods=[leader]))
    assert isinstance(kept, KeepEnd)
    over = view()
    ended_run = replace(over, stored=replace(over.stored, end=END))
    assert due(ended_run) == [], "its results were not fetched"
    fetched = replace(over, stored=replace(stored(collected={"at": 1}), end=END))
    assert due(fetched) == [], "anybody may have written that they were"
    targeted, failed = own_job("FailureTarget"), own_job("Failed")
    assert due(replace(ended_run, jobs=[targeted])) == [], "its pods are still being deleted"
    assert due(replace(ended_run, jobs=[failed])) == [DropPayload()], "its results are on a volume, or gone"
    assert due(replace(ended_run, jobs=[failed, over.jobs[0]])) == [], "another of its Jobs goes on"


def test_a_record_that_is_being_deleted_needs_nothing() -> None:
    seen = view(started=False)
    assert due(replace(seen, stored=replace(seen.stored, deleted=NOW))) == []
