"""What a submission asks of a cluster, and when."""

from __future__ import annotations

from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access, ExecPlugin, Login
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.engines.kubernetes.prerequisites import asked
from echelon.errors import Unavailable, Unplaceable
from echelon.model.meaning import to_job
from echelon.model.settings import Settings

EMPTY = says(200, {"kind": "List", "metadata": {}, "items": []})
REVIEW = says(201, {"kind": "Review", "metadata": {}, "status": {"allowed": True}})
OF_EVERY_JOB = 7  # quotas, the right to execute, the level, the user; nodes, pods, Jobs


def answer(handler: BaseHTTPRequestHandler) -> None:
    if "reviews" in handler.path:
        REVIEW(handler)
    elif handler.path.endswith("/configmaps/fm"):
        refuses(404, "NotFound", "it is not found")(handler)
    else:
        EMPTY(handler)


@pytest.fixture
def engine(access: Access, stand_in: StandIn) -> KubernetesEngine:
    stand_in.answer_with(answer)
    return KubernetesEngine(connect=lambda: Api(access, "ours", patience=0.1))


def job(**said: Any) -> Any:
    return to_job(Settings(script="train.py", **said), name="fm")


def test_what_every_job_needs_is_asked_before_there_is_one(
    engine: KubernetesEngine, stand_in: StandIn
) -> None:
    engine.expect()
    wait_until(lambda: len(stand_in.seen) == OF_EVERY_JOB, "all to be asked")
    engine.check(job())
    engine.cluster(job=job())
    wait_until(lambda: len(stand_in.seen) == OF_EVERY_JOB + 1, "the name to be looked for")


def test_answers_that_are_old_are_asked_for_anew(
    engine: KubernetesEngine, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked, "_FRESH", 0.0)
    engine.expect()
    engine.check(job())
    wait_until(lambda: len(stand_in.seen) == 2 * OF_EVERY_JOB + 1, "all to be asked again")


def test_nodes_that_a_job_selects_are_looked_at_by_themselves(
    engine: KubernetesEngine, stand_in: StandIn
) -> None:
    chosen = job(node_selector={"zone": "a"})
    engine.check(chosen)
    with pytest.raises(Unplaceable):
        engine.cluster(job=chosen)
    assert any("/nodes?" in seen.path and "zone" in seen.path for seen in stand_in.seen)


def test_a_plugin_for_credentials_is_started_when_they_are_needed(access: Access, stand_in: StandIn) -> None:
    plugin = ExecPlugin(
        command="/no/such/plugin", api_version="client.authentication.k8s.io/v1", mode="Never"
    )
    theirs = replace(access, login=Login(plugin=plugin))
    engine = KubernetesEngine(connect=lambda: Api(theirs, "ours", patience=0.1))
    engine.expect()
    assert not stand_in.seen
    with pytest.raises(Unavailable, match="plugin"):
        engine.check(job())
