"""Which pods are a run's own: those that its objects made, or Jobs between them and the pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.engines.kubernetes.rendered import CASES, planned
from tests.engines.kubernetes.small import job, pod, stored
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.follow.view import own_pods
from echelon.engines.kubernetes.ownership.between import Between, Made
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored


def run_as(dialect: str) -> Stored:
    """The started run `demo`, recorded at 100.0."""
    found = stored()
    plan = planned(CASES["plain"])[1]
    return replace(found, dialect=dialect, run=replace(found.run, plan=plan))


def made_by(kind: str, name: str, uid: str, *, created: str | None = "100.0", **more: Any) -> Pod:
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


def owned(kind: str, name: str, uid: str, *owner: str) -> dict[str, Any]:
    """An object of a kind, made by the controller of another one: of its kind, name and uid."""
    about: dict[str, Any] = {"name": name, "uid": uid}
    if owner:
        of_kind, called, known = owner
        about["ownerReferences"] = [{"kind": of_kind, "name": called, "uid": known, "controller": True}]
    return {"kind": kind, "metadata": about}


def tiers(*found: list[dict[str, Any]]) -> Between:
    return Between(tiers=tuple(tuple(typed(Made, each)) for each in found))


def between(dialect: str, *, of: str = "1", job: str = "7") -> Between:
    """What its controllers made of the run's object with the uid 1, or of another one."""
    if dialect == "mpijob":
        return tiers([owned("Job", "demo-launcher", job, "MPIJob", "demo", of)])
    jobset = owned("JobSet", "demo", "5", "TrainJob", "demo", of)
    return tiers([jobset], [owned("Job", "demo-node-0", job, "JobSet", "demo", "5")])


OF = {"mpijob": ("MPIJob", "demo-launcher"), "trainjob": ("TrainJob", "demo-node-0")}


@pytest.mark.core
@pytest.mark.parametrize("dialect", OF)
def test_whose_a_pod_is_the_uids_of_its_owners_owners_tell(dialect: str) -> None:
    kind, name = OF[dialect]
    there = [owned(kind, "demo", "1")]
    mine, called_so = made_by("Job", name, "7"), made_by("Job", name, "8")
    run = run_as(dialect)
    seen = between(dialect)
    assert own_pods(run, there, [mine, called_so], seen) == [mine]
    unsaid = made_by("Job", name, "7", created=None)
    assert own_pods(run, there, [unsaid], seen) == [unsaid], "its uid says it all"
    others = between(dialect, of="another")
    assert own_pods(run, there, [mine], others) == [], "a Job of that name which another object was made into"
    assert own_pods(run, [], [mine], seen) == [mine], "the object is deleted: the record knows its uid"


def test_a_pod_whose_job_is_gone_or_has_lost_its_maker_counts_by_name_and_run() -> None:
    run, there = run_as("trainjob"), [owned("TrainJob", "demo", "1")]
    leaving = made_by("Job", "demo-node-0", "7")
    earlier = made_by("Job", "demo-node-0", "7", created="99.0")
    nothing = Between(tiers=((), ()))
    assert own_pods(run, there, [leaving, earlier], nothing) == [leaving]
    jobs = between("trainjob").tiers[1]
    assert own_pods(run, there, [leaving, earlier], Between(tiers=((), jobs))) == [leaving]
    alone = tiers([], [owned("Job", "demo-node-0", "7")])
    assert own_pods(run, there, [leaving], alone) == [], "no controller made that Job"
