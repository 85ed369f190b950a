"""`echelon top RUN` and `--stall`, with real runs on this machine. GPUs are those of a stand-in for
`nvidia-smi`."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import wait_for
from tests.cli.nvidia_smi import GIB, StandIn
from tests.cli.terminal import Terminal
from tests.conftest import wait_until

Call = Callable[..., subprocess.CompletedProcess[str]]
HANG = """
    import time

    def wait_for_ever():
        time.sleep(1000)

    print("begun", flush=True)
    wait_for_ever()
"""


@pytest.fixture
def hang(write: Callable[..., Path]) -> str:
    """A script that says one word and then nothing."""
    return str(write("hang.py", HANG))


def sampled(call: Call, name: str) -> list[dict[str, Any]] | None:
    """The workers of a run, once there is a sample of each."""
    done = call("top", name, "-o", "json")
    assert done.returncode == 0, done.stderr
    workers: list[dict[str, Any]] = json.loads(done.stdout)["workers"]
    return workers if workers and all(worker["cpus"] is not None for worker in workers) else None


@pytest.mark.core
def test_a_gang_that_hangs_is_called_stuck_and_shows_where(call: Call, hang: str) -> None:
    done = call("run", "--name", "fm", "-n", "2", "--stall", "2s", hang)
    assert done.returncode == 124, done.stderr
    shown = (done.stdout + done.stderr).splitlines()
    for rank in (0, 1):
        assert any(line.startswith(f"[{rank}]") and "wait_for_ever" in line for line in shown)
    assert "no rank printed or computed for 2 s (--stall)" in done.stderr
    assert "rank 0 was in wait_for_ever (hang.py:5), rank 1 was in wait_for_ever (hang.py:5)" in done.stderr
    status = json.loads(call("status", "fm", "-o", "json").stdout)
    assert (status["state"], status["root_cause"]["kind"]) == ("failed", "stuck")
    assert "wait_for_ever" in Path("runs/fm/logs/rank-1.log").read_text()


def test_it_restarts_where_restarts_are_left(call: Call, write: Callable[..., Path]) -> None:
    script = write("once.py", "import os, time\nos.environ['ECHELON_RESTART'] == '1' or time.sleep(1000)\n")
    done = call("run", "--name", "fm", "--stall", "1s", "--restarts", "1", str(script))
    assert done.returncode == 0, done.stderr
    assert "restart 1: the run was stuck" in done.stderr


def test_top_shows_each_worker_and_rank(gpus: StandIn, call: Call, stay: str) -> None:
    gpus.show(4, used=(GIB, 2 * GIB), busy=(90, 10, 30, 50))
    words = ("run", "-d", "--name", "fm", "-n", "2", "--gpus", "2", "--framework", "torch", stay)
    assert call(*words).returncode == 0
    wait_for(*(f"runs/fm/pid-{rank}" for rank in range(4)))

    def with_gpus() -> bool:
        return all(worker["gpus"] for worker in sampled(call, "fm") or [{"gpus": []}])

    wait_until(with_gpus, "a sample of each worker")
    first, second = sampled(call, "fm") or []
    assert [rank["rank"] for rank in second["ranks"]] == [2, 3]
    assert all(rank["memory"] > 1 << 20 and rank["processes"] >= 1 for rank in second["ranks"])
    assert first["memory"] >= sum(rank["memory"] for rank in first["ranks"])
    assert [gpu["gpu"] for gpu in first["gpus"]] == ["0", "1"]
    told = {
        key: value for key, value in second["gpus"][1].items() if value
    }  # it has no clock, as older drivers
    assert told == {"gpu": "3", "busy": 50, "memory_used": 2 << 30, "memory": 80 << 30}
    text = call("top", "fm", "--once").stdout
    assert text.startswith("fm: running\n")
    heads = re.search(r"^WORKER +RANK +STATE +NODE +CPU +MEMORY +GPU +GPU MEMORY$", text, re.MULTILINE)
    assert heads is not None, text
    assert re.search(r"^1 +all +running +\S+ +\d+% +[\d.]+ .iB +40% +3 GiB of 160 GiB$", text, re.MULTILINE)
    assert re.search(r"^- +3 +- +- +\d+% +[\d.]+ .iB +50% +2 GiB of 80 GiB$", text, re.MULTILINE), text
    Path("go").touch()
    assert call("wait", "fm").returncode == 0
    ended = call("top", "fm").stdout
    assert ended.startswith("fm: succeeded\n")
    assert "%" not in ended


def test_who_looks_leaves_nothing_behind(home: Path, call: Call, stay: str) -> None:
    assert call("run", "-d", "--name", "fm", stay).returncode == 0
    wait_for("runs/fm/pid-0")
    wait_until(lambda: sampled(call, "fm"), "a sample")
    folder = home / "runs" / "fm"
    before = {path.name: path.stat().st_size for path in folder.iterdir()}
    for _ in range(3):
        assert call("top", "fm").returncode == 0
    after = {path.name: path.stat().st_size for path in folder.iterdir() if not path.name.endswith(".tmp")}
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed <= {"samples.json"}, "samples are not events, and no output"
    Path("go").touch()
    assert call("wait", "fm").returncode == 0
    assert not (folder / "samples.json").exists()


def test_a_queued_run_has_no_workers_yet(gpus: StandIn, call: Call, stay: str) -> None:
    gpus.show(1)
    assert call("run", "-d", "--name", "first", "--gpus", "1", "--procs", "1", stay).returncode == 0
    wait_for("runs/first/pid-0")
    assert call("run", "-d", "--name", "second", "--gpus", "1", "--procs", "1", stay).returncode == 0
    assert call("top", "second").stdout == "second: queued\nits workers are not known yet\n"
    assert call("top", "third").returncode == 111
    Path("go").touch()
    assert call("wait", "second").returncode == 0


def test_live_until_the_run_ends(terminal: Callable[..., Terminal], call: Call, stay: str) -> None:
    assert call("run", "-d", "--name", "fm", stay).returncode == 0
    wait_for("runs/fm/pid-0")
    screen = terminal("top", "fm")
    screen.expect("running")
    screen.expect(r"\d+% +[\d.]+ .iB")
    Path("go").touch()
    screen.expect("succeeded")
    assert screen.end() == 0
