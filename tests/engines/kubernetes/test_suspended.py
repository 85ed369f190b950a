"""Which of a run's Jobs are suspended, by the questions that are asked."""

from __future__ import annotations

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.small import job, stored

from echelon.engines.kubernetes.render.dialects import of
from echelon.engines.kubernetes.suspended import (
    all_suspended,
    any_suspended,
    begins_anew,
    is_suspended,
)

WAITS, WORKS = job(suspend=True), job()
STOP = {"at": 10.0, "reason": "stopped by ann"}


@pytest.mark.parametrize(
    ("jobs", "any_", "all_"),
    [
        ([], False, False),
        ([WAITS], True, True),
        ([WORKS], False, False),
        ([WAITS, WORKS], True, False),
        ([WAITS, WAITS], True, True),
    ],
)
def test_of_several_jobs(jobs: list[Object], any_: bool, all_: bool) -> None:
    assert (any_suspended(jobs), all_suspended(jobs)) == (any_, all_)
    assert begins_anew(stored(), jobs) is any_
    assert not begins_anew(stored(stop=STOP), jobs), "what was stopped does not go on"


def test_a_job_that_was_suspended_for_good_waits_for_nothing() -> None:
    """An MPIJob is ended so: its controller heeds no deadline."""
    spec = {"runPolicy": {"suspend": True}}
    waits = {"kind": "MPIJob", "metadata": {"name": "demo"}, "spec": spec}
    assert is_suspended(waits)
    assert not is_suspended({**waits, "metadata": {"name": "demo", **of(waits).ended()["metadata"]}})
