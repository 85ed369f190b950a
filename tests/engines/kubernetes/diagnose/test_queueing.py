"""A queued run that no process looks after says so, and what to do."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any

import pytest
from tests.engines.kubernetes.api_server import ApiServer
from tests.engines.kubernetes.files.results.test_shards import PLAN
from tests.engines.kubernetes.small import job, stored
from tests.engines.kubernetes.state.evidence import REF, case_of
from tests.engines.kubernetes.state.facts import Facts

from echelon.engines.kubernetes.diagnose.queueing import find_untended
from echelon.engines.kubernetes.follow.follow import read_events
from echelon.engines.kubernetes.follow.listing import list_runs
from echelon.engines.machine import process_name
from echelon.model.event import Event
from echelon.model.run import opening_status
from echelon.model.status import fold

NOW = 1000.0
QUEUED: dict[str, Any] = {"started": False, "queued": [{"at": 100, "reason": "waiting for 1 GPU"}]}


def claim(until: float, holder: str = "elsewhere/1/a") -> dict[str, Any]:
    return {"holder": holder, "until": until}


def dead_process() -> str:
    ended = subprocess.Popen(["true"])
    ended.wait()
    where, _pid, number = process_name().rsplit("/", 2)
    return f"{where}/{ended.pid}/{number}"


@pytest.mark.parametrize(
    ("about", "untended"),
    [
        ({}, True),  # its tender gave the claim up
        ({"tender": claim(NOW + 60)}, False),
        ({"tender": claim(NOW - 1)}, True),  # its tender was killed, on whatever machine
        ({"tender": claim(NOW + 60, dead_process())}, True),
        ({"tried": NOW - 5}, False),  # queued a moment ago: the claim is about to be taken
        ({"tried": NOW - 30}, True),
        ({"stop": {"at": 1}}, False),
    ],
)
def test_who_looks_after_a_queued_run(about: dict[str, Any], untended: bool) -> None:
    found = find_untended(stored(**QUEUED, **about), [], now=NOW)
    assert (found is not None) is untended
    if found is not None:
        assert (found.kind, found.worker) == ("untended", None)
        assert found.sentence.startswith("waiting for 1 GPU; ")
        assert "`echelon wait demo`" in found.hint


def test_a_run_that_has_started_or_was_never_queued_is_not_untended() -> None:
    waits = stored(**QUEUED)
    admitted = replace(waits, run=replace(waits.run, plan=PLAN))
    assert find_untended(admitted, [job()], now=NOW) is None
    assert find_untended(stored(started=False), [], now=NOW) is None


def test_ps_and_status_say_so() -> None:
    case = case_of(Facts(phase="waits", jobs="suspended", leader="none", peer="none"))
    server = ApiServer(case.record, *case.listed)
    (row,) = list_runs(server.api, lambda _name: REF, lambda _ref: pytest.fail("no log is read"))
    status = fold(opening_status(case.stored.run), read_events(server.api, REF))
    for said in (row, status):
        assert (said.state, said.trouble) == ("queued", "untended")
        assert "no process looks after it (`echelon wait demo` admits it" in (said.reason or "")
    assert server.changes == []


def test_a_trouble_is_gone_with_the_next_thing_that_happens() -> None:
    status = opening_status(stored(**QUEUED).run)
    status = fold(status, [Event(kind="waiting", at=1.0, reason="why", trouble="untended")])
    assert status.trouble == "untended"
    assert fold(status, [Event(kind="note", at=2.0)]).trouble == "untended"
    assert fold(status, [Event(kind="admitted", at=2.0)]).trouble is None
