"""The table of frameworks, and those that need nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.frameworks.wiring import environments

from echelon.frameworks import launch
from echelon.model.job import FRAMEWORKS, Job
from echelon.model.world import Group, World

WORLD = World(groups=(Group(workers=2, procs=1),))


def test_any_program_finds_its_index_and_the_count(tmp_path: Path) -> None:
    job = Job(name="the-run", command=("./any", "{output}", "{other}"), framework="plain", workers=2, procs=2)
    found = environments(job, tmp_path)
    assert [env["ECHELON_RANK"] for env in found] == ["0", "1", "2", "3"]
    assert [env["RANK"] for env in found] == ["0", "1", "2", "3"], "as PyTorch has it"
    assert {env["WORLD_SIZE"] for env in found} == {"4"}


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "auto"])
def test_every_framework_starts_the_command(framework: str) -> None:
    assert launch(framework, ["python", "train.py"], WORLD, 0).argv[-2:] == ("python", "train.py")
