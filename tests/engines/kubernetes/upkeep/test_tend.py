"""What each action of upkeep does, and who may be a run's tender."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.small import record_object, view
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.record import Claim, Shipped
from echelon.engines.kubernetes.render.payload import map_names
from echelon.engines.kubernetes.upkeep.actions import (
    Action,
    DropPayload,
    EndJobs,
    FreePod,
    GiveUp,
    KeepEnd,
    TieRecord,
)
from echelon.engines.kubernetes.upkeep.tend import Tender, carry_out, may_take
from echelon.engines.machine import process_name
from echelon.model.ends import succeeded
from echelon.model.run import RunRef

NOW = 1_800_000_000.0
END = succeeded(at=NOW)


@pytest.fixture
def api(access: Access) -> Api:
    return Api(access, "ours", patience=0.1)


def requests(stand_in: StandIn) -> list[tuple[str, str]]:
    return [
        (seen.method, seen.path.partition("?")[0].partition("/namespaces/ours/")[2]) for seen in stand_in.seen
    ]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (TieRecord(), []),
        (FreePod(pod="demo-1"), [("PATCH", "pods/demo-1/status")]),
        (GiveUp(reason="no image"), [("PATCH", "configmaps/demo"), ("PATCH", "jobs/demo")]),
        (EndJobs(), [("PATCH", "jobs/demo")]),
        (KeepEnd(end=END), [("PATCH", "configmaps/demo")]),
        (  # they are looked at, and nothing there belongs to the record
            DropPayload(),
            [
                ("GET", "secrets/demo"),
                ("GET", "services/demo"),
                ("GET", f"configmaps/{map_names('demo', Shipped(agent=10))[0]}"),
            ],
        ),
    ],
)
def test_each_action_changes_what_it_names(
    api: Api, stand_in: StandIn, action: Action, expected: list[tuple[str, str]]
) -> None:
    seen = view()
    seen = replace(seen, stored=replace(seen.stored, shipped=Shipped(agent=10)))
    carry_out(api, seen, action)
    assert requests(stand_in) == expected


@pytest.mark.parametrize(
    "answer",
    [
        refuses(403, "Forbidden", 'User "ann" cannot patch resource "pods/status" in API group ""'),
        refuses(404, "NotFound", "no such pod"),
    ],
)
def test_a_right_that_is_missing_leaves_it_to_others(api: Api, stand_in: StandIn, answer: Any) -> None:
    stand_in.answer_with(answer)
    carry_out(api, view(), FreePod(pod="demo-1"))
    assert len(stand_in.seen) == 1


# The claim


def test_a_claim_is_free_for_others_when_it_is_over_or_its_holder_dead() -> None:
    mine = process_name()
    assert may_take(None, mine, NOW)
    assert may_take(Claim(holder=mine, until=NOW + 60), mine, NOW)
    assert may_take(Claim(holder="laptop/1/a", until=NOW - 1), mine, NOW)
    assert not may_take(Claim(holder="laptop/1/a", until=NOW + 60), mine, NOW)
    host, pid, _ = mine.rsplit("/", 2)
    assert not may_take(Claim(holder=f"{host}/{pid}/other", until=NOW + 60), mine, NOW)
    assert may_take(Claim(holder=f"{host}/999999999/other", until=NOW + 60), mine, NOW)


def labelled(**about: Any) -> Object:
    obj = record_object(**about)
    obj["metadata"] |= {"labels": {"echelon.dev/run": "demo"}, "resourceVersion": "17"}
    return obj


def test_taking_a_claim_never_overwrites_another(api: Api, stand_in: StandIn) -> None:
    tender = Tender(api, RunRef(engine="k8s", name="demo"), "me/1/x")
    stand_in.answer_with(says(200, labelled()), says(200, labelled()))
    assert tender.take()
    change = json.loads(stand_in.seen[-1].body)["metadata"]
    assert change["resourceVersion"] == "17"
    assert json.loads(change["annotations"]["echelon.dev/tender"])["holder"] == "me/1/x"
    stand_in.answer_with(says(200, labelled()), refuses(409, "Conflict", "the object has been modified"))
    assert not tender.take(), "another process was faster"


def test_a_claim_that_another_process_holds_is_not_even_tried(api: Api, stand_in: StandIn) -> None:
    held = labelled(tender={"holder": "laptop/1/a", "until": 4_000_000_000})
    stand_in.answer_with(says(200, held))
    assert not Tender(api, RunRef(engine="k8s", name="demo"), "me/1/x").take()
    assert [seen.method for seen in stand_in.seen] == ["GET"]


def test_a_tender_whose_claim_was_taken_over_does_nothing_more(api: Api, stand_in: StandIn) -> None:
    tender = Tender(api, RunRef(engine="k8s", name="demo"), "me/1/x")
    theirs = labelled(tender={"holder": "laptop/1/a", "until": 4_000_000_000})
    stand_in.answer_with(says(200, theirs))
    tender.tend()
    assert not tender.held
    assert [seen.method for seen in stand_in.seen] == ["GET"]


def test_a_tender_leaves_a_run_alone_that_was_made_anew(api: Api, stand_in: StandIn) -> None:
    tender = Tender(api, RunRef(engine="k8s", name="demo"), "me/1/x")
    stand_in.answer_with(says(200, labelled()), says(200, labelled()))
    assert tender.take()
    anew = labelled()
    anew["metadata"]["uid"] = "another-record"
    stand_in.answer_with(says(200, anew))
    stand_in.seen.clear()
    tender.keep(END)
    assert not tender.take()
    assert {seen.method for seen in stand_in.seen} == {"GET"}


@pytest.mark.parametrize(("holder", "methods"), [("me/1/x", ["GET", "PATCH"]), ("laptop/1/a", ["GET"])])
def test_only_ones_own_claim_is_released(
    api: Api, stand_in: StandIn, holder: str, methods: list[str]
) -> None:
    held = labelled(tender={"holder": holder, "until": 4_000_000_000})
    stand_in.answer_with(says(200, held), says(200, held))
    Tender(api, RunRef(engine="k8s", name="demo"), "me/1/x").release()
    assert [seen.method for seen in stand_in.seen] == methods
