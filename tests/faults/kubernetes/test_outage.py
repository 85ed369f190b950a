"""The API server goes away for a while as a run is followed: not a line is lost or repeated, the outage is
told, and the run ends as it would have.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections.abc import Callable

import pytest
from tests.faults.kubernetes.terminal import Terminal, flag_path
from tests.faults.kubernetes.test_results import stopped

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

Outage = tuple[Callable[[], None], Callable[[], None]]
AWAY = 15.0
# The test lets it go on just before the API server goes away: what is left takes 20 s, on any machine.
COUNTS = f"""
import os, time
rank = os.environ["ECHELON_RANK"]
for number in range(600):
    print(f"line {{number}} of {{rank}}", flush=True)
    while number == 200 and not os.path.exists("{flag_path("go")}"):
        time.sleep(0.05)
    time.sleep(0.05)
"""
WRITES = """
import hashlib, os, random
chance = random.Random(7)
folder = os.environ["ECHELON_OUTPUT"]
for number in range(int(os.environ["FILES"])):
    with open(f"{folder}/part-{number}", "wb") as file:
        for _ in range(40):
            file.write(chance.randbytes(1 << 20))
"""


def test_while_two_follow(terminal: Terminal, api_outage: Outage) -> None:
    """One in the foreground, one with `logs -f`, and a run that ends while nobody can see it."""
    stop, start = api_outage
    terminal.write("counts.py", COUNTS)
    foreground = terminal.train("counts", "-n", "2", "counts.py")
    foreground.wait_for("line 100 of", 2)
    beside = terminal.start("logs", "-f", "counts")
    beside.wait_for("line 200 of", 2)
    for pod in terminal.pods("counts"):
        terminal.raise_flag(pod["metadata"]["name"], "go")
    stop()
    time.sleep(AWAY)
    start()
    assert foreground.wait() == 0, foreground
    assert beside.wait() == 0, beside
    for command in (foreground, beside):
        for rank in range(2):
            mine = [line for line in command.lines if line.startswith(f"[{rank}] ")]
            assert mine == [f"[{rank}] line {number} of {rank}" for number in range(600)]
    assert "the cluster does not respond" in foreground.said, foreground
    status = terminal.status("counts")
    assert (status["state"], status["restarts"]) == ("succeeded", 0)
    terminal.check_removal("counts")


@pytest.mark.parametrize("files", [6, pytest.param(50, marks=pytest.mark.soak)])
def test_while_results_are_fetched(terminal: Terminal, api_outage: Outage, files: int) -> None:
    """240 MB (2 GB): complete, by checksum."""
    stop, start = api_outage
    terminal.write("writes.py", WRITES)
    command = terminal.train("large", "--env", f"FILES={files}", "writes.py")
    home = terminal.folder / "runs" / "large"

    def arrived() -> int:
        total = 0
        for path in home.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # it has just got its name
                total += path.stat().st_size
        return total

    while arrived() < 20 << 20:
        assert command.process.poll() is None, command
        time.sleep(0.02)
    with stopped(command):  # it must not be faster than the outage
        assert arrived() < files * 40 << 20, command
        stop()
    time.sleep(5)
    start()
    assert command.wait(600) == 0, command
    chance = random.Random(7)
    for number in range(files):
        expected, found = hashlib.sha256(), hashlib.sha256()
        for _ in range(40):
            expected.update(chance.randbytes(1 << 20))
        with (home / f"part-{number}").open("rb") as file:
            while piece := file.read(1 << 20):
                found.update(piece)
        assert found.digest() == expected.digest(), number
    names = {path.name for path in home.glob("[!.]*")}
    assert names == {"logs", *(f"part-{number}" for number in range(files))}
    terminal.check_removal("large")
