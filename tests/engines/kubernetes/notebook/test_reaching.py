"""What `up` and `open` say of a server that does not answer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.kubernetes.api_server import ApiServer
from tests.engines.kubernetes.notebook.test_objects import AROUND, ASKED
from tests.engines.kubernetes.small import ended, pod_object

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.notebook import objects, servers
from echelon.engines.notebook_servers import ServerSettings
from echelon.errors import EchelonError, Refused, Unavailable


def server_job(*conditions: str) -> dict[str, Any]:
    job = objects.server_object("ann", ASKED, AROUND)
    happened = [{"type": each, "status": "True"} for each in conditions]
    about = {**job["metadata"], "uid": "the-job"}
    return {**job, "metadata": about, "status": {"conditions": happened}}


def up(*there: dict[str, Any], asked: ServerSettings | None = None) -> EchelonError:
    server = ApiServer(*there)
    with pytest.raises(EchelonError) as caught:
        servers.PodNotebooks(lambda: server.api).up("ann", asked, lambda _: None)
    assert server.changes == []
    return caught.value


def test_one_that_is_not_there() -> None:
    error = up()
    assert isinstance(error, Unavailable)
    assert "no notebook-ann in namespace team" in error.message


def test_one_that_has_ended_is_not_waited_for() -> None:
    assert "notebook-ann has ended" in up(server_job("Complete")).message


def test_a_job_of_anybody_else_is_left_alone() -> None:
    job = server_job()
    job["metadata"]["labels"] = {}
    error = up(job, asked=ASKED)
    assert isinstance(error, Refused)
    assert "is not a notebook server of echelon's" in error.message


def test_why_a_server_ended_at_its_start() -> None:
    def why(state: dict[str, Any]) -> str:
        made = {"kind": "Job", "name": "notebook-ann", "uid": "the-job", "controller": True}
        about: dict[str, Any] = {"labels": {names.JOB_NAME: "notebook-ann"}, "ownerReferences": [made]}
        api = ApiServer(server_job(), pod_object(status={"phase": "Failed"}, state=state, **about)).api
        with pytest.raises(Unavailable) as caught:
            servers._server(api, server_job()).wait(servers._Answers(api, print, first=True))
        return caught.value.message

    assert "has no Jupyter" in why(ended(objects.NO_JUPYTER))
    assert why(ended(1, message="Traceback\nOSError: no\n")).endswith("OSError: no")
