"""Leases: who may take one, and what is done without the right to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.engines.kubernetes.stand_in import StandIn, refuses, says
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.queue import leases
from echelon.engines.machine import process_name

NOW = 1_800_000_000.0


def written(holder: str = "other/1/x", ago: float = 1.0, **spec: Any) -> dict[str, Any]:
    made = leases.taken("a", holder, 15.0, NOW - ago)
    return {**made, "spec": {**made["spec"], **spec}}


def lease(holder: str = "other/1/x", ago: float = 1.0, **spec: Any) -> shapes.Lease:
    (found,) = typed(shapes.Lease, [written(holder, ago, **spec)])
    return found


def test_a_lease_is_free_when_its_holder_gave_it_up_or_did_not_renew_it() -> None:
    assert not leases.is_free(lease(), "me", NOW)
    assert leases.is_free(lease(ago=20.0), "me", NOW)
    assert leases.is_free(lease(holder=""), "me", NOW)
    assert leases.is_free(lease(holder="me"), "me", NOW)
    (bare,) = typed(shapes.Lease, [{"metadata": {"name": "a"}}])
    assert leases.is_free(bare, "me", NOW)


@pytest.mark.parametrize(
    "spec", [{"renewTime": "yesterday"}, {"leaseDurationSeconds": None}, {"renewTime": None}]
)
def test_a_lease_that_makes_no_sense_holds_nobody(spec: dict[str, Any]) -> None:
    assert not leases.is_fresh(lease(**spec), NOW)


@pytest.mark.parametrize("lasts", ["many", 10**30])
def test_a_lease_that_is_none_keeps_nobody_from_admitting(api: Api, stand_in: StandIn, lasts: object) -> None:
    stand_in.answer_with(says(200, json.dumps(written(leaseDurationSeconds=lasts)).encode()))
    with leases.admission(api) as held:
        assert not held
    assert {seen.method for seen in stand_in.seen} == {"GET"}


def test_without_the_right_to_leases_a_run_is_admitted_all_the_same(api: Api, stand_in: StandIn) -> None:
    message = 'leases.coordination.k8s.io is forbidden: User "ann" cannot get resource "leases" in API group'
    stand_in.answer_with(refuses(403, "Forbidden", message))
    with leases.admission(api) as held:
        assert not held


def test_a_lease_that_is_free_is_taken_and_given_back(api: Api, stand_in: StandIn) -> None:
    there = {**written(holder=""), "metadata": {"name": "a", "resourceVersion": "5", "uid": "u"}}
    mine = {**there, "spec": {"holderIdentity": process_name()}}
    stand_in.answer_with(*(says(200, json.dumps(each).encode()) for each in (there, mine, mine, there)))
    with leases.admission(api) as held:
        assert held
    changes = [json.loads(seen.body) for seen in stand_in.seen if seen.method == "PATCH"]
    assert [each["spec"]["holderIdentity"] for each in changes] == [process_name(), ""]
    assert {each["metadata"]["resourceVersion"] for each in changes} == {"5"}
