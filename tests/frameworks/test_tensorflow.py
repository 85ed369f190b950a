"""TF_CONFIG: who is there, and who of them a rank is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.frameworks.wiring import environments

from echelon.model.job import Job, Role
from echelon.model.resources import Resources


def job(*, workers: int, procs: int = 1, **roles: int) -> Job:
    named = tuple(Role(name=name, workers=count, resources=Resources()) for name, count in roles.items())
    return Job(
        name="the-run", script="train.py", framework="tensorflow", workers=workers, procs=procs, roles=named
    )


def configs(wanted: Job, folder: Path, **more: Any) -> list[dict[str, Any]]:
    return [json.loads(env["TF_CONFIG"]) for env in environments(wanted, folder, **more)]


def test_workers(tmp_path: Path) -> None:
    found = configs(job(workers=3), tmp_path)
    assert [config["task"] for config in found] == [{"type": "worker", "index": index} for index in range(3)]
    for config in found:
        assert config["cluster"] == {"worker": ["10.0.0.1:1", "10.0.0.2:101", "10.0.0.3:201"]}


def test_roles(tmp_path: Path) -> None:
    found = configs(job(workers=2, ps=2, chief=1, evaluator=1), tmp_path)
    assert [(config["task"]["type"], config["task"]["index"]) for config in found] == [
        ("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1), ("evaluator", 0),
    ]  # fmt: skip
    for config in found:
        assert set(config["cluster"]) == {"chief", "worker", "ps"}, (
            "an evaluator is not of the cluster it judges"
        )
        assert config["cluster"]["worker"] == ["10.0.0.2:101", "10.0.0.3:201"]


def test_a_launcher_is_not_of_the_cluster(tmp_path: Path) -> None:
    launcher, *others = environments(job(workers=2, launcher=1), tmp_path)
    assert "TF_CONFIG" not in launcher
    for env in others:
        assert set(json.loads(env["TF_CONFIG"])["cluster"]) == {"worker"}


# BUG: with several ranks to a worker, `{index}` is the worker's, not the rank's among the ranks of its role:
# two ranks take themselves for the same task.
@pytest.mark.parametrize("procs", [1, 2, 3])
def test_every_rank_finds_itself_in_the_cluster_where_it_listens(procs: int, tmp_path: Path) -> None:
    found = configs(job(workers=2, procs=procs, ps=1), tmp_path)
    everybody = [address for role in found[0]["cluster"].values() for address in role]
    mine = [config["cluster"][config["task"]["type"]][config["task"]["index"]] for config in found]
    assert sorted(mine) == sorted(everybody)
    assert len(set(mine)) == 2 * procs + 1


def test_addresses_may_be_of_the_newer_kind(tmp_path: Path) -> None:
    found = configs(job(workers=2), tmp_path, addresses=["::1", "fe80::2"])
    assert found[0]["cluster"]["worker"] == ["[::1]:1", "[fe80::2]:101"]


def test_one_rank_alone_needs_no_cluster(tmp_path: Path) -> None:
    (env,) = environments(job(workers=1), tmp_path)
    assert "TF_CONFIG" not in env


def test_the_older_keras_where_it_is_installed(tmp_path: Path) -> None:
    wanted = job(workers=2)
    (env, _) = environments(wanted, tmp_path)
    assert "TF_USE_LEGACY_KERAS" not in env
    (env, _) = environments(wanted, tmp_path, importable={"tf_keras"})
    assert env["TF_USE_LEGACY_KERAS"] == "1"
    (env, _) = environments(wanted, tmp_path, importable={"tf_keras"}, inherited={"TF_USE_LEGACY_KERAS": "0"})
    assert env["TF_USE_LEGACY_KERAS"] == "0", "the user has chosen"
