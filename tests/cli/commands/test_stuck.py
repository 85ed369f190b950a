"""`--stall` with real ranks of PyTorch that wait for each other, on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Background, wait_for
from tests.cli.terminal import Terminal
from tests.conftest import PATIENCE, processes_of

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
    assert "rank 1: load_batch (hang.py:28)" in done.stderr
    status = json.loads(call("status", "fm", "-o", "json").stdout)
    assert status["root_cause"]["kind"] == "stuck"
    assert not list(Path("runs").glob("**/look-*")), "no file by which ranks are looked at stays"


@pytest.mark.slow
def test_a_training_without_a_print_is_not_stuck(call: Call, write: Callable[..., Path]) -> None:
    script = write("train.py", TRAINS)
    done = call("run", "--framework", "torch", "-n", "2", "--stall", "4s", str(script))
    assert done.returncode == 0, done.stderr
    assert "stuck" not in done.stderr


LATE = HANG.parents[1] / "late" / "ranks.py"
MINUTE = 60


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("way", ["even", "asleep", "loads", "buckets", "group"])
@pytest.mark.parametrize("stall", ["6s", "12s", "30s"])
def test_an_hour_of_trainings_without_a_print(call: Call, way: str, ranks: int, stall: str) -> None:
    """A minute of each: ranks that are even, late, that load data now and then, in groups of their own."""
    words = ("--framework", "torch", "--grace", "1", "-n", str(ranks), "--timeout", f"{MINUTE}s")
    done = call("run", "--name", "fm", *words, "--stall", stall, str(LATE), way)
    assert done.returncode == 118, done.stderr  # its time was over, and nothing else
    assert "stuck for" not in done.stderr
    kinds = {json.loads(line)["kind"] for line in call("events", "fm", "-o", "json").stdout.splitlines()}
    assert "running" in str(kinds)
    assert "still" not in kinds


COUNTS = """
    import os, time
    open(os.environ["ECHELON_OUTPUT"] + "/up-" + os.environ["ECHELON_WORKER"], "w").close()
    for step in range(50):
        print(f"step={step}", flush=True)
        time.sleep(0.2)
"""


@pytest.mark.slow
def test_a_suspended_machine_is_not_stuck(
    background: Callable[..., Background], write: Callable[..., Path], home: Path
) -> None:
    """All processes of a run stand still for longer than its --stall, as in a laptop that sleeps or a frozen
    cluster, and go on.
    """
    script = write("train.py", COUNTS)
    run = background("run", "--name", "fm", "-n", "2", "--stall", "3s", str(script))
    wait_for("runs/fm/up-0", "runs/fm/up-1")
    processes = processes_of(home)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in processes:
            os.kill(pid, number)
        if number == signal.SIGSTOP:
            time.sleep(9)
    assert run.process.wait(PATIENCE) == 0, run.err
    assert "stuck" not in run.err


@pytest.mark.slow
def test_a_debugger_at_its_prompt_is_not_stuck(
    terminal: Callable[..., Terminal], write: Callable[..., Path]
) -> None:
    script = write("debug.py", "answer = 41\nbreakpoint()\nprint('went on')\n")
    screen = terminal("run", "--name", "fm", "--stall", "2s", str(script))
    screen.expect(r"\(Pdb\) ")
    time.sleep(8)
    screen.type("continue\n")
    screen.expect("went on")
    assert screen.end() == 0


# BUG: it was ended, as a run of which no rank printed or computed.
@pytest.mark.slow
def test_a_rank_in_a_debugger_for_which_the_others_wait_is_not_stuck(
    background: Callable[..., Background], write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a pipe, as over the socket of debugpy."""
    os.mkfifo("keys")
    keys = os.open("keys", os.O_RDWR)
    monkeypatch.setenv("KEYS", str(Path("keys").absolute()))
    script = write(
        "debug.py",
        """
        import os, pathlib, pdb, time
        if os.environ["ECHELON_WORKER"] == "1":
            debugger = pdb.Pdb(stdin=open(os.environ["KEYS"]), stdout=open(os.devnull, "w"))
            pathlib.Path(os.environ["ECHELON_OUTPUT"], "up").touch()
            debugger.set_trace()
            pathlib.Path(os.environ["ECHELON_OUTPUT"], "went-on").touch()
        while not pathlib.Path(os.environ["ECHELON_OUTPUT"], "went-on").exists():
            time.sleep(0.5)
        """,
    )
    run = background("run", "--name", "fm", "-n", "2", "--stall", "4s", str(script))
    wait_for("runs/fm/up")
    time.sleep(14)
    os.write(keys, b"continue\n")
    assert run.process.wait(PATIENCE) == 0, run.err
    os.close(keys)
