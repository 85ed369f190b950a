"""Which way the results of a run come home, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from echelon.errors import InvalidJob
from echelon.model.meaning import to_job
from echelon.model.pods.pod import Keeper
from echelon.model.pods.way_home import WayHome, way_home, without_exec
from echelon.model.settings import RoleSettings, Settings

NONE = None


def home(way: Any, hold: float) -> WayHome:
    return WayHome(way=way, hold=hold)


TABLE: list[tuple[dict[str, Any], Keeper | None, WayHome, float]] = [
    # what is asked for, its keeper, its way, and how long workers hold for a user who may not exec
    ({}, NONE, home("hold", 300.0), 0.0),
    ({"linger": "1h"}, NONE, home("hold", 3600.0), 3600.0),
    ({"linger": 0}, NONE, home("hold", 0.0), 0.0),
    ({"keep": "1h"}, NONE, home("hold", 3600.0), 3600.0),
    ({"detach": True}, Keeper(), home("keeper", 300.0), 60.0),
    ({"detach": True, "linger": 0}, Keeper(), home("keeper", 60.0), 60.0),
    ({"gpus": 1}, Keeper(), home("keeper", 300.0), 60.0),
    ({"total_gpus": 4}, Keeper(), home("keeper", 300.0), 60.0),
    ({"resource": {"amd.com/gpu": 1}}, Keeper(), home("keeper", 300.0), 60.0),
    ({"roles": {"chief": RoleSettings(gpus=1)}}, Keeper(), home("keeper", 300.0), 60.0),
    (
        {"detach": True, "keep": "1h", "keep_size": "5Gi"},
        Keeper(keep=3600, size=5 << 30),
        home("keeper", 300.0),
        60.0,
    ),
    ({"keep": "1h:5Gi", "gpus": 1}, Keeper(keep=3600, size=5 << 30), home("keeper", 300.0), 60.0),
    ({"keep": "1h:0", "gpus": 1}, NONE, home("hold", 3600.0), 3600.0),
    ({"keep": "0:0", "gpus": 1}, NONE, home("hold", 0.0), 0.0),
    ({"gpus": 1, "keep": "0"}, NONE, home("hold", 300.0), 0.0),
    ({"detach": True, "keep": 0, "linger": "1h"}, NONE, home("hold", 3600.0), 3600.0),
    ({"checkpoints": "ckpt"}, Keeper(), home("keeper", 300.0), 60.0),
    ({"checkpoints": "ckpt", "output": "new:"}, NONE, home("volume", 0.0), 0.0),
    ({"checkpoints": "ckpt", "keep": 0, "output": "new:"}, NONE, home("volume", 0.0), 0.0),
    ({"output": "new:"}, NONE, home("volume", 0.0), 0.0),
    ({"gpus": 1, "output": "new:"}, NONE, home("volume", 0.0), 0.0),
    ({"detach": True, "output": "pvc:shelf"}, NONE, home("volume", 0.0), 0.0),
    ({"output": "pvc:shelf", "collect": ("/x",)}, NONE, home("volume", 300.0), 0.0),
]


@pytest.mark.core
@pytest.mark.parametrize(("more", "keeper", "expected", "without"), TABLE)
def test_the_way_of_a_run(
    more: dict[str, Any], keeper: Keeper | None, expected: WayHome, without: float
) -> None:
    options = to_job(Settings(script="a", **more), name="x").pod
    assert options.keeper == keeper
    assert way_home(options) == expected
    assert way_home(without_exec(options)) == WayHome(way=expected.way, hold=without)


def test_checkpoints_that_nobody_would_keep_are_refused() -> None:
    with pytest.raises(InvalidJob, match="--keep 0") as caught:
        to_job(Settings(script="a", checkpoints="ckpt", keep="0"), name="x")
    assert "--output" in caught.value.hint
