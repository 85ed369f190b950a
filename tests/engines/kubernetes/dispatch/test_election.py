"""One replica at a time holds the Lease, however they are slowed down, killed and started again."""

from __future__ import annotations

import copy
import random
from typing import Any, cast

import pytest
from tests.conftest import wait_until

from echelon.engines.kubernetes.client.api import Api, Conflict, Object
from echelon.engines.kubernetes.dispatch.election import Election, Renewal, read

LASTS = 15.0


class OneLease:
    """The API server as far as one object goes: versions, and a conflict for a change of an old one."""

    def __init__(self) -> None:
        self.obj: Object = {"metadata": {"name": "echelon-manager", "resourceVersion": "1"}}
        self.before_patch: Any = lambda: None

    def get(self, _kind: str, _name: str, **_where: str) -> Object:
        return copy.deepcopy(self.obj)

    def patch(self, _kind: str, _name: str, change: Object, **_where: str) -> Object:
        self.before_patch()
        if change["metadata"]["resourceVersion"] != self.obj["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified")
        self.obj["spec"] = {**self.obj.get("spec", {}), **change["spec"]}
        self.obj["metadata"]["resourceVersion"] = str(int(self.obj["metadata"]["resourceVersion"]) + 1)
        return self.get("", "")


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def replica(lease: OneLease, name: str, clock: Time, *, ahead: float = 0.0) -> Election:
    return Election(cast("Api", lease), name, lasts=LASTS, clock=lambda: clock() + ahead)


def test_the_second_waits_until_the_first_has_not_renewed_for_long_enough() -> None:
    lease, clock = OneLease(), Time()
    one, two = replica(lease, "one", clock), replica(lease, "two", clock, ahead=1e6)
    assert one.renew()
    assert not two.renew()
    clock.now += LASTS - 1
    assert not one.leads, "it has not renewed: it must not decide any more, before the other may"
    assert not two.renew()
    clock.now += 1
    assert two.renew()
    assert not one.renew()
    assert read(lease.obj).holder == "two"


def test_a_lease_that_was_given_up_is_taken_at_once() -> None:
    lease, clock = OneLease(), Time()
    one, two = replica(lease, "one", clock), replica(lease, "two", clock)
    assert one.renew()
    assert not two.renew()
    one.release()
    assert not one.leads
    assert read(lease.obj).holder, "commands take a Lease without a holder for a cluster without a manager"
    assert two.renew()


def test_a_process_that_starts_again_under_its_name_goes_on_at_once() -> None:
    lease, clock = OneLease(), Time()
    assert replica(lease, "pod-a", clock).renew()
    assert replica(lease, "pod-a", clock).renew()


def test_of_two_that_try_at_once_one_leads() -> None:
    lease, clock = OneLease(), Time()
    one, two = replica(lease, "one", clock), replica(lease, "two", clock)

    def be_faster() -> None:
        lease.before_patch = lambda: None
        assert two.renew()

    lease.before_patch = be_faster
    assert not one.renew()
    assert two.leads


@pytest.mark.parametrize("seed", range(30))
def test_never_two_at_a_time(seed: int) -> None:
    chance, lease, clock = random.Random(seed), OneLease(), Time()
    skews = {name: chance.uniform(-1e5, 1e5) for name in "abc"}
    all_ = {name: replica(lease, name, clock, ahead=skews[name]) for name in skews}
    led = set()
    for _ in range(400):
        name = chance.choice("abc")
        match chance.randrange(8):
            case 0:
                all_[name] = replica(lease, name, clock, ahead=skews[name])  # killed, and started again
            case 1:
                all_[name].release()
            case 2:
                clock.now += chance.uniform(0, 2 * LASTS)
            case _:
                all_[name].renew()
        clock.now += chance.uniform(0, 3)
        leading = [each for each in all_ if all_[each].leads]
        assert len(leading) <= 1
        led.update(leading)
    assert len(led) > 1


def test_a_decision_that_takes_longer_than_the_lease_does_not_lose_it() -> None:
    """Nobody asks `renew` of the replica that leads: its thread alone keeps the Lease."""
    lease, clock = OneLease(), Time()
    one, two = replica(lease, "one", clock), replica(lease, "two", clock)
    renewal = Renewal(one, every=0.005)
    assert one.renew()
    renewal.begin()
    try:
        for _ in range(10):
            clock.now += LASTS / 3
            version = read(lease.obj).version
            wait_until(lambda version=version: read(lease.obj).version != version, "the renewal")  # type: ignore[misc]
            assert one.leads
            assert not two.renew()
    finally:
        renewal.end()
    one.release()
    assert two.renew()


def test_the_thread_takes_no_lease_that_it_lost() -> None:
    lease, clock = OneLease(), Time()
    one, two = replica(lease, "one", clock), replica(lease, "two", clock)
    assert one.renew()
    assert not two.renew()
    clock.now += LASTS
    assert two.renew()
    one.keep()
    assert not one.leads
    two.release()
    one.keep()
    assert read(lease.obj).holder == "released"
