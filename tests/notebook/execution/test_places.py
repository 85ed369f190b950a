"""Which steps may be at work at the same time on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.notebook.books import new_folder, read_book

from echelon.engines.memory.engine import MemoryEngine
from echelon.notebook.execution.places import OnThisMachine


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("", "", True),
        ("limit:cpu:3", "", True),
        ("limit:cpu:3", "limit:cpu:2", False),
        ("limit:cpu:500m", "limit:cpu:3500m", True),
        ("limit:memory:6Gi", "limit:memory:2Gi", True),
        ("limit:memory:6Gi", "limit:memory:3Gi", False),
        ("distribute workers:3", "", True),
        ("distribute workers:3", "distribute workers:2", False),
        ("distribute workers:2 limit:memory:4Gi", "limit:memory:1Gi", False),
    ],
)
def test_steps_run_side_by_side_as_far_as_their_limits_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str, fits: bool
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    pipeline = read_book(tmp_path, [(f"step:a {first}", "x = 1"), (f"step:b {second}", "y = 1")])
    folder = new_folder(tmp_path / "run-1")
    place = OnThisMachine(
        pipeline=pipeline, folder=folder, engine=MemoryEngine(), python="python3", memory=8 * 2**30
    )
    assert place.has_room(pipeline.steps) == fits
