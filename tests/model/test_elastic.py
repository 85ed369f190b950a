"""Ranges of workers: read, written, refused."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.errors import InvalidJob
from echelon.model.elastic import parse_workers, range_of
from echelon.model.meaning import to_job, to_settings
from echelon.model.settings import Settings


def job_of(**more: Any) -> Any:
    return to_job(Settings(script="train.py", **more), name="run")


@pytest.mark.parametrize(
    ("given", "read"), [(3, (3, 3)), ("3", (3, 3)), ("2..8", (2, 8)), (" 1..1 ", (1, 1))]
)
def test_numbers_and_ranges(given: object, read: tuple[int, int]) -> None:
    assert parse_workers("workers", given) == read


@pytest.mark.parametrize("given", ["two", "2..", "..3", "8..2", "2-8", 2.5, True, ""])
def test_what_is_neither(given: object) -> None:
    with pytest.raises(InvalidJob, match="workers"):
        parse_workers("workers", given)


def test_a_range_is_the_most_and_the_fewest() -> None:
    job = job_of(workers="2..8", settle="30s")
    assert (job.workers, job.least, job.settle, range_of(job)) == (8, 2, 30.0, "2..8")
    assert (to_settings(job).workers, to_settings(job).settle) == ("2..8", "30s")
    assert to_job(to_settings(job), name="run") == job


def test_a_range_of_one_number_is_a_fixed_size() -> None:
    assert job_of(workers="3..3") == job_of(workers=3)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"workers": "0..4"}, "is less than 1"),
        ({"workers": "2..4", "total_gpus": "4..8"}, "total-gpus"),
        ({"workers": "2..4", "roles": {"ps": 1}}, "beside a ps"),
        ({"workers": "2..4", "job_kind": "pytorchjob"}, "pytorchjob"),
        ({"workers": 4, "settle": "1m"}, "size changes"),
        ({"roles": {"ps": {"workers": "1..2"}}}, "role ps: workers"),
    ],
)
def test_what_it_cannot_be_given_with(given: dict[str, Any], problem: str) -> None:
    from echelon.model.settings import RoleSettings

    roles = {
        name: RoleSettings(**each) if isinstance(each, dict) else each
        for name, each in given.pop("roles", {}).items()
    }
    with pytest.raises(InvalidJob, match=problem):
        job_of(**given, **({"roles": roles} if roles else {}))
