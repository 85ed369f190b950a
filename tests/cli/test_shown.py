"""What `run` prints of its ranks, and in which order with its own messages."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.terminal import Terminal
from tests.conftest import PATIENCE

from echelon.cli.printing.recent import Recent

Call = Callable[..., subprocess.CompletedProcess[str]]
Open = Callable[..., Terminal]
Write = Callable[..., Path]
FAIL = """
    import os, sys
    rank, restart = os.environ["ECHELON_RANK"], os.environ["ECHELON_RESTART"]
    print("rank", rank, "begins", flush=True)
    if rank == "1":
        raise ValueError("the same every time")
    import time
    time.sleep(600)
"""


def test_only_some_ranks_are_shown_and_all_are_kept(cli: Call, write: Write) -> None:
    write("hello.py", "import os\nprint('hello from', os.environ['ECHELON_RANK'])\n")
    done = cli("run", "-n", "4", "--show-rank", "0", "--show-rank", "2", "--name", "fm", "hello.py")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["[0] hello from 0", "[2] hello from 2"]
    assert Path("runs/fm/logs/rank-1.log").read_text() == "hello from 1\n"
    assert "[3] hello from 3" in cli("logs", "fm").stdout


def test_a_rank_that_there_is_not_is_refused_before_the_start(call: Call, write: Write) -> None:
    write("hello.py", "print('hello')")
    done = call("run", "-n", "2", "--show-rank", "2", "--name", "fm", "hello.py")
    assert done.returncode == 110
    assert "show-rank: 2 is not a rank of this run\n  hint: they are numbered 0 to 1" in done.stderr
    assert not Path("runs").exists()


def test_an_error_is_not_printed_three_times(cli: Call, write: Write) -> None:
    write("fail.py", FAIL)
    done = cli("run", "-n", "2", "--name", "fm", "fail.py")
    assert done.returncode == 1
    assert done.stderr.count("ValueError: the same every time") == 2  # by the rank, and as the reason
    assert "its last lines" not in done.stderr
    assert "first to fail: rank 1" in done.stderr


def test_what_was_not_shown_is_in_the_report(cli: Call, write: Write) -> None:
    write("fail.py", FAIL)
    done = cli("run", "-n", "2", "--show-rank", "0", "--name", "fm", "fail.py")
    assert done.returncode == 1
    assert "[1]" not in done.stdout + done.stderr
    assert "its last lines:\n" in done.stderr
    assert "    ValueError: the same every time\n" in done.stderr


def test_a_restart_is_told_after_the_output_that_it_is_about(cli: Call, write: Write) -> None:
    write("fail.py", FAIL)
    done = cli("run", "-n", "2", "--restarts", "3", "--name", "fm", "fail.py")
    assert done.returncode == 1
    told = [
        line.partition(":")[0]
        for line in done.stderr.splitlines()
        if line.startswith(("[1] ValueError", "echelon: restart"))
    ]
    check_order(told, "[1] ValueError", restarts=3)


def check_order(told: list[str], failed: str, restarts: int) -> None:
    """No restart is told before the failure that it is about. A rank may fail again before it is told."""
    assert sorted(told) == sorted([failed] * (restarts + 1) + ["echelon"] * restarts)
    for end in range(len(told) + 1):
        assert told[:end].count("echelon") <= told[:end].count(failed), told


def test_the_same_at_a_terminal_of_its_own(terminal: Open, write: Write) -> None:
    write("fail.py", "raise ValueError('the same every time')")
    screen = terminal("run", "--restarts", "2", "--name", "fm", "fail.py", environment={"NO_COLOR": "1"})
    assert screen.end() == 1
    told = [
        line[:7] for line in screen.shown.splitlines() if line.startswith(("ValueError", "echelon: restart"))
    ]
    check_order(told, "ValueEr", restarts=2)


def test_lines_are_in_sight_until_others_have_come() -> None:
    recent = Recent()
    recent.note(1, "[1] \x1b[31mit\x1b[0m broke\r\n")
    assert recent.in_sight(1, "it broke")
    assert not recent.in_sight(0, "it broke")
    assert not recent.in_sight(1, " ")
    recent.note(0, "[0] a line\n" * 41)
    assert not recent.in_sight(1, "it broke")
    recent.note(2, "[2] it broke\n", seen=False)
    assert not recent.in_sight(2, "it broke")


@pytest.mark.parametrize("pieces", [["it broke\n"], ["it ", "broke", "\n"]])
def test_a_line_is_waited_for_once(pieces: list[str]) -> None:
    recent = Recent()
    recent.note(1, "it broke\n")
    recent.wait_for(1, "it broke", PATIENCE)
    waiting = threading.Thread(target=recent.wait_for, args=(1, "it broke", PATIENCE))
    waiting.start()
    assert waiting.is_alive()
    for piece in pieces:
        recent.note(1, piece)
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
