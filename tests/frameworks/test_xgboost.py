"""What XGBoost's ranks find in their environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.frameworks.wiring import environments

from echelon.model.job import Job, Role
from echelon.model.resources import Resources


def job(**more: Any) -> Job:
    return Job(name="the-run", script="train.py", framework="xgboost", **more)


def test_every_rank_knows_the_tracker_and_its_number(tmp_path: Path) -> None:
    found = environments(job(workers=2, procs=2), tmp_path)
    assert [env["DMLC_TASK_ID"] for env in found] == ["0", "1", "2", "3"]
    for name, value in {
        "DMLC_TRACKER_URI": "10.0.0.1",
        "DMLC_TRACKER_PORT": "1",
        "DMLC_NUM_WORKER": "4",
        "MASTER_ADDR": "10.0.0.1",  # as in the pods of an XGBoostJob
        "MASTER_PORT": "1",
        "WORLD_SIZE": "4",
    }.items():
        assert {env[name] for env in found} == {value}, name


def test_a_chief_is_the_first_of_them(tmp_path: Path) -> None:
    found = environments(
        job(workers=1, roles=(Role(name="chief", workers=1, resources=Resources()),)), tmp_path
    )
    assert [(env["ECHELON_RANK"], env["DMLC_TASK_ID"]) for env in found] == [("0", "0"), ("1", "1")]
    role = Role(name="evaluator", workers=1, resources=Resources(), command=("python", "judge.py"))
    (_, other) = environments(job(workers=1, roles=(role,)), tmp_path)
    assert "DMLC_TASK_ID" not in other
