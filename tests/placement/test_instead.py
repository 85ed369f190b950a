"""What would fit in place of what does not, and how a user is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.test_open_shape import gpu_nodes, gpu_nodes_in_all

from echelon.admission import Queued, admit, find_plan
from echelon.engines.memory.engine import MemoryEngine
from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.plan import Placement
from echelon.model.settings import Settings
from echelon.placement import place
from echelon.placement.instead import fits_instead
from echelon.planning import candidates


def job(**said: Any) -> Job:
    return to_job(Settings(script="train.py", framework="torch", **said), name="x")


def reason(cluster: Cluster, **said: Any) -> str:
    found = find_plan(job(**said), MemoryEngine(cluster=cluster))
    assert isinstance(found, Queued)
    return found.reason


def test_as_many_gpus_on_more_nodes() -> None:
    told = "waiting for 8 GPUs: 8 of 32 free, 2 on each of 4 nodes, held by other; -n 4 --gpus 2 fits now"
    assert reason(gpu_nodes(2, 2, 2, 2), gpus=8) == told
    assert reason(gpu_nodes(2, 2, 2, 2), total_gpus=8, workers=1) == told


def test_fewer_workers() -> None:
    assert reason(gpu_nodes(5, 3, 2), workers=4, gpus=3).endswith("; -n 2 --gpus 3 fits now")
    assert "fits now" not in reason(gpu_nodes(1, 0, 0), workers=2, gpus=2)


def test_other_shares_and_fewer_gpus() -> None:
    told = reason(gpu_nodes(5, 3, 2), total_gpus=10)
    assert told.startswith("waiting for 10 GPUs: 10 of 24 free, on nodes with 5, 3, 2, held by other")
    assert told.endswith("; --shares any or --total-gpus 6 fits now")
    assert reason(gpu_nodes(5, 3, 2), total_gpus=11, shares="any").endswith("; --total-gpus 10 fits now")


def test_what_will_never_fit_is_refused_with_what_would() -> None:
    for said, hint in (
        ({"gpus": 8}, "-n 4 --gpus 2 would fit; "),
        ({"total_gpus": 11, "shares": "any"}, "--total-gpus 8 would fit; "),
    ):
        with pytest.raises(Unplaceable) as caught:
            find_plan(job(**said), MemoryEngine(cluster=gpu_nodes_in_all(2, 2, 2, 2)))
        assert caught.value.hint.startswith(hint)


def test_behind_others_nothing_fits_now() -> None:
    engine = MemoryEngine(cluster=gpu_nodes(2, 2, 2, 2))
    first = replace(job(gpus=8), name="first")
    assert isinstance(admit(engine.record(first, None), engine), Queued)
    found = find_plan(job(gpus=8), engine)
    assert isinstance(found, Queued)
    assert "fits now" not in found.reason


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(1, 6),
    st.sampled_from([None, 1, 20, 40]),
)
def test_what_is_told_fits(free: list[int], workers: int, gpus: int, cpus: int | None) -> None:
    there = gpu_nodes(*free)
    said: dict[str, Any] = {} if cpus is None else {"cpus": cpus}
    told = fits_instead(job(workers=workers, gpus=gpus, **said), there).split()
    if told:
        assert told[::2] == ["-n", "--gpus"]
        other = job(workers=int(told[1]), gpus=int(told[3]), **said)
        assert isinstance(place(candidates(other, there)[0].world, there), Placement)
