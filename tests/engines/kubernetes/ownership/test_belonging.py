"""Which objects are a run's own: by labels and the uid of its record, never by a name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.kubernetes.typed import as_pod

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.ownership import belonging
from echelon.engines.kubernetes.ownership.belonging import Identity, belongs, marked, standing

MINE = Identity(run="app", record="record-1", jobs=frozenset({"job-1"}))
RECORD = {"kind": "ConfigMap", "name": "app", "uid": "record-1"}
EARLIER = {"kind": "ConfigMap", "name": "app", "uid": "record-0"}


def thing(*owners: dict[str, Any], run: str | None = "app", **about: Any) -> dict[str, Any]:
    labels = {} if run is None else {names.RUN: run}
    metadata = {"name": "app", "uid": "any", "labels": labels, "ownerReferences": list(owners), **about}
    return {"kind": "Secret", "metadata": metadata}


@pytest.mark.parametrize(
    "own",
    [
        thing(RECORD),
        thing(uid="record-1"),  # the record itself
        marked(thing(), "record-1"),
        thing(uid="job-1"),  # a Job of an older version, to which the record belongs
    ],
)
def test_what_belongs_to_a_run(own: dict[str, Any]) -> None:
    assert belongs(own, MINE)
    assert standing(own, MINE) == "ours"


@pytest.mark.parametrize(
    ("other", "is_a"),
    [
        (thing(run=None), "stranger"),
        (thing(RECORD, run=None), "stranger"),  # without the labels
        (marked(thing(run=None), "record-1"), "stranger"),
        (thing(), "earlier"),  # with the labels alone
        (marked(thing(), "record-0"), "earlier"),
        (marked(thing(uid="job-1"), "record-0"), "earlier"),  # what it says itself counts first
        (thing(EARLIER), "orphan"),
        (thing(EARLIER, {"kind": "Deployment", "name": "shop", "uid": "d"}), "earlier"),
        (thing({"kind": "Deployment", "name": "app", "uid": "record-0"}), "earlier"),
        (thing(run="other"), "other-run"),
        (thing(run="other", deletionTimestamp="2026-01-01T00:00:00Z"), "leaves"),
        (thing(EARLIER, deletionTimestamp="2026-01-01T00:00:00Z"), "leaves"),
    ],
)
def test_what_does_not(other: dict[str, Any], is_a: str) -> None:
    assert not belongs(other, MINE)
    assert standing(other, MINE) == is_a


def test_nothing_belongs_to_a_record_without_a_uid() -> None:
    nobody = Identity(run="app", record="")
    assert not belongs(marked(thing(), ""), nobody)
    assert not belongs(thing({"kind": "ConfigMap", "name": "app", "uid": ""}), nobody)


def test_what_a_record_that_cannot_be_read_says_of_jobs_counts_for_nothing() -> None:
    """Anybody may write that it goes with somebody else's Job."""
    forged = {"kind": "ConfigMap", "name": "x", "uid": "job-1"}
    found = belonging.identity_of(thing(forged, uid="record-2"))
    assert found == Identity(run="app", record="record-2")
    assert not belongs(thing(uid="job-1"), found)


def test_a_pod_is_known_by_the_object_whose_controller_made_it() -> None:
    owner = {"kind": "Job", "name": "app", "uid": "job-1"}

    def is_made(*owners: dict[str, Any], makers: set[str]) -> bool:
        return belonging.is_made_by(as_pod(thing(*owners)).metadata, makers)

    assert is_made({**owner, "controller": True}, makers={"job-1"})
    assert not is_made(owner, makers={"job-1"})
    assert not is_made({**owner, "controller": True, "uid": "job-0"}, makers={"job-1"})
    assert not is_made(makers={"job-1", ""})


def test_what_is_left_is_named_in_one_line() -> None:
    left = [thing(name=f"s{number}") for number in range(10)]
    text = belonging.describe_left("app", left)
    assert text.startswith("left as they are, since run app did not make them: Secret s0, Secret s1, ")
    assert text.endswith("Secret s7, 2 more")
