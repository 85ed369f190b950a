"""A run of a week: its events do not have to fit into memory, and `ps` does not read those of ended runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import PATIENCE

Call = Callable[..., subprocess.CompletedProcess[str]]
# Its own memory at the most, in KiB, is the last line that a command writes.
MEASURED = (
    "import pathlib, re, sys\n"
    "from echelon.cli import main\n"
    "code = main.call(sys.argv[1:])\n"
    "told = pathlib.Path('/proc/self/status').read_text()\n"
    "print(re.search(r'VmHWM:\\s+(\\d+)', told)[1], file=sys.stderr)\n"
    "sys.exit(code)\n"
)
LIMIT = 80 * 1024  # KiB; the same commands take 25 MiB for a run of ten events


def events(count: int) -> list[str]:
    """What two workers tell that fail and are restarted, again and again."""
    cause = {"summary": "rank 1 failed", "kind": "rank", "worker": 1, "rank": 1, "tail": ["line"] * 5}
    told: list[dict[str, object]] = []
    while len(told) < count:
        restart = len(told) // 6
        told += [
            {"kind": "worker-running", "worker": 0, "restart": restart, "pids": {"0": 7}},
            {"kind": "worker-running", "worker": 1, "restart": restart, "pids": {"1": 8}},
            {"kind": "rank-ended", "worker": 1, "rank": 1, "exit_code": 1, "reason": "it failed"},
            {"kind": "rank-ended", "worker": 0, "rank": 0, "signal": "SIGTERM"},
            {"kind": "failed", "cause": cause},
            {"kind": "restarting", "restart": restart + 1, "cause": cause},
        ]
    return [json.dumps({**each, "at": 1e9}) for each in told]


@pytest.mark.parametrize("count", [60_000, pytest.param(600_000, marks=pytest.mark.soak)])
def test_memory_is_bounded(call: Call, home: Path, count: int) -> None:
    assert call("run", "-n", "2", "--name", "week", "--", "true").returncode == 0
    file = home / "runs" / "week" / "events.jsonl"
    first, *rest = file.read_text().splitlines()
    more = events(count)
    file.write_text("\n".join([first, *more, *rest]) + "\n")
    for words in (
        ["status", "week", "-o", "json"],
        ["ps", "-a"],
        ["wait", "week"],
        ["logs", "week"],
        ["events", "week", "-o", "json"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE * 6,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stderr.split()[-1]) < LIMIT, words
        if words[0] == "status":
            told = json.loads(done.stdout)
            assert (told["state"], told["restarts"]) == ("succeeded", len(more) // 6)


def test_the_events_of_a_run_that_has_ended_are_not_listed_one_by_one(call: Call, home: Path) -> None:
    """All but the first, which tells that the file is there, could be missing."""
    assert call("run", "--name", "fm", "--", "true").returncode == 0
    file = home / "runs" / "fm" / "events.jsonl"
    first = file.read_bytes().splitlines(keepends=True)[0]
    file.write_bytes(first)
    os.truncate(file, 10**12)  # a hole, which would take minutes to read
    assert json.loads(call("ps", "-a", "-o", "json").stdout)[0]["state"] == "succeeded"
