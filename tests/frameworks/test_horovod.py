"""What Horovod's ranks find in their environment, in even and uneven worlds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.frameworks.wiring import environments
from tests.test_open_shape import gpu_nodes

from echelon.frameworks.horovod import launch
from echelon.model.job import Job, Role
from echelon.model.meaning import to_job
from echelon.model.resources import Resources
from echelon.model.settings import Settings
from echelon.model.world import Group, World
from echelon.planning import candidates

PLACE = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")


def job(**more: Any) -> Job:
    return Job(name="the-run", framework="horovod", script="train.py", **more)


def places(found: list[dict[str, str]]) -> list[str]:
    return [" ".join(env[f"HOROVOD_{name}"] for name in PLACE) for env in found]


def test_every_rank_knows_its_place(tmp_path: Path) -> None:
    found = environments(job(workers=2, procs=2), tmp_path)
    assert places(found) == [
        "0 4 0 2 0 2 machine-0",
        "1 4 1 2 0 2 machine-0",
        "2 4 0 2 1 2 machine-1",
        "3 4 1 2 1 2 machine-1",
    ]


def test_all_ranks_are_told_the_same_rendezvous_of_rank_0(tmp_path: Path) -> None:
    found = environments(job(workers=2, procs=2), tmp_path)
    (address,) = {env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] for env in found}
    where, _, word = address.partition("/")
    assert where == "10.0.0.1:1"
    assert len(word) == 32
    for name, value in {"GLOO_RENDEZVOUS_PORT": "1", "CONTROLLER": "gloo", "CPU_OPERATIONS": "gloo"}.items():
        assert {env[f"HOROVOD_{name}"] for env in found} == {value}, name


def test_a_new_generation_has_another_word(tmp_path: Path) -> None:
    addresses = {
        env["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
        for generation in range(3)
        for env in environments(job(workers=2), tmp_path, generation=generation)
    }
    assert len(addresses) == 3


def test_on_one_machine_the_ranks_talk_over_loopback(tmp_path: Path) -> None:
    here = environments(job(workers=2), tmp_path, addresses=["127.0.0.1", "127.0.0.1"])
    assert {env["HOROVOD_GLOO_IFACE"] for env in here} <= {"lo", "lo0"}


def test_workers_of_one_machine_that_share_its_devices_are_one_host(tmp_path: Path) -> None:
    addresses = ["10.0.0.1", "10.0.0.1", "10.0.0.2"]
    assert places(environments(job(workers=3), tmp_path, addresses=addresses)) == [
        "0 3 0 2 0 2 machine-0",
        "1 3 1 2 0 1 machine-0",
        "2 3 0 1 1 2 machine-1",
    ]


def test_workers_with_gpus_of_their_own_are_hosts_of_their_own(tmp_path: Path) -> None:
    wanted = job(workers=2, procs=2, resources=Resources(gpus=2))
    assert places(environments(wanted, tmp_path, addresses=["10.0.0.1", "10.0.0.1"])) == [
        "0 4 0 2 0 2 worker-0",
        "1 4 1 2 0 2 worker-0",
        "2 4 0 2 1 2 worker-1",
        "3 4 1 2 1 2 worker-1",
    ]


@pytest.mark.parametrize(("gpus", "host"), [(0, "machine"), (1, "worker")])
def test_shares_may_differ(tmp_path: Path, gpus: int, host: str) -> None:
    chief = Role(name="chief", workers=1, procs=1, resources=Resources(gpus=gpus))
    wanted = job(workers=1, procs=5, resources=Resources(gpus=5 * gpus), roles=(chief,))
    assert places(environments(wanted, tmp_path)) == [
        f"0 6 0 1 0 2 {host}-0",
        f"1 6 0 5 1 2 {host}-1",
        f"2 6 1 5 0 1 {host}-1",
        f"3 6 2 5 0 1 {host}-1",
        f"4 6 3 5 0 1 {host}-1",
        f"5 6 4 5 0 1 {host}-1",
    ]


def test_the_user_has_the_last_word(tmp_path: Path) -> None:
    (env,) = environments(job(env={"HOROVOD_GLOO_IFACE": "ib0", "HOROVOD_CYCLE_TIME": "1"}), tmp_path)
    assert (env["HOROVOD_GLOO_IFACE"], env["HOROVOD_CYCLE_TIME"]) == ("ib0", "1")


def test_another_role_is_no_part_of_the_training() -> None:
    world = World(groups=(Group(workers=2, procs=1), Group(role="evaluator", workers=1, procs=1)))
    assert launch(["train"], world, 0).wiring["HOROVOD_SIZE"] == "2"
    assert launch(["train"], world, 1).wiring == {}
    assert launch(["train"], world, 0).until == "first"


@pytest.mark.parametrize(
    ("shares", "expected"),
    [("largest-first", [("n1", 1), ("n0", 5)]), ("equal", [("n0", 3), ("n1", 3)])],
)
def test_the_chief_sits_on_the_smallest_share(shares: str, expected: list[tuple[str, int]]) -> None:
    wanted = to_job(
        Settings(script="train.py", framework="horovod", total_gpus=6, shares=shares),  # type: ignore[arg-type]
        name="x",
    )
    (candidate,) = candidates(wanted, gpu_nodes(5, 3, 2))
    sizes = [group.resources.gpus for group in candidate.world.groups for _ in range(group.workers)]
    assert list(zip(candidate.nodes, sizes, strict=True)) == expected
