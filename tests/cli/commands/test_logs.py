"""`echelon logs`: which lines, in which order, and how they look."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Background
from tests.conftest import wait_until

Call = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]
TALK = """
    import os, sys, time
    rank = int(os.environ["ECHELON_RANK"])
    for number in range(3):
        print(f"line {number} of rank {rank}", flush=True)
        time.sleep(0.02)
    print("an error", file=sys.stderr, flush=True)
"""


@pytest.fixture
def talked(call: Call, write: Write) -> str:
    """A run of two workers with two ranks each that has ended."""
    write("talk.py", TALK)
    assert call("run", "-n", "2", "--procs", "2", "--name", "talked", "talk.py").returncode == 0
    return "talked"


def test_logs_of_one_rank_or_worker(call: Call, talked: str) -> None:
    def ranks(*words: str) -> list[str]:
        done = call("logs", talked, *words)
        assert done.returncode == 0
        return sorted({line.split()[0] for line in done.stdout.splitlines()})

    assert ranks() == ["[0]", "[1]", "[2]", "[3]"]
    assert ranks("--rank", "2") == ["[2]"]
    assert ranks("--worker", "1") == ["[2]", "[3]"]
    assert ranks("--worker", "0", "--rank", "2") == []
    assert call("logs", talked, "--rank", "3").stdout.splitlines() == [
        f"[3] line {n} of rank 3" for n in range(3)
    ]
    assert call("logs", talked, "--rank", "3").stderr == "[3] an error\n"


def test_the_last_lines(call: Call, talked: str) -> None:
    everything = [json.loads(line) for line in call("logs", talked, "-o", "json").stdout.splitlines()]
    assert len(everything) == 16
    assert [line["at"] for line in everything] == sorted(line["at"] for line in everything)
    for words in ([], ["-f"]):  # of a run that has ended, following adds nothing
        last = [
            json.loads(line)
            for line in call("logs", talked, "--tail", "3", "-o", "json", *words).stdout.splitlines()
        ]
        assert last == everything[-3:]
        assert call("logs", talked, "--tail", "0", *words).stdout == ""
        assert (
            len(call("logs", talked, "--tail", str(10**22), "-o", "json", *words).stdout.splitlines()) == 16
        )
    of_rank = [line for line in everything if line["rank"] == 1]
    last = [
        json.loads(line)
        for line in call("logs", talked, "--tail", "2", "--rank", "1", "-o", "json").stdout.splitlines()
    ]
    assert last == of_rank[-2:]


def test_logs_since_and_with_times(call: Call, talked: str) -> None:
    stamped = call("logs", talked, "--timestamps", "--rank", "0").stdout.splitlines()
    assert [re.sub(r"^\d\d:\d\d:\d\d\.\d\d\d ", "", line) for line in stamped] == [
        f"[0] line {n} of rank 0" for n in range(3)
    ]
    assert stamped == sorted(stamped)
    last = json.loads(call("logs", talked, "-o", "json").stdout.splitlines()[-1])["at"]
    wait_until(lambda: time.time() > last + 2, "the lines to grow old")
    assert call("logs", talked, "--since", "1s").stdout == ""
    assert len(call("logs", talked, "--since", "1h").stdout.splitlines()) == 12


def test_following_from_another_process(
    call: Call, background: Callable[..., Background], write: Write
) -> None:
    write(
        "slow.py",
        """
        import pathlib, time
        for word in ("one", "two"):
            print(word, flush=True)
            while not pathlib.Path(word).exists():
                time.sleep(0.02)
        print("three")
        """,
    )
    assert call("run", "-d", "--name", "fm", "slow.py").returncode == 0
    followers = [background("logs", "-f", "fm"), background("logs", "-f", "fm", "--tail", "1")]
    wait_until(lambda: all("one\n" in each.out for each in followers), "the first line")
    Path("one").touch()
    wait_until(lambda: all("two\n" in each.out for each in followers), "the second line")
    Path("two").touch()
    assert [each.end() for each in followers] == [0, 0]
    assert [each.out for each in followers] == ["one\ntwo\nthree\n"] * 2
