"""Ends as followers report them: by the record as it is now, since watches overtake each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from tests.engines.kubernetes.small import RECORD, RUNNING, ended, job, pod, record_object, stored
from tests.engines.kubernetes.stand_in import StandIn, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.diagnose import Trouble
from echelon.engines.kubernetes.follow import follow
from echelon.engines.kubernetes.follow.evidence import confirm, evidence
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.history import LeaderEvents
from echelon.engines.kubernetes.state.standing import Told, standing
from echelon.errors import Refused, Unreachable
from echelon.model.event import Event
from echelon.model.output.log import EventLine, Line

NOW = 1e9


@pytest.fixture
def api(access: Access) -> Api:
    return Api(access, "ours", patience=0.1)


def test_a_stop_that_the_watch_has_not_brought_yet_explains_the_end(api: Api, stand_in: StandIn) -> None:
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "DeadlineExceeded",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    made = {**job(), "status": {"conditions": [failed]}}
    view = View(stored=stored(), jobs=[made], pods=[])
    early = standing(evidence(view), NOW).end
    assert early is not None
    assert early.outcome == "timed-out"
    known = record_object(stop={"at": 200.0, "reason": "stopped by ann"})
    known["metadata"]["labels"] = {"echelon.dev/run": "demo"}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        one = handler.path.endswith("/demo")
        says(200, json.loads(json.dumps(known if one else {"metadata": {}, "items": []})))(handler)

    stand_in.answer_with(answer)
    found = confirm(api, RECORD.ref, view, LeaderEvents())
    assert found is not None
    assert found.end is not None
    assert (found.end.outcome, found.end.reason) == ("stopped", "stopped by ann")


def test_a_quota_is_told_once_though_its_numbers_change() -> None:
    one = Trouble(worker=1, kind="quota", sentence="quota small has no room for worker 1 (pods: 1 of 2 used)")
    two = Trouble(worker=1, kind="quota", sentence="quota small has no room for worker 1 (pods: 2 of 2 used)")
    other = Trouble(worker=1, kind="image", sentence="image a/b does not exist")
    assert follow._gist(one) == follow._gist(two)
    assert follow._gist(one) != follow._gist(other)


# An end in the record, which anybody may have written
SAID = {"kind": "finished", "at": 5.0, "outcome": "succeeded", "exit_code": 0}
RUNS = [{"kind": "worker-running", "at": 2.0, "worker": each} for each in (0, 1)]
VERDICT = {"kind": "verdict", "at": 3.0, "outcome": "failed", "exit_code": 3, "reason": "rank 1 exited"}
LAST = {"kind": "worker-ended", "at": 4.0, "worker": 0}
HOLDS = {"kind": "holding", "at": 4.0, "worker": 1}


def read(
    monkeypatch: pytest.MonkeyPatch, logs: Mapping[int, list[Any] | Exception], *, of_pods: bool = False
) -> Event | None:
    """The end that is read of a run whose workers run and have written this, and whose record has an end."""

    def read_pod(_: object, found: Pod) -> Iterator[list[Line]]:
        said = logs[1 if "-1-" in found.metadata.name else 0]
        if isinstance(said, Exception):
            raise said
        yield [EventLine(sequence=0, at=1.0, payload=json.dumps(each).encode()) for each in said]

    pods = [pod(worker, state=RUNNING) for worker in logs]
    seen = View(stored=stored(end=SAID), jobs=[job()], pods=pods)
    monkeypatch.setattr("echelon.engines.kubernetes.follow.view.look", lambda *_: seen)
    monkeypatch.setattr(follow, "read_pod", read_pod)
    monkeypatch.setattr(follow, "find_troubles", lambda *_, **__: [])
    events = follow.read_events(None, RECORD.ref, of_pods=of_pods)  # type: ignore[arg-type]
    return next((event for event in events if event.kind == "finished"), None)


@pytest.mark.core
def test_an_end_in_the_record_of_a_run_that_goes_on_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, {0: RUNS, 1: []}) is None
    assert read(monkeypatch, {0: RUNS, 1: []}, of_pods=True) is None


def test_an_end_is_read_as_the_leader_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    end = read(monkeypatch, {0: [*RUNS, VERDICT, LAST], 1: []})
    assert end is not None
    assert (end.outcome, end.exit_code) == ("failed", 3)


def test_the_others_tell_the_end_after_their_leader_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    end = read(monkeypatch, {0: [], 1: [VERDICT, HOLDS]})
    assert end is not None
    assert (end.outcome, end.exit_code) == ("failed", 3)


@pytest.mark.parametrize("error", [Unreachable("no route", hint=""), Refused("no route", hint="")])
def test_results_are_not_taken_for_fetched_while_the_leader_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    assert read(monkeypatch, {0: error, 1: []}) is None
    with pytest.raises(Unreachable, match="log of worker 0"):
        read(monkeypatch, {0: error, 1: []}, of_pods=True)


def test_workers_that_kueue_sends_away_have_not_ended_the_run() -> None:
    """Their leader says so as it leaves; the Job is suspended, and makes others later."""
    leader = LeaderEvents()
    cause = {"summary": "worker 0 was lost", "kind": "worker-left", "worker": 0}
    for each in ({**VERDICT, "cause": cause}, LAST):
        list(leader.read(EventLine(sequence=0, at=1.0, payload=json.dumps(each).encode()), []))
    for suspended in (False, True):
        seen = View(stored=stored(), jobs=[job(suspend=suspended)], pods=[])
        assert (standing(evidence(seen, leader.told), NOW).end is None) is suspended


def test_other_logs_are_not_read_before_the_first_lines_of_a_leader_that_runs() -> None:
    both = [pod(worker, state=RUNNING) for worker in (0, 1)]
    runs = View(stored=stored(), jobs=[job()], pods=both)
    lost = View(stored=stored(), jobs=[job()], pods=[pod(0, state=ended(137)), both[1]])
    for view, told, quiet, wanted in (
        (runs, Told(), 0.0, False),
        (runs, Told(), 60.0, True),  # it may have replaced one that knew the end
        (runs, Told(has_lines=True), 60.0, False),
        (lost, Told(), 0.0, True),
    ):
        assert follow._others_may_know(view, told, quiet=quiet) is wanted
