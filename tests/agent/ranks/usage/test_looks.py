"""What processes use, seen in /proc: of real ones."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import wait_until

from echelon.agent.ranks.usage.looks import Looks, Tree

BURN = "while True: pass"
GROW = "held = bytearray(64 << 20)\nimport time\ntime.sleep(1000)"
FAMILY = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])"


def test_each_rank_has_what_its_processes_use() -> None:
    looks = Looks(os.getpid())
    programs = [BURN, GROW, FAMILY]
    ranks = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    numbers = {process.pid: number for number, process in enumerate(ranks)}
    try:

        def seen() -> dict[int | None, Tree]:
            return looks.look(numbers)

        wait_until(lambda: seen()[2].processes == 2, "the child of rank 2")
        wait_until(lambda: seen()[1].resident > 64 << 20, "the memory of rank 1")
        before = seen()
        wait_until(lambda: seen()[0].seconds >= before[0].seconds + 0.1, "rank 0 to compute")
        wait_until(lambda: seen()[2].seconds >= before[2].seconds + 0.1, "the child of rank 2 to compute")
        assert seen()[1].seconds < 60
        assert 0 not in looks.look(numbers, frozenset({ranks[0].pid})), "left out"
        below_none = looks.look({ranks[0].pid: 0})[None]
        assert below_none.processes >= 3, "what no rank has started is told apart"
    finally:
        for process in reversed(ranks):
            for pid in [process.pid, *children(process.pid)]:
                os.kill(pid, 9)
            process.wait()


def children(pid: int) -> list[int]:
    from echelon.agent.ranks.processes import descendants

    return descendants(pid)


def test_shared_memory_counts_once() -> None:
    tree = Tree()
    tree.memory, tree.shared = 10, 5
    assert tree.resident == 15
