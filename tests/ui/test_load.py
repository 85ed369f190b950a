"""The dashboard under load, in a real browser: 200 runs, and one of 64 ranks with a million stored lines that
prints 10,000 more a second. How long answers take is told by `bench/ui.py`; here is what holds however long.

The one run is real. The others are copies of the folder of one that ended (`bench/measure/dashboard.py`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.measure import dashboard
from bench.measure.dashboard import NAME, OVER, RANKS, STORED
from tests.conftest import PATIENCE, wait_until
from tests.ui.chromium import the_chromium

import echelon

Call = Callable[..., subprocess.CompletedProcess[str]]
LINE = re.compile(r"rank (\d+) line (\d+) of many|rank (\d+) wrote (\d+)")
MOST_MEMORY = 150  # MB, without the files that the server maps
MOST_ELEMENTS = 6000  # the list of 200 runs has the most; a page of a run has 200 lines


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_two_hundred_runs_and_a_million_lines(cli: Call, home: Path, tmp_path: Path) -> None:
    chromium = the_chromium()
    dashboard.start_flood(Path.cwd(), os.environ, home)
    said = tmp_path / "said"
    server, address = dashboard.start_dashboard(Path.cwd(), os.environ)
    visitor = dashboard.start_visitor(chromium, address, 1, said)
    held: list[float] = []

    def has_said(word: str) -> bool:
        held.append(dashboard.anonymous_memory_of(server.pid))
        return word in said.read_text() or visitor.poll() is not None

    try:
        wait_until(lambda: has_said("full"), "all stored lines to be shown", patience=240.0)
        wait_until(lambda: has_said("done"), "the visit", patience=240.0)
        Path(OVER).touch()
        assert cli("wait", NAME, patience=120.0).returncode == 0
        numbers = stored_lines()
        lines = 1 + sum(map(len, numbers)) + RANKS  # with the first of rank 0, and the last of each
        dashboard.tell(visitor, str(lines))
        wait_until(lambda: has_said("took"), "all lines to be shown", patience=120.0)
        assert visitor.wait(PATIENCE) == 0, said.read_text()
    finally:
        Path(OVER).touch()
        dashboard.end(visitor, server)
    found = json.loads(said.read_text().splitlines()[-1])
    assert all(each == list(range(len(each))) for each in numbers)  # nothing is lost, nothing is there twice
    assert lines > STORED
    assert found["elements"] < MOST_ELEMENTS
    assert max(held) < MOST_MEMORY


def stored_lines() -> list[list[int]]:
    """The numbers of the lines of each rank, as they are stored; a rank says in the end how many it wrote."""
    numbers: list[list[int]] = [[] for _ in range(RANKS)]
    wrote = {}
    for line in echelon.attach(NAME).logs():
        if (found := LINE.search(line.text)) is None:
            continue
        if found[1]:
            assert line.rank == int(found[1])
            numbers[int(found[1])].append(int(found[2]))
        else:
            wrote[int(found[3])] = int(found[4])
    assert wrote == {rank: len(each) for rank, each in enumerate(numbers)}
    return numbers
