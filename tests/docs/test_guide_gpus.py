"""The dry runs on the page about GPUs are what three nodes with 5, 3 and 2 free GPUs give."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.test_open_shape import gpu_nodes_in_all

from echelon.errors import Unplaceable
from echelon.model.meaning import to_job
from echelon.model.plan import Plan
from echelon.model.settings import Settings
from echelon.placement.drawing import draw
from echelon.planning import fit

PAGE = (Path(__file__).parents[2] / "docs" / "guide-gpus.md").read_text()
SHOWN = re.compile(
    r"^\$ echelon run --on k8s ([^\n]*) --dry-run train.py\n(.*?)```", re.MULTILINE | re.DOTALL
)


def test_the_page_shows_what_a_dry_run_draws() -> None:
    there = gpu_nodes_in_all(5, 3, 2)
    named = zip(there.nodes, ("gpu-a", "gpu-b", "gpu-c"), strict=True)
    there = replace(there, nodes=tuple(replace(node, name=name) for node, name in named))
    seen = []
    for found in SHOWN.finditer(PAGE):
        words = shlex.split(found[1])
        said: dict[str, Any] = {
            name.strip("-").replace("-", "_"): value
            for name, value in zip(words[::2], words[1::2], strict=True)
        }
        job = to_job(Settings(script="train.py", framework="torch", **said), name="x")
        plan = fit(job, there)
        assert isinstance(plan, Plan)
        assert draw(job, plan, there) == found[2].splitlines()
        seen.append(said["total_gpus"])
    assert seen == ["6", "10"]
    refused = to_job(Settings(script="train.py", framework="torch", total_gpus=10), name="x")
    with pytest.raises(Unplaceable) as caught:
        fit(refused, there)
    assert f"(`{caught.value.hint}`)" in " ".join(PAGE.split())
