"""`top` marks workers that hold GPUs only for their results; `status` says how soon GPUs were free again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_worker_that_waits_for_its_results_to_be_fetched(
    terminal: Terminal, give_gpus: Callable[..., None], real_nodes: list[str]
) -> None:
    give_gpus(real_nodes[0], 1)
    terminal.write(
        "train.py", "import os, pathlib; pathlib.Path(os.environ['ECHELON_OUTPUT'], 'r').write_text('x')"
    )
    held = terminal.call(
        "run", "-d", "--name", "held", "--image", terminal.image, "--gpus", "1",
        "--keep", "1h:0", "train.py",
    )  # fmt: skip
    assert held.returncode == 0, held.stderr
    wait_until(lambda: [each["state"] for each in holders(terminal, "held")] == ["lingering"], "it", PATIENCE)
    (idle,) = holders(terminal, "held")
    assert (idle["node"], idle["gpus"]) == (real_nodes[0], 1)
    assert idle["since"] is not None
    assert terminal.status("held")["released"] is None
    assert terminal.call("get", "held").returncode == 0
    wait_until(lambda: terminal.status("held")["released"] is not None, "its GPU to be free", PATIENCE)
    status = terminal.status("held")
    assert status["released"] >= status["ended"] - 1  # the kubelet counts whole seconds
    # Until the Job's controller has counted the ended pod, its index may still get another one.
    wait_until(lambda: holders(terminal, "held") == [], "the Job to have counted its pod", PATIENCE)
    terminal.check_removal("held")


def holders(terminal: Terminal, run: str) -> list[dict[str, Any]]:
    usage = terminal.call("top", "-o", "json")
    assert usage.returncode == 0, usage.stderr
    return [each for each in json.loads(usage.stdout)["holders"] if each["name"] == run]
