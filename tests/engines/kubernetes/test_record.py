"""That a record is read as it was written, of older versions too, and that nothing odd breaks the reading."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.kubernetes.api_server import merged
from tests.engines.kubernetes.small import RECORD, record_object, stored

from echelon.admission import plan_anywhere
from echelon.engines.kubernetes import names, record
from echelon.engines.kubernetes.record import Claim, Collected, Shipped, Stop
from echelon.errors import StateTrouble
from echelon.model.ends import stopped
from echelon.model.event import LONGEST, Event, RootCause
from echelon.model.program import Parent
from echelon.model.run import SCHEMA, RunRef

REF = RunRef(engine="k8s", name="demo", namespace="ours")
SHIPPED = Shipped(agent=10, code=20, digest="ab", rest="cd")
PLAN = plan_anywhere(replace(RECORD.job, framework="plain"))


def test_the_reasons_for_which_a_run_waits_are_kept() -> None:
    waits = record.with_reason((), "no room", at=2.0)
    assert record.with_reason(waits, "no room", at=6.0) == waits, "the same reason is not written again"
    assert [each.at for each in record.with_reason(waits, "behind a", at=6.0)] == [2.0, 6.0]


def test_what_is_written_is_read() -> None:
    obj = record.new(RECORD, SHIPPED)
    obj["metadata"]["uid"] = "1-2-3"
    found = record.read(obj, REF)
    assert (found.run.job, found.run.ref, found.run.plan) == (RECORD.job, REF, None)
    assert (found.uid, found.shipped, found.dialect) == ("1-2-3", SHIPPED, "job")
    assert not any((found.started, found.queued, found.stop, found.end, found.collected, found.claim))
    assert found.run.results == "", "a path of the submitting machine is nobody else's"


def test_every_change_is_read_back() -> None:
    obj = record.new(RECORD, SHIPPED)
    end, collected = stopped("by ann", at=9.0), Collected(at=8.0, host="here", path="/r")
    stop, claim = Stop(at=3.0, reason="by ann", now=True), Claim(holder="a/1/x", until=7.0)
    for change in (
        record.tasked('{"run": "demo"}'),
        record.tied([{"kind": "Job", "name": "demo", "uid": "j"}]),
        record.stopping(stop),
        record.finished(end, collected, plan=PLAN),
        record.claimed(claim),
    ):
        obj = merged(obj, change)
    found = record.read(obj, REF)
    assert (found.run.plan, found.started, found.owners) == (PLAN, True, frozenset({"j"}))
    assert (found.stop, found.end, found.collected, found.claim) == (stop, end, collected, claim)
    assert record.read(merged(obj, record.claimed(None)), REF).claim is None


def test_the_record_of_a_run_that_takes_the_place_of_a_step_names_no_parent() -> None:
    step = record.new(
        replace(RECORD, job=replace(RECORD.job, parent=Parent(run="t-1", step="load"))), SHIPPED
    )
    assert step["metadata"]["labels"][names.PARENT] == "t-1"
    step["metadata"]["resourceVersion"] = "3"
    made = record.new(RECORD, SHIPPED)
    assert merged(step, record.renewed(step, made))["metadata"]["labels"] == made["metadata"]["labels"]
    assert merged(step, record.renewed(step, step))["metadata"]["labels"] == step["metadata"]["labels"]


def test_a_change_may_depend_on_the_version_it_was_decided_on() -> None:
    change = record.claimed(None, version="17")
    assert change["metadata"]["resourceVersion"] == "17"
    assert "resourceVersion" not in record.stopping(Stop(at=1.0, reason="x"))["metadata"]


@pytest.mark.parametrize("schema", ["0", str(SCHEMA + 1), None, "x"])
def test_a_record_of_another_version_says_so(schema: str | None) -> None:
    with pytest.raises(StateTrouble, match="another version") as caught:
        record.read(record_object(schema=schema), REF)
    assert ("upgrade" in caught.value.hint) == (schema == str(SCHEMA + 1))


def test_a_record_of_schema_1_is_read() -> None:
    """It held the path of the results, and the plan."""
    old = record_object(schema="1", started=False)
    assert not record.read(old, REF).started
    old["data"]["plan.json"] = msgspec.json.encode(PLAN).decode()
    found = record.read(old, REF)
    assert found.started
    assert found.run.results == RECORD.results


@pytest.mark.parametrize("text", ["", "{", "[]", '{"ref": 1}'])
def test_a_broken_record_says_so(text: str) -> None:
    obj = record_object()
    obj["data"]["record.json"] = text
    with pytest.raises(StateTrouble, match="cannot be read") as caught:
        record.read(obj, REF)
    assert "echelon rm demo" in caught.value.hint


ODD: Any = st.text() | st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
).map(json.dumps)


@given(stop=ODD, queued=ODD, admitted=ODD, collected=ODD, tender=ODD)
def test_nothing_odd_breaks_the_reading(**odd: str) -> None:
    found = stored(**odd)
    assert (found.stop is None) == (not odd["stop"])


WAITS = [{"at": 1, "reason": "no room"}]


def test_who_waits_and_is_looked_after() -> None:
    waits = stored(started=False, queued=WAITS)
    assert record.is_queued(waits)
    assert record.is_untended(waits, 1000.0)
    assert not record.is_untended(stored(started=False, queued=WAITS, tried=995), 1000.0)
    assert not record.is_abandoned(waits, 1000.0)
    assert not record.is_queued(stored(started=False, queued=WAITS, stop={"at": 1}))
    assert not record.is_queued(replace(waits, run=replace(waits.run, plan=PLAN)))
    assert not record.is_queued(stored(started=False))


def test_a_submission_that_was_cut_off_is_abandoned_after_a_while() -> None:
    cut_off = stored(started=False)
    assert not record.is_abandoned(cut_off, 105.0)
    assert record.is_abandoned(cut_off, 1000.0)
    assert not record.is_abandoned(replace(cut_off, run=replace(cut_off.run, plan=PLAN)), 1000.0)


def test_texts_that_others_wrote_are_no_longer_than_a_message() -> None:
    long = "x" * 200_000
    waits = [{"at": 1.0, "reason": long}] * 1000
    obj = record_object(
        stop={"at": 1.0, "reason": long},
        collected={"host": long, "path": long, "missing": [long]},
    )
    cause = RootCause(summary=long, tail=(long,) * 1000)
    end = Event(kind="finished", at=1.0, outcome="failed", reason=long, cause=cause, missing=(long,))
    obj["data"] |= record.finished(end)["data"]
    found = record.read(obj, REF)
    texts = [*(each.reason for each in record.read_waits(json.dumps(waits)))]
    assert found.stop is not None
    assert found.collected is not None
    assert found.end is not None
    assert found.end.cause is not None
    texts += [found.stop.reason, found.collected.host, found.collected.path, *found.collected.missing]
    texts += [
        found.end.reason or "",
        found.end.cause.summary,
        *found.end.cause.tail,
        *(found.end.missing or ()),
    ]
    assert max(map(len, texts)) <= LONGEST + len("...")
    assert len(texts) < 300
