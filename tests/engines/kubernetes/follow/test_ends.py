"""Ends as followers report them: by the record as it is now, since watches overtake each other."""

from __future__ import annotations

import json

import pytest
from tests.engines.kubernetes.small import RECORD, job, record_object, stored
from tests.engines.kubernetes.stand_in import StandIn, says

from echelon.engines.kubernetes.client.access import Access
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.diagnose import Trouble
from echelon.engines.kubernetes.follow import follow
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.state.history import LeaderEvents


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
    view = View(stored=stored(), jobs=[{**job(), "status": {"conditions": [failed]}}], pods=[])
    early = follow._end(view, LeaderEvents())
    assert early is not None
    assert early.outcome == "timed-out"
    known = record_object(stop={"at": 200.0, "reason": "stopped by ann"})
    known["metadata"]["labels"] = {"echelon.dev/run": "demo"}
    stand_in.answer_with(says(200, json.loads(json.dumps(known))))
    fresh = follow._record_now(api, RECORD.ref, view.stored)
    assert fresh is not None
    end = follow._end(View(stored=fresh, jobs=view.jobs, pods=[]), LeaderEvents())
    assert end is not None
    assert (end.outcome, end.reason) == ("stopped", "stopped by ann")


def test_a_quota_is_told_once_though_its_numbers_change() -> None:
    one = Trouble(worker=1, kind="quota", sentence="quota small has no room for worker 1 (pods: 1 of 2 used)")
    two = Trouble(worker=1, kind="quota", sentence="quota small has no room for worker 1 (pods: 2 of 2 used)")
    other = Trouble(worker=1, kind="image", sentence="image a/b does not exist")
    assert follow._gist(one) == follow._gist(two)
    assert follow._gist(one) != follow._gist(other)
