"""What `up` and `open` say of a server that does not answer."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.engines.kubernetes.notebook.test_objects import AROUND, ASKED
from tests.engines.kubernetes.small import ended, pod

from echelon.engines.kubernetes.client.api import Api, Listing
from echelon.engines.kubernetes.notebook import objects, servers, waiting
from echelon.errors import EchelonError, Refused, Unavailable


class Namespace:
    """A namespace with one Job and the pods of it, that refuses to be changed."""

    namespace = "team"

    def __init__(self, job: dict[str, Any] | None, *pods: dict[str, Any]) -> None:
        made = {"kind": "Job", "name": "notebook-ann", "uid": "the-job", "controller": True}
        self._job = job
        self._pods = [{**pod, "metadata": {**pod["metadata"], "ownerReferences": [made]}} for pod in pods]

    def find(self, kind: str, _name: str) -> dict[str, Any] | None:
        return self._job if kind == "Job" else None

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found = self.find(kind, name)
        assert found is not None
        return found

    def list_shapes(self, _kind: str, _shape: Any, **_: Any) -> list[Any]:
        return []

    def list(self, kind: str, **_: Any) -> Listing:
        return Listing(items=[*self._pods] if kind == "Pod" else [], version="1")


def server_job(*conditions: str) -> dict[str, Any]:
    job = objects.job_object("ann", ASKED, AROUND)
    happened = [{"type": each, "status": "True"} for each in conditions]
    about = {**job["metadata"], "uid": "the-job"}
    return {**job, "metadata": about, "status": {"conditions": happened}}


def up(namespace: Namespace, **asked: Any) -> EchelonError:
    with pytest.raises(EchelonError) as caught:
        servers.PodNotebooks(lambda: cast("Api", namespace)).up("ann", asked.get("asked"), lambda _: None)
    return caught.value


def test_one_that_is_not_there() -> None:
    error = up(Namespace(None))
    assert isinstance(error, Unavailable)
    assert "no notebook-ann in namespace team" in error.message


def test_one_that_has_ended_is_not_waited_for() -> None:
    assert "notebook-ann has ended" in up(Namespace(server_job("Complete"))).message


def test_a_job_of_anybody_else_is_left_alone() -> None:
    job = server_job()
    job["metadata"]["labels"] = {}
    error = up(Namespace(job), asked=ASKED)
    assert isinstance(error, Refused)
    assert "no notebook server of echelon's" in error.message


def test_why_a_server_ended_at_its_start() -> None:
    def why(state: dict[str, Any]) -> str:
        lost = pod(status={"phase": "Failed"}, state=state)
        namespace = cast("Api", Namespace(server_job(), lost))
        with pytest.raises(Unavailable) as caught:
            waiting.wait_for_answer(namespace, server_job(), lambda _: None, first=True)
        return caught.value.message

    assert "has no Jupyter" in why(ended(objects.NO_JUPYTER))
    assert why(ended(1, message="Traceback\nOSError: no\n")).endswith("OSError: no")
