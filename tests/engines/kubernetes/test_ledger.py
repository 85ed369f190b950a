"""What the Jobs of a run say of its admission, and every change of them."""

from __future__ import annotations

import copy
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.engines.kubernetes.api_server import merged
from tests.engines.kubernetes.rendered import SHIPPED, cluster, record_of
from tests.engines.kubernetes.typed import as_pod, typed

from echelon.engines.base import RunDamaged
from echelon.engines.kubernetes import ledger, names, record
from echelon.engines.kubernetes.diagnose.queueing import find_suspended
from echelon.engines.kubernetes.follow.listing import _row
from echelon.engines.kubernetes.nodes.inventory import queued_runs
from echelon.engines.kubernetes.record import Stop, Stored, Waiting, is_abandoned
from echelon.engines.kubernetes.render.dialects import InQueue
from echelon.engines.kubernetes.render.dialects import job as dialect
from echelon.engines.kubernetes.render.keeper import keeper_object
from echelon.engines.kubernetes.render.manifests import started_objects
from echelon.engines.kubernetes.render.task import read_plan, write_plan
from echelon.engines.kubernetes.state.history import opening_events
from echelon.engines.kubernetes.state.outcome import finished_event
from echelon.engines.kubernetes.state.standing import Evidence, standing
from echelon.engines.kubernetes.state.workers import worker_of
from echelon.model.engine.cluster import Cluster, Node
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.plan import Placement, Plan, Seat
from echelon.model.run import Record
from echelon.model.settings import Settings
from echelon.placement import place
from echelon.planning import candidates, make_plan

Object = dict[str, Any]
NOW = 1_800_000_000.0


def job(**said: Any) -> Job:
    given = {
        "script": "train.py",
        "framework": "torch",
        "total_gpus": "6",
        "memory": "8Gi:16Gi/gpu",
        **said,
    }
    return replace(to_job(Settings(name="demo", **given), name="x"), cwd="{code}")


def on(wanted: Job, **free: int) -> Plan:
    """The plan of a job on nodes with so many free GPUs."""
    nodes = []
    for node, (name, count) in zip((*cluster().nodes, cluster().nodes[0]), free.items(), strict=False):
        nodes.append(Node(**{**_fields(node), "name": name, "gpus": node.gpus[:count]}))
    there = Cluster(nodes=tuple(nodes))
    (candidate,) = candidates(wanted, there)
    found = place(candidate.world, there, candidate.nodes)
    assert isinstance(found, Placement)
    return make_plan(wanted, candidate.world, found, there)


def _fields(node: Node) -> dict[str, Any]:
    return {each.name: getattr(node, each.name) for each in fields(node)}


def jobs_of(run: Record, plan: Plan) -> list[Object]:
    made = copy.deepcopy(started_objects(run, plan, SHIPPED, dialect).jobs)
    for number, each in enumerate(made):
        each["metadata"] |= {"uid": f"job-{number}", "resourceVersion": "7", "namespace": "team"}
        if number:
            each["metadata"]["ownerReferences"] = [{"uid": "the-record"}]
    return made


def stored_of(run: Record, **more: Any) -> Stored:
    obj = record.new(run, SHIPPED)
    obj["metadata"] |= {"uid": "the-record", "ownerReferences": [{"kind": "Job", "uid": "job-0"}], **more}
    return record.read(obj, run.ref)


def started(jobs: list[Object], run: Record, plan: Plan, at: float = NOW) -> list[Object]:
    wanted = started_objects(run, plan, SHIPPED, dialect).jobs
    return [merged(old, ledger.started(old, new, at=at)) for old, new in zip(jobs, wanted, strict=True)]


SIDECAR = {"spec": {"containers": [{"name": "side", "image": "x"}]}}
CHANGES: list[tuple[dict[str, Any], dict[str, int], dict[str, int]]] = [
    ({}, {"a": 3, "b": 3}, {"c": 6}),
    ({"shares": "any"}, {"a": 5, "b": 1}, {"a": 4, "b": 2}),
    ({"gpu_type": "a100"}, {"a": 3, "b": 3}, {"a": 6}),
    ({"toleration": ("spot",), "template": SIDECAR}, {"a": 3, "b": 3}, {"b": 6}),
]


@pytest.mark.parametrize(("said", "before", "after"), CHANGES)
def test_one_patch_of_a_job_makes_it_what_it_would_be_if_it_were_rendered_for_the_new_plan(
    said: dict[str, Any], before: dict[str, int], after: dict[str, int]
) -> None:
    wanted = job(**said)
    run, old, new = record_of(wanted), on(wanted, **before), on(wanted, **after)
    found = started(jobs_of(run, old), run, new)
    for got, rendered in zip(found, jobs_of(run, new), strict=True):
        assert got["spec"] == {**rendered["spec"], "suspend": False}, "nothing else of it may differ"
        notes = got["metadata"]["annotations"]
        assert notes.pop(names.ADMITTED) == str(NOW)
        assert notes == rendered["metadata"]["annotations"]


def test_a_patch_carries_the_version_that_it_was_decided_on() -> None:
    wanted = job()
    run, plan = record_of(wanted), on(wanted, a=3, b=3)
    (first,) = jobs_of(run, plan)
    changes = [
        ledger.started(first, first, at=NOW),
        ledger.rolled_back(first, (), at=NOW),
        ledger.queued(first, (), at=NOW),
        ledger.withdrawn(first, Stop(at=NOW, reason="stopped by ann")),
        ledger.seen_whole(first, at=NOW),
    ]
    assert {each["metadata"]["resourceVersion"] for each in changes} == {"7"}
    assert "template" not in changes[0]["spec"], "nothing of the pods differs"
    assert "template" not in ledger.started(first, first, at=NOW, template=False)["spec"]


def test_the_task_and_the_number_of_the_first_worker_travel_with_the_pods() -> None:
    wanted = job(shares="any")
    run, plan = record_of(wanted), on(wanted, a=5, b=1)
    first, second = jobs_of(run, plan)
    for each, number in ((first, 0), (second, 1)):
        template = each["spec"]["template"]
        env = {each["name"]: each for each in template["spec"]["containers"][0]["env"]}
        assert "value" not in env[names.ENV_FIRST_WORKER]
        made = {**template, "metadata": {**template["metadata"], "name": "p"}}
        assert worker_of(as_pod(made)) == number
        (bundle,) = [each for each in template["spec"]["volumes"] if each["name"] == "bundle"]
        assert bundle["projected"]["sources"][0]["downwardAPI"]["items"][0]["path"] == names.TASK_KEY
    assert names.PLAN in first["metadata"]["annotations"]
    assert names.PLAN not in second["metadata"]["annotations"]


def test_a_run_is_queued_while_its_first_job_is_suspended_and_then_has_its_plan() -> None:
    wanted = job(shares="any")
    run, plan = record_of(wanted), on(wanted, a=5, b=1)
    jobs = jobs_of(run, plan)
    waits = ledger.with_jobs(stored_of(run), jobs)
    assert (waits.run.plan, waits.shape, waits.started, waits.admitted) == (None, plan, False, None)
    assert [each["metadata"]["name"] for each in ledger.waiting_jobs(waits, reversed(jobs))] == [
        "demo",
        "demo-2",
    ]
    runs = ledger.with_jobs(stored_of(run), started(jobs, run, plan))
    assert (runs.run.plan, runs.started, runs.admitted) == (plan, True, NOW)
    assert ledger.waiting_jobs(runs, jobs) == []
    assert [each.kind for each in opening_events(runs)] == ["recorded", "admitted"]


def test_a_run_that_somebody_else_suspends_is_started_and_waits_for_them() -> None:
    """It was admitted, and no roll-back is written down: it is not admitted again, nor given up."""
    wanted = job()
    run, plan = record_of(wanted), on(wanted, a=3, b=3)
    jobs: list[Any] = []
    for before in ({}, {names.TRIED: str(NOW - 5)}):
        jobs = started(jobs_of(run, plan), run, plan)
        for each in jobs:
            each["spec"]["suspend"] = True
            each["metadata"]["annotations"] |= before
        runs = ledger.with_jobs(stored_of(run), jobs)
        assert (runs.run.plan, runs.started, runs.admitted) == (plan, True, NOW)
        assert ledger.waiting_jobs(runs, jobs) == []
        assert not is_abandoned(runs, NOW + 1000)
        trouble = find_suspended(runs, jobs)
        assert trouble is not None
        assert (trouble.kind, "its Job is suspended" in trouble.sentence) == ("suspended", True)
        assert f'patch job {run.ref.name} --type=merge -p \'{{"spec":{{"suspend":false}}}}\'' in trouble.hint
    jobs[0]["metadata"]["annotations"][names.TRIED] = str(NOW + 1)  # it was rolled back
    assert ledger.with_jobs(stored_of(run), jobs).run.plan is None
    assert find_suspended(stored_of(run), []) is None


def test_jobs_of_others_that_carry_its_labels_are_not_its_own() -> None:
    wanted = job(shares="any")
    run, plan = record_of(wanted), on(wanted, a=5, b=1)
    first, second = jobs_of(run, plan)
    first["metadata"]["uid"], second["metadata"]["ownerReferences"] = "another", []
    waits = ledger.with_jobs(stored_of(run), [first, second])
    assert waits.shape is None
    assert ledger.waiting_jobs(waits, [first, second]) == []


def test_a_roll_back_keeps_what_happened() -> None:
    wanted = job()
    run, plan = record_of(wanted), on(wanted, a=3, b=3)
    (first,) = started(jobs_of(run, plan), run, plan)
    reasons = (Waiting(at=NOW + 30, reason="1 of 2 workers found a node", admitted=NOW),)
    back = merged(first, ledger.rolled_back(first, reasons, at=NOW + 30))
    waits = ledger.with_jobs(stored_of(run), [back])
    assert (waits.run.plan, waits.started, waits.queued) == (None, False, reasons)
    events = opening_events(waits)
    assert [(each.kind, each.at) for each in events[1:]] == [("admitted", NOW), ("queued", NOW + 30)]


def test_a_run_that_was_withdrawn_has_ended_and_never_starts() -> None:
    wanted = job()
    run, plan = record_of(wanted), on(wanted, a=3, b=3)
    (first,) = jobs_of(run, plan)
    for outcome, state in (("stopped", "stopped"), ("timed-out", "timed-out")):
        stop = Stop(at=NOW, reason="because", outcome=outcome)  # type: ignore[arg-type]
        gone = merged(first, ledger.withdrawn(first, stop))
        assert dialect.is_withdrawn(gone)
        assert dialect.wanted(gone) == 1, "a Job of no workers is asked for none"
        over = ledger.with_jobs(stored_of(run), [gone])
        assert (over.stop, over.run.plan, ledger.waiting_jobs(over, [gone])) == (stop, None, [])
        end = finished_event(over, [], [])
        assert end is not None
        assert (end.outcome, end.reason) == (state, "because")


@pytest.mark.parametrize("text", ["", "{}", "not base64", '{"run": "another"}'])
def test_a_plan_that_cannot_be_read_is_told(text: str) -> None:
    wanted = job()
    run, plan = record_of(wanted), on(wanted, a=3, b=3)
    (first,) = jobs_of(run, plan)
    first["metadata"]["annotations"][names.PLAN] = text
    with pytest.raises(RunDamaged):
        ledger.with_jobs(stored_of(run), [first])


def test_a_long_plan_is_compressed() -> None:
    plan = on(job(), a=3, b=3)
    assert read_plan(write_plan(plan)) == plan
    many = replace(plan, placement=Placement(seats=(Seat(worker=0, node="node-a"),) * 10_000))
    assert len(write_plan(many)) < 60_000
    assert read_plan(write_plan(many)) == many


def test_a_plan_of_an_earlier_version_is_read() -> None:
    plan = on(job(), a=3, b=3)
    copies = {"run": "the-run", "framework": "torch", "env": {"A": "b"}, "secrets": [], "restarts": 1}
    written = json.dumps({**json.loads(write_plan(plan)), **copies, "timeout": 60.0, "stall": None})
    assert read_plan(written) == plan


def test_the_keeper_waits_too() -> None:
    wanted = job()
    run, plan = record_of(wanted), on(wanted, a=3, b=3)
    keeper = keeper_object(run, plan, SHIPPED, waits=True)
    assert keeper is not None
    assert keeper["spec"]["suspend"] is True
    assert names.AGENTS_TASK in keeper["spec"]["template"]["metadata"]["annotations"]


def test_the_keeper_had_better_be_elsewhere_and_keeps_no_worker_from_the_plan() -> None:
    wanted = job()
    run, plan = record_of(wanted), on(wanted, a=3, b=3)

    def affinity(of: Plan) -> Any:
        keeper = keeper_object(run, of, SHIPPED)
        assert keeper is not None
        return keeper["spec"]["template"]["spec"]["affinity"]

    (preferred,) = affinity(plan)["nodeAffinity"].pop("preferredDuringSchedulingIgnoredDuringExecution")
    assert [(each["operator"], each["values"]) for each in preferred["preference"]["matchFields"]] == [
        ("NotIn", ["a"]),
        ("NotIn", ["b"]),
    ]
    seats = tuple(replace(seat, node="") for seat in plan.placement.seats)
    unplaced = affinity(replace(plan, placement=replace(plan.placement, seats=seats)))
    (preferred,) = unplaced["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    chosen = preferred["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert chosen == {names.RUN: run.job.name, names.COMPONENT: names.WORKER}


@pytest.mark.parametrize(
    "note",
    [
        names.WAITS,
        names.TRIED,
        names.ADMITTED,
        names.WITHDRAWN,
        names.CREATED,
        names.PRIORITY,
        names.TIMEOUT,
    ],
)
@pytest.mark.parametrize(
    "text", ["", "abc", "nan", "1e999", "[[]]", "{", '[{"at": "x"}]', "\x1b[31m", "-1e300"]
)
def test_whatever_is_in_an_annotation_is_read(note: str, text: str) -> None:
    """Any user of the namespace may write it."""
    wanted = job()
    run, plan = record_of(wanted), on(wanted, a=3, b=3)
    for suspended in (True, False):
        (first,) = jobs_of(run, plan)
        first["spec"]["suspend"] = suspended
        first["metadata"]["annotations"] |= {names.WAITS: '[{"at": 1.0, "reason": "no room"}]', note: text}
        stored = ledger.with_jobs(stored_of(run), [first])
        opening_events(stored)
        (shape,) = typed(dialect.Shape, [first])
        waits = dialect.in_queue(shape)
        assert (waits is None) == (not suspended or (note == names.WAITS and not text))
        queued_runs([waits] if waits else [], "team", NOW)


def test_the_queue_is_by_priority_then_by_age_and_has_only_runs_that_are_tended() -> None:
    def waits(run: str, **more: Any) -> InQueue:
        return InQueue(**{"namespace": "team", "run": run, "created": 1.0, "tried": NOW - 1, **more})

    there = [
        waits("young", created=3.0),
        waits("old", created=2.0),
        waits("urgent", created=4.0, priority=5),
        waits("alone", tried=NOW - 3600),
        waits("elsewhere", namespace="other"),
    ]
    assert queued_runs(there, "team", NOW) == ("urgent", "old", "young")


def test_the_row_of_a_run_that_waits_has_the_workers_of_its_jobs() -> None:
    """How many share its GPUs is decided when it starts: until then, as its Jobs were made."""
    wanted = job(shares="any")
    run, plan = record_of(wanted), on(wanted, a=5, b=1)
    waits = ledger.with_jobs(stored_of(run), jobs_of(run, plan))
    known = Evidence(stored=waits)
    row = _row(known, standing(known, NOW))
    assert (row.workers, row.gpus) == (2, 6)
