"""A hundred megabytes of output, while the kubelet turns the log over again and again: followed, every line
comes once and in order, or its place says exactly how many are missing; at home all of them are."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TALKS = """
import sys
count, width = map(int, sys.argv[1:])
padding = "x" * (width - 11)
for number in range(count):
    print(f"{number:09d} {padding}")
"""
GAP = re.compile(r"^(?:\[agent 0\] )?\[(\d+) lines? (?:is|are) missing here", re.MULTILINE)


@pytest.mark.parametrize(
    ("megabytes", "width"),
    [
        (100, 1000),
        pytest.param(100, 100, marks=pytest.mark.soak),
        pytest.param(1000, 1000, marks=pytest.mark.soak),
    ],
)
def test_a_flood(terminal: Terminal, megabytes: int, width: int) -> None:
    count = megabytes * 1_000_000 // width
    terminal.write("talks.py", TALKS)
    command = terminal.train("flood", "talks.py", str(count), str(width))
    assert command.wait(600) == 0, command.said
    assert terminal.status("flood")["state"] == "succeeded"
    check_complete(command.lines, count)
    written = terminal.read("flood", "logs/rank-0.log").splitlines()
    assert len(written) == count
    assert [int(line[:9]) for line in written] == list(range(count))
    later = terminal.call("logs", "flood", patience=300)
    assert later.returncode == 0
    assert later.stdout.splitlines() == written  # what the cluster has thrown away is at home
    assert terminal.call("logs", "flood", "--tail", "3").stdout.splitlines() == written[-3:]
    shutil.rmtree(terminal.folder / "runs" / "flood")
    torn = terminal.call("logs", "flood", "--rank", "0", patience=300)
    check_complete(torn.stdout.splitlines(), count)
    assert GAP.search(torn.stdout)
    terminal.check_removal("flood")


def test_who_reads_slowly_loses_no_results(terminal: Terminal) -> None:
    """Results come home while the output stands in a pager: who fetches does not wait for who reads."""
    terminal.write("talks.py", TALKS)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pager, os.fdopen(writing, "wb") as reader:
        command = terminal.train("paged", "--keep", "2m", "talks.py", "20000", "100", reader=reader)
        wait_until((terminal.folder / "runs/paged/logs/rank-0.log").exists, "the results", 120)
        assert command.process.poll() is None
        lines = pager.read().decode().splitlines()
    assert command.wait() == 0, command
    check_complete(lines, 20000)
    terminal.check_removal("paged")


def test_who_reads_slowly_keeps_no_line_from_the_disk(terminal: Terminal) -> None:
    """The pod is deleted while the output stands in a pager: all that it wrote is at home."""
    terminal.write("talks.py", TALKS + "import sys, time\nsys.stdout.flush()\ntime.sleep(3600)\n")
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pager, os.fdopen(writing, "wb") as reader:
        command = terminal.train("lost", "talks.py", "50000", "100", reader=reader)
        saved = terminal.folder / "runs/lost/logs/rank-0.log"
        wait_until(lambda: saved.exists() and saved.stat().st_size == 50000 * 100, "every line", 120)
        terminal.kubectl("delete", "pod", "-l", "echelon.dev/run=lost", "--wait=false")
        lines = pager.read().decode().splitlines()
    assert command.wait() == 117, command
    check_complete(lines, 50000)
    check_complete(terminal.call("logs", "lost").stdout.splitlines(), 50000)
    terminal.check_removal("lost")


def check_complete(lines: list[str], count: int) -> None:
    """Numbers go up by one, but where a gap says by how many more."""
    expected = 0
    for line in lines:
        if found := GAP.match(line):
            expected += int(found[1])
        else:
            assert int(line[:9]) == expected, line
            expected += 1
    assert expected == count
