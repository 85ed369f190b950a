"""Ranks of PyTorch that wait for each other in pods of a real cluster: the one that the others wait for is
named, also below a shell. Where the image's torch has no flight recorder for Gloo, before 2.8, stacks tell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.faults.kubernetes.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HANG = Path(__file__).parents[2] / "agent" / "gang" / "hangs" / "hang.py"
SIX = r"all_reduce 6 \(\[64, 64\] float32\)"
NEVER = rf"rank {{odd}} (?:never called {SIX}|is in {{place}} \(hang.py:\d+\)); rank"
# What the cause says of each way, by recorders or by stacks, with {odd}.
WAYS = {
    "asleep": NEVER.replace("{place}", "wait_long"),
    "computes": NEVER.replace("{place}", "compute"),
    "reads": NEVER.replace("{place}", "(?:load_batch|open)"),
    "stopped": rf"rank {{odd}} is stopped \(SIGSTOP\)(?: before {SIX})?; rank",
    "start": r"rank {odd} is in wait_long \(hang.py:\d+\); rank",
    "order": rf"rank {{odd}} (?:called broadcast 6 .*called {SIX}|is in broadcast \(hang.py:\d+\))",
    "groups": r"deadlock of process groups: rank 0 .* rank {odd} |ranks 0, {odd} are in all_reduce",
    "exits": r"rank {odd} exited 0 after \d+ s, and then rank \d+ exited with code 1: ",
}
# A shell that stays the parent of the rank's Python. The pipe is one that nobody writes to.
SHELL = 'mkfifo "$PART"; python3 hang.py "$0"; exit $?'
ROUNDS = 10


def _cases() -> list[object]:
    """Each way once, the half of them below a shell; for soak all of them both ways, ten times."""
    cases: list[object] = []
    for number, way in enumerate(WAYS):
        cases.append(pytest.param(way, 2, number % 2 == 0, id=way))
        for turn in range(ROUNDS):
            for below in (True, False) if way != "reads" else (True,):  # the shell makes what it reads
                name = f"{way}-{2 + 2 * (turn % 2)}-{'below' if below else 'itself'}-{turn}"
                cases.append(pytest.param(way, 2 + 2 * (turn % 2), below, id=name, marks=pytest.mark.soak))
    return cases


@pytest.mark.parametrize(("way", "ranks", "below"), _cases())
def test_the_rank_that_the_others_wait_for_is_named(
    terminal: Terminal, image: Callable[[str], str], way: str, ranks: int, below: bool
) -> None:
    """Of two pods, with one or two ranks each."""
    terminal = replace(terminal, image=image("torch"))
    terminal.write("hang.py", HANG.read_text())
    words = ("-n", "2", "--procs", str(ranks // 2), "--framework", "torch", "--grace", "2s", "--stall", "12s")
    part = ("--env", "PART=/tmp/part-17", "--env", "OMP_NUM_THREADS=1")
    program = ("--", "sh", "-c", SHELL, way) if below else ("hang.py", way)
    command = terminal.train("hangs", *words, *part, *program)
    assert command.wait() != 0, command
    cause = terminal.status("hangs")["root_cause"]
    assert cause["kind"] == ("rank" if way == "exits" else "stuck"), json.dumps(cause)
    odd = ranks - 1
    expected = WAYS[way].replace("{odd}", str(odd))
    if (way, ranks) == (
        "groups",
        4,
    ):  # by stacks the two that wait stand at other lines than those that sleep
        expected += rf"|rank[s]? .*{odd} .*in all_reduce"
    assert re.search(expected, cause["summary"]), json.dumps(cause)
