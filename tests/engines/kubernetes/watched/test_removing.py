"""A job of Kubeflow's that is removed: that one alone, and not without being asked for."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import click
import pytest
from tests.engines.kubernetes.stand_in import StandIn, refuses, says
from tests.engines.kubernetes.watched.test_state import job

from echelon.cli.printing.say import confirm_deletion
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.watched.engine import WatchedJobs
from echelon.errors import StateTrouble
from echelon.model.run import RunRef

REF = RunRef(engine="k8s", name="pytorchjob/mnist")
SERVED = {
    "kind": "APIResourceList",
    "resources": [{"name": "pytorchjobs", "kind": "PyTorchJob", "namespaced": True}],
}


def watched(api: Api, stand_in: StandIn, found: dict[str, Any]) -> WatchedJobs:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        if path.endswith("/apis/kubeflow.org/v1"):
            says(200, SERVED)(handler)
        elif path.endswith("/pytorchjobs/mnist"):
            says(200, {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **found})(handler)
        elif path.endswith("/pods"):
            says(200, {"kind": "PodList", "metadata": {}, "items": []})(handler)
        else:
            refuses(404, "NotFound", "no such path")(handler)

    stand_in.answer_with(answer)
    engine = WatchedJobs()
    engine.__dict__["api"] = api
    return engine


def deletions(stand_in: StandIn) -> list[dict[str, Any]]:
    return [json.loads(each.body) for each in stand_in.seen if each.method == "DELETE"]


def test_it_is_deleted_by_its_uid(api: Api, stand_in: StandIn) -> None:
    engine = watched(api, stand_in, job("Succeeded", metadata={"uid": "one-of-two"}))
    engine.remove(REF)
    (options,) = deletions(stand_in)
    assert options["preconditions"] == {"uid": "one-of-two"}


def test_one_that_runs_is_stopped_first(api: Api, stand_in: StandIn) -> None:
    engine = watched(api, stand_in, job("Running", metadata={"uid": "1"}))
    with pytest.raises(StateTrouble, match="has not ended"):
        engine.remove(REF)
    assert not deletions(stand_in)


def test_its_user_is_asked() -> None:
    assert WatchedJobs.traits.foreign
    with pytest.raises(click.UsageError, match="without a terminal, say --yes if it may go"):
        confirm_deletion("Delete?", ["it"], if_none="it may go")
