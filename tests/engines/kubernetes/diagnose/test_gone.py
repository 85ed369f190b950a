"""How a pod was lost that nobody can read any more."""

from __future__ import annotations

from typing import Any

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.small import RUNNING, pod
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.diagnose import gone
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.workers import Loss

AT = moment("2026-01-01T00:10:00Z") or 0.0


def loss_of_gone(pods: list[Pod], events: list[Object], until: float) -> Loss | None:
    return gone.loss_of_gone(pods, typed(shapes.Event, events), until)


def event(
    reason: str, of: str = "demo-0-first", uid: str = "first", at: str = "2026-01-01T00:09:00Z"
) -> Object:
    target = {"kind": "Pod", "name": of, "uid": uid}
    return {"involvedObject": target, "reason": reason, "message": "low on memory", "lastTimestamp": at}


def successor(**counts: str) -> Pod:
    notes: dict[str, Any] = {names.COMPLETION_INDEX: "0", **counts}
    return pod(state=RUNNING, name="demo-0-later", generateName="demo-0-", uid="later", annotations=notes)


@pytest.mark.parametrize(
    ("reason", "kind", "how"),
    [
        ("Preempted", "preempted", "it was preempted by a pod of higher priority"),
        ("Evicted", "evicted", "it was evicted from its node: low on memory"),
        ("TaintManagerEviction", "tainted", "it was sent away from its node (a NoExecute taint)"),
    ],
)
def test_what_events_tell_of_it(reason: str, kind: str, how: str) -> None:
    loss = loss_of_gone([successor()], [event("Scheduled"), event(reason), event("Killing")], AT)
    assert loss is not None
    assert (loss.kind, loss.how) == (kind, how)


def test_events_that_are_not_of_it() -> None:
    others = [
        event("Preempted", of="demo-1-first"),
        event("Preempted", of="demo-01-first"),
        event("Preempted", of="demo-0-later", uid="later"),
        event("Preempted", at="2026-01-01T00:11:00Z"),  # a later one
        {"reason": "Preempted"},
    ]
    assert loss_of_gone([successor()], others, AT) is None
    assert loss_of_gone([], [event("Preempted")], AT) is None
    # Some controllers give pods fixed names.
    named = pod(state=RUNNING, name="demo-worker-0", uid="later")
    assert loss_of_gone([named], [event("Preempted", of="demo-worker-1")], AT) is None
    assert loss_of_gone([named], [event("Preempted", of="demo-worker-0")], AT) is not None


def test_the_last_one_counts() -> None:
    evicted = event("Evicted", uid="zeroth", at="2026-01-01T00:01:00Z")
    loss = loss_of_gone([successor()], [event("Preempted"), evicted], AT)
    assert loss is not None
    assert loss.kind == "preempted"


def test_without_events_its_successor_tells_that_the_cluster_took_it_away() -> None:
    loss = loss_of_gone([successor(**{names.FAILURE_COUNT: "0", names.EVICTION_COUNT: "1"})], [], AT)
    assert loss is not None
    assert loss.how == "its pod was taken away, as by a preemption, an eviction or a drain"
    assert loss_of_gone([successor(**{names.FAILURE_COUNT: "1", names.EVICTION_COUNT: "1"})], [], AT) is None
