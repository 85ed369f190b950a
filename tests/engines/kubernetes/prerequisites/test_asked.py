"""What is asked before there is a job: each answer by itself, and none that may be untrue by now."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

import pytest
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.prerequisites import asked
from echelon.engines.kubernetes.prerequisites.asked import Asked
from echelon.errors import EchelonError

EMPTY = says(200, {"kind": "List", "metadata": {}, "items": []})
USER = {"kind": "SelfSubjectReview", "metadata": {}, "status": {"userInfo": {"username": "ann"}}}
RIGHT = {"kind": "SelfSubjectAccessReview", "metadata": {}, "status": {"allowed": True}}
LABELS = {"pod-security.kubernetes.io/enforce": "baseline"}
NAMESPACE = {"kind": "Namespace", "metadata": {"name": "ours", "labels": LABELS}}


@pytest.fixture
def api(access: Access) -> Api:
    return Api(access, "ours", patience=0.1)


def answer(handler: BaseHTTPRequestHandler) -> None:
    if "selfsubjectreviews" in handler.path:
        says(201, USER)(handler)
    elif "selfsubjectaccessreviews" in handler.path:
        says(201, RIGHT)(handler)
    elif handler.path.endswith("/namespaces/ours"):
        says(200, NAMESPACE)(handler)
    else:
        EMPTY(handler)


def test_all_that_every_submission_asks(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(answer)
    found = Asked(api)
    assert (found.quotas(), found.may_execute(), found.level(), found.who()) == ([], True, "baseline", "ann")
    assert found.seen().nodes == []
    assert {seen.method for seen in stand_in.seen if "reviews" not in seen.path} == {"GET"}
    assert found.is_fresh()


def test_what_may_not_be_asked_is_unknown(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(
        refuses(403, "Forbidden", 'nodes is forbidden: User "ann" cannot list resource "nodes"')
    )
    found = Asked(api)
    assert (found.quotas(), found.may_execute(), found.level(), found.who()) == (None, None, None, "")
    assert found.seen().nodes is None


def test_what_kept_an_answer_from_coming_is_raised_with_it(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(refuses(500, "InternalError", "it is broken"))
    found = Asked(api)
    with pytest.raises(EchelonError):
        found.level()
    with pytest.raises(EchelonError):
        found.seen()
    assert found.who() == ""


def test_answers_grow_old(api: Api, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.answer_with(answer)
    found = Asked(api)
    monkeypatch.setattr(asked, "_FRESH", 0.0)
    assert not found.is_fresh()
