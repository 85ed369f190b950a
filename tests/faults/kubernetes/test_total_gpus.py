"""`--total-gpus` on a real cluster: the nodes and shares are chosen, and the workers run there."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.faults.kubernetes.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SCRIPT = """
from os import environ as env
print("rank", env["RANK"], "of", env["WORLD_SIZE"], "local", env["LOCAL_RANK"], flush=True)
"""


@pytest.mark.core
def test_six_gpus_of_five_and_three(
    terminal: Terminal, give_gpus: Callable[..., None], real_nodes: list[str]
) -> None:
    first, second = real_nodes[:2]
    give_gpus(first, 5, taint=True)
    give_gpus(second, 3)
    terminal.write("train.py", SCRIPT)

    dry = terminal.call(
        "run", "--dry-run", "--total-gpus", "6", "--name", "six", "--image", terminal.image, "train.py"
    )
    assert dry.returncode == 0, dry.stderr
    assert "6 GPUs as [3, 3]" in dry.stdout
    assert "not [5, 1]: its shares differ" in dry.stdout
    refused = terminal.call("run", "--total-gpus", "8", "--name", "x", "--image", terminal.image, "train.py")
    assert "--shares any or --total-gpus 6" in refused.stderr

    equal = terminal.train("six", "--total-gpus", "6", "--framework", "torch", "train.py")
    assert equal.wait() == 0, equal
    assert {f"rank {rank} of 6 local {rank % 3}" in equal.out.read_text() for rank in range(6)} == {True}, (
        equal
    )
    uneven = terminal.train(
        "uneven", "--total-gpus", "6", "--shares", "largest-first", "--framework", "torch", "train.py"
    )
    assert uneven.wait() == 0, uneven
    assert "rank 4 of 6 local 4" in uneven.out.read_text(), uneven
    assert "rank 5 of 6 local 0" in uneven.out.read_text(), uneven
    workers = json.loads(terminal.call("status", "uneven", "-o", "json").stdout)["workers"]
    assert [each["node"] for each in workers] == [first, second]
    for run in ("six", "uneven"):
        terminal.check_removal(run)
