"""An end in a record, which anybody may have written, counts as far as the run bears it out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.small import RUNNING, WAITING, ended, job, pod_object, record_object, stored
from tests.engines.kubernetes.stand_in import StandIn, refuses, says
from tests.engines.kubernetes.typed import as_pod

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.follow.evidence import evidence, glance, last_lines
from echelon.engines.kubernetes.follow.follow import read_events
from echelon.engines.kubernetes.follow.listing import list_runs
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.standing import Told
from echelon.engines.kubernetes.upkeep.tend import Tender
from echelon.model.ends import failed
from echelon.model.plan import Launch, Placement, Plan, Seat
from echelon.model.resources import Resources
from echelon.model.run import RunRef, opening_status
from echelon.model.status import RunSummary, Status, fold
from echelon.model.world import Group, World

PLAN = Plan(
    world=World(groups=(Group(workers=2, procs=1, resources=Resources()),)),
    launches=(Launch(argv=("true",)),),
    placement=Placement(seats=tuple(Seat(worker=at, node="") for at in (0, 1))),
)
REF = RunRef(engine="k8s", name="demo")
FORGED = {"kind": "finished", "at": 2e9, "outcome": "succeeded", "exit_code": 0}
AT_WORK = b'7 [event] {"kind": "worker-running", "worker": 0}\n8 [0] epoch 3\n'
OVER = b'9 [event] {"kind": "worker-ended", "worker": 0}\n'
MADE: dict[str, Any] = {"ownerReferences": [{"kind": "Job", "name": "demo", "uid": "1", "controller": True}]}
WORKER = {names.RUN: "demo", names.MANAGED_BY: "echelon", names.COMPONENT: names.WORKER}


def worker_object(number: int, state: Object, *, losses: int = 0) -> Object:
    """A worker's pod, as its Job makes it."""
    notes = {names.COMPLETION_INDEX: str(number), names.FAILURE_COUNT: str(losses)}
    more: dict[str, Any] = {**MADE, "annotations": notes}
    return pod_object(number, state=state, uid=f"pod-{number}", labels=WORKER, **more)


def worker(number: int, state: Object, *, losses: int = 0) -> Pod:
    return as_pod(worker_object(number, state, losses=losses))


def view(*pods: Pod, jobs: list[Object] | None = None) -> View:
    found = stored(end=FORGED)
    made = [job()] if jobs is None else jobs
    for each in made:
        each["metadata"] |= {"uid": "1", "labels": WORKER}
    return View(stored=replace(found, run=replace(found.run, plan=PLAN)), jobs=made, pods=list(pods))


BOTH_OBJECTS = (worker_object(0, RUNNING), worker_object(1, RUNNING))
BOTH = tuple(map(as_pod, BOTH_OBJECTS))


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (AT_WORK, Told(has_lines=True)),
        (AT_WORK + OVER, Told(has_lines=True, over=True)),
        (b"", Told()),
        (b"some words\n", Told(has_lines=True)),
    ],
)
def test_whether_a_leader_says_that_its_run_is_over(
    api: Api, stand_in: StandIn, log: bytes, told: Told
) -> None:
    stand_in.answer_with(says(200, log))
    assert last_lines(api, BOTH[0].metadata.name, names.CONTAINER) == told


@pytest.mark.parametrize(
    ("seen", "log", "state", "lacks"),
    [
        (view(*BOTH), AT_WORK, "running", ()),
        (view(*BOTH), AT_WORK + OVER, "succeeded", ("leader",)),  # its workers stay for their results
        (view(*BOTH), b"", "running", ("leader",)),
        (  # it may not know yet
            view(worker(0, RUNNING, losses=1), worker(1, RUNNING)),
            AT_WORK,
            "running",
            ("leader", "peers"),
        ),
        (view(worker(0, WAITING), worker(1, WAITING)), None, "starting", ()),  # nothing has begun
        (view(jobs=[job(suspend=True)]), None, "queued", ()),
        (view(jobs=[]), None, "succeeded", ()),
        (view(worker(0, ended(0)), worker(1, ended(0)), jobs=[job("Complete")]), None, "succeeded", ()),
        (view(worker(1, RUNNING)), None, "starting", ("peers",)),  # without its leader
    ],
)
def test_an_end_in_the_record_is_refuted_by_a_leader_at_work_and_where_nothing_has_begun(
    api: Api, stand_in: StandIn, seen: View, log: bytes | None, state: str, lacks: tuple[str, ...]
) -> None:
    stand_in.answer_with(says(200, log) if log is not None else refuses(500, "InternalError", "not asked"))
    found = glance(api, evidence(seen))
    assert (found.state, found.lacks) == (state, lacks)
    assert bool(stand_in.seen) is (log is not None)


def cluster(
    stand_in: StandIn,
    log: bytes | None,
    *pods: Object,
    jobs: Sequence[Object] | None = (job(),),
    plan: Plan | None = PLAN,
    **more: Any,
) -> None:
    """A namespace with one run, whose record has an end; without `jobs`, they may not be read."""
    record = record_object(end=FORGED, **more)
    record["metadata"] |= {"labels": {names.RUN: "demo"}, "resourceVersion": "1"}
    if plan is not None:
        record["data"]["plan.json"] = msgspec.json.encode(plan).decode()
    made = None if jobs is None else view(jobs=list(jobs)).jobs
    over = [each for each in pods if each["status"]["phase"] in ("Succeeded", "Failed")]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        what = parts.path.rpartition("/")[2]
        if handler.command == "PATCH":
            says(200, record)(handler)
        elif what == "log":
            (says(200, log) if log is not None else refuses(500, "InternalError", "no kubelet"))(handler)
        elif what == "demo":
            says(200, record)(handler)
        elif what == "jobs" and made is None:
            refuses(403, "Forbidden", 'User "ann" cannot list resource "jobs"')(handler)
        else:
            found: dict[str, list[Object]] = {
                "configmaps": [record],
                "jobs": list(made or ()),
                "pods": list(pods),
            }
            items = found.get(what, [])
            if "status.phase" in parts.query:
                items = [each for each in items if each not in over]
            says(200, json.loads(json.dumps({"metadata": {}, "items": items})))(handler)

    stand_in.answer_with(answer)


def row_of(api: Api, *, known: bool = True, all_of_it: bool = False) -> RunSummary:
    """The run in a list; a closer look tells what its leader says, nothing, or `all_of_it`."""

    def look(ref: RunRef) -> Status:
        end = failed("as its leader says", at=5.0, kind="rank", exit_code=3)
        told = read_events(api, ref) if all_of_it else [end] if known else []
        return fold(opening_status(stored().run), told)

    (row,) = list_runs(api, lambda _name: REF, look)
    return row


@pytest.mark.core
def test_ps_shows_that_a_run_goes_on_whatever_end_its_record_has(api: Api, stand_in: StandIn) -> None:
    cluster(stand_in, AT_WORK, *BOTH_OBJECTS)
    assert row_of(api).state == "running"
    cluster(stand_in, AT_WORK + OVER, *BOTH_OBJECTS)
    assert row_of(api).state == "failed", "it is over: its leader knows best how it ended"
    assert {seen.method for seen in stand_in.seen} == {"GET"}


def test_ps_believes_no_record_while_workers_run_that_cannot_be_asked(api: Api, stand_in: StandIn) -> None:
    cluster(stand_in, None, *BOTH_OBJECTS)
    assert row_of(api, all_of_it=True).state == "running", "the log cannot be read; status says the same"
    stranger = {**BOTH_OBJECTS[0], "metadata": {**BOTH_OBJECTS[0]["metadata"], "ownerReferences": []}}
    cluster(stand_in, None, stranger)
    stand_in.seen.clear()
    row_of(api)
    assert not any("/log" in path for path in stand_in.paths()), "it only carries the labels of a worker"


def test_of_runs_that_are_over_records_jobs_and_live_pods_are_listed(api: Api, stand_in: StandIn) -> None:
    cluster(stand_in, None, jobs=[job("Complete")])
    assert row_of(api).state == "succeeded"
    assert len(stand_in.seen) == 3


def test_ps_believes_a_record_where_jobs_may_not_be_read(api: Api, stand_in: StandIn) -> None:
    cluster(stand_in, None, jobs=None)
    assert row_of(api).state == "succeeded"


@pytest.mark.parametrize(
    ("jobs", "state"),
    [
        ([job()], "starting"),  # its pods are yet to come, or to come again
        ([job(suspend=True)], "queued"),
        ([job("Failed", reason="PodFailurePolicy")], "lost"),  # the code of an agent whose run failed
    ],
)
def test_ps_shows_what_the_job_says_of_a_run_without_a_live_pod(
    api: Api, stand_in: StandIn, jobs: list[Object], state: str
) -> None:
    cluster(stand_in, None, jobs=jobs, admitted="102.0")
    assert row_of(api, all_of_it=True).state == state
    assert {seen.method for seen in stand_in.seen} == {"GET"}


def test_ps_says_that_nothing_but_a_record_tells_an_end(api: Api, stand_in: StandIn) -> None:
    cluster(stand_in, None, jobs=[job("Failed", reason="MaxFailedIndexesExceeded")])
    row = row_of(api, all_of_it=True)
    assert row.state == "succeeded"
    assert "its Job failed (MaxFailedIndexesExceeded)" in (row.reason or "")


def test_ps_does_not_look_at_each_run_whose_jobs_are_deleted(api: Api, stand_in: StandIn) -> None:
    cluster(stand_in, None, jobs=[])
    row = row_of(api, all_of_it=True)
    assert (row.state, row.reason) == ("succeeded", None)
    assert len(stand_in.seen) <= 4, "lists, whatever the number of runs"


def test_a_run_that_never_began_has_not_ended(api: Api, stand_in: StandIn) -> None:
    cluster(stand_in, None, jobs=[], plan=None, started=False)
    assert row_of(api, all_of_it=True).state == "recorded"
    seen = View(stored=stored(end=FORGED, started=False), jobs=[], pods=[])
    assert glance(api, evidence(seen)).state == "recorded", "it is admitted all the same"


def test_what_only_a_record_tells_is_not_written_into_it(api: Api, stand_in: StandIn) -> None:
    """Or the note would be there twice with the next reader."""
    cluster(stand_in, None, jobs=[], tender={"holder": "me", "until": 4e9})
    end = next(event for event in read_events(api, REF) if event.kind == "finished")
    assert "only its record says so" in (end.reason or "")
    tender = Tender(api, REF, "me")
    assert tender.take()
    stand_in.seen.clear()
    tender.keep(end)
    assert not [each for each in stand_in.seen if each.method == "PATCH"]


def test_of_a_leader_that_was_replaced_ps_says_what_a_closer_look_shows(api: Api, stand_in: StandIn) -> None:
    """It may not know yet that the run is over: the others, or the keeper, do."""
    cluster(stand_in, AT_WORK, worker_object(0, RUNNING, losses=1))
    assert row_of(api, known=False).state == "starting"
    assert row_of(api).state == "failed"


def test_upkeep_goes_on_and_the_end_is_written_over(api: Api, stand_in: StandIn) -> None:
    claim = {"holder": "me", "until": 4e9}
    leader = worker_object(0, ended(193, message='{"outcome": "failed", "exit_code": 3, "at": 5}'))
    cluster(stand_in, AT_WORK, leader, worker_object(1, RUNNING), tender=claim)
    tender = Tender(api, REF, "me")
    assert tender.take()
    stand_in.seen.clear()
    tender.tend()
    (written,) = [json.loads(each.body) for each in stand_in.seen if each.method == "PATCH"]
    assert json.loads(written["data"]["finished.json"])["outcome"] == "failed"
