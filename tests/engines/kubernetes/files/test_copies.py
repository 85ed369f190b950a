"""The copies that go on: from the Jobs that `cp` makes, to the rows of `ps`."""

from __future__ import annotations

from typing import Any

from testbed.kubectl import Object
from tests.engines.kubernetes.stand_in import StandIn, says

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.files.copies import list_copies
from echelon.engines.kubernetes.files.copy_pod import CopyPod, job_of
from echelon.model.copy import OpenCopy
from echelon.model.pods.pod import PodOptions


def made(name: str, created: str, *, writes: bool = False, **status: Any) -> Object:
    """A copy's Job as the API server has it."""
    pod = CopyPod(claim="data", options=PodOptions(), owner="Ann B", writes=writes)
    job = job_of(name, pod, "")
    return {**job, "metadata": {**job["metadata"], "creationTimestamp": created}, "status": status}


def test_what_goes_on_is_listed_the_newest_first(access: Access, stand_in: StandIn) -> None:
    ended = [{"type": "Complete", "status": "True"}]
    jobs = [
        made("cp-1", "2026-01-01T00:00:00Z", active=1, ready=1),
        made("cp-2", "2026-01-01T00:01:00Z", writes=True, active=1, ready=0),
        made("cp-3", "2026-01-01T00:02:00Z", conditions=ended),
    ]
    stand_in.answer_with(says(200, {"metadata": {}, "items": jobs}))
    first, second = list_copies(Api(access, "ours", patience=0.1))
    assert first == OpenCopy(
        name="cp-2", volume="data", writes=True, owner="Ann B", created=1767225660.0, state="starting"
    )
    assert (second.name, second.writes, second.state) == ("cp-1", False, "running")
    (seen,) = stand_in.seen
    assert seen.method == "GET"
    assert "component%3Dtransfer" in seen.path


def test_a_job_that_only_looks_like_a_copy_is_none(access: Access, stand_in: StandIn) -> None:
    strange = made("cp-1", "2026-01-01T00:00:00Z")
    strange["spec"]["template"]["spec"]["volumes"] = None
    stand_in.answer_with(says(200, {"metadata": {}, "items": [strange]}))
    assert list_copies(Api(access, "ours", patience=0.1)) == []
