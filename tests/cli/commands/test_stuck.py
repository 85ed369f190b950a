"""`--stall` with real ranks of PyTorch that wait for each other, on this machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., subprocess.CompletedProcess[str]]
HANG = Path(__file__).parents[2] / "agent" / "gang" / "hangs" / "hang.py"
TRAINS = """
    import sys, time, torch, torch.distributed as dist

    dist.init_process_group("gloo")
    end, tensor = time.monotonic() + 12, torch.zeros(8)
    go_on = torch.ones(1)
    while go_on.item():
        dist.all_reduce(tensor)
        go_on.fill_(time.monotonic() < end)
        dist.broadcast(go_on, 0)
        time.sleep(0.01)
    print("trained", flush=True)
"""


@pytest.mark.core
@pytest.mark.slow
def test_the_rank_that_the_others_wait_for_is_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its peers compute, as the kernel sees them, or wait: neither counts."""
    monkeypatch.setenv("PART", str(tmp_path / "part-17"))
    os.mkfifo(tmp_path / "part-17")
    pipe = os.open(tmp_path / "part-17", os.O_RDWR)
    words = ("--framework", "torch", "--grace", "1", "-n", "2", "--stall", "8s")
    done = call("run", "--name", "fm", *words, str(HANG), "reads")
    os.close(pipe)
    assert done.returncode == 124, done.stderr
    assert "rank 1 never called all_reduce 6 ([64, 64] float32); rank 0 waits in it" in done.stderr
    assert "rank 1: load_batch (hang.py:25)" in done.stderr
    status = json.loads(call("status", "fm", "-o", "json").stdout)
    assert status["root_cause"]["kind"] == "stuck"
    assert not list(Path("runs").glob("**/look-*")), "no file by which ranks are looked at stays"


@pytest.mark.slow
def test_a_training_without_a_print_is_not_stuck(call: Call, write: Callable[..., Path]) -> None:
    script = write("train.py", TRAINS)
    done = call("run", "--framework", "torch", "-n", "2", "--stall", "4s", str(script))
    assert done.returncode == 0, done.stderr
    assert "stuck" not in done.stderr
