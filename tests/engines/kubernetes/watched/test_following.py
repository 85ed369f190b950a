"""A job of Kubeflow's that is followed: an API server that goes away ends nothing."""

from __future__ import annotations

import pytest
from tests.engines.kubernetes.stand_in import StandIn, cuts
from tests.engines.kubernetes.watched.test_removing import REF, watched
from tests.engines.kubernetes.watched.test_state import job

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.watched import engine as watched_engine
from echelon.errors import Unreachable


@pytest.fixture
def api(access: Access, stand_in: StandIn) -> Api:
    """One that gives up soon."""
    return Api(access, "ours", patience=0.1)


def test_an_outage_is_reported_and_waited_for(
    api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_engine, "_LOOK", 0.05)
    engine = watched(api, stand_in, job("Running", metadata={"uid": "1"}))
    kinds: list[tuple[str, str | None]] = []
    for event in engine.events(REF, follow=True):
        if event.kind not in [kind for kind, _ in kinds]:
            kinds.append((event.kind, event.trouble))
        if event.kind == "admitted":
            stand_in.answer_with(cuts)
        if event.trouble == "unreachable":
            watched(api, stand_in, job("Succeeded", metadata={"uid": "1"}))
    assert ("waiting", "unreachable") in kinds
    assert kinds[-1] == ("finished", None)


def test_one_that_is_away_from_the_beginning_is_said(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(cuts)
    engine = watched_engine.WatchedJobs()
    engine.__dict__["api"] = api
    with pytest.raises(Unreachable):
        next(iter(engine.events(REF, follow=True)))
