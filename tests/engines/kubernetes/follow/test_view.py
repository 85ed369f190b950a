"""Which pods are a run's own: those that its objects made, or Jobs between them and the pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.engines.kubernetes.rendered import CASES, planned
from tests.engines.kubernetes.small import job, pod, stored

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.follow.view import own_pods
from echelon.engines.kubernetes.record import Stored


def run_as(dialect: str) -> Stored:
    """The started run `demo`, recorded at 100.0."""
    found = stored()
    plan = planned(CASES["plain"])[1]
    return replace(found, dialect=dialect, run=replace(found.run, plan=plan))


def made_by(kind: str, name: str, uid: str, *, created: str | None = "100.0", **more: Any) -> dict[str, Any]:
    reference = {"kind": kind, "name": name, "uid": uid, "controller": True, **more}
    notes = {} if created is None else {names.CREATED: created}
    return pod(ownerReferences=[reference], annotations=notes)


@pytest.mark.parametrize("dialect", ["job", "pytorchjob", "mpijob", "trainjob", "of-a-newer-version"])
def test_pods_of_the_runs_own_objects(dialect: str) -> None:
    mine, other = made_by("Job", "demo", "1", created=None), made_by("Job", "demo", "2", created=None)
    assert own_pods(run_as(dialect), [], [mine, other]) == [mine]


def test_what_the_record_says_it_goes_with_makes_no_pod_its_own() -> None:
    """Whoever may change the record can name any Job there: only that of a Job of the run which is gone
    counts, by the name that the plan has for it.
    """
    run = replace(run_as("job"), owners=frozenset({"1", "another"}))
    there = job()
    there["metadata"] |= {"uid": "1"}
    mine, theirs = made_by("Job", "demo", "1"), made_by("Job", "their-job", "another")
    called_so = made_by("Job", "demo", "another")
    assert own_pods(run, [there], [mine, theirs, called_so]) == [mine]
    assert own_pods(run, [], [mine, theirs]) == [mine], "its Job was deleted, and its pods leave"
    assert own_pods(replace(run, owners=frozenset()), [there], [mine, theirs]) == [mine]


@pytest.mark.parametrize(("dialect", "between"), [("mpijob", "demo-launcher"), ("trainjob", "demo-node-0")])
def test_pods_of_jobs_that_a_controller_made_in_between(dialect: str, between: str) -> None:
    mine = made_by("Job", between, "7")
    others = [
        made_by("Job", between, "7", created="99.0"),  # of an earlier run of this name
        made_by("Job", between, "7", created=None),
        made_by("Job", "demo-other", "7"),
        made_by("ReplicaSet", between, "7"),
        made_by("Job", between, "7", controller=False),
        pod(),
    ]
    assert own_pods(run_as(dialect), [], [*others, mine]) == [mine]
    assert own_pods(run_as("job"), [], [*others, mine]) == []
