"""What earlier test runs have left is ended; nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from testbed.processes import MARK as TESTBED
from testbed.processes import start_time

from tests.conftest import PATIENCE
from tests.leftovers import VARIABLE, Process, end_leftovers, left_over, mark_this_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
OWNER = Process(pid=10, start_time="1")


def process(pid: int, mark: str = OWNER.mark, **more: str) -> Process:
    return Process(pid=pid, start_time="200", environment={VARIABLE: mark, **more})


def test_what_has_no_owner_any_more_is_left_over() -> None:
    orphan = process(11)
    assert left_over([orphan]) == [orphan]
    assert left_over([orphan, OWNER]) == []


def test_a_later_process_with_the_owners_pid_is_not_the_owner() -> None:
    orphan = process(11)
    assert left_over([orphan, Process(pid=10, start_time="150")]) == [orphan]


@pytest.mark.parametrize(
    "other",
    [
        Process(pid=11, start_time="200"),
        process(11, **{TESTBED: "/var/lib/somewhere/"}),
        process(11, mark=""),
        process(11, mark="mine"),
        process(11, mark="10"),
        process(11, mark="10-1-1"),
    ],
)
def test_what_is_left_alone(other: Process) -> None:
    assert left_over([other]) == []


@pytest.fixture
def sleeper() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """`sleeper(mark)`: a process that carries this mark, and is ended."""
    made = []

    def start(mark: str) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(["sleep", "600"], env={**os.environ, VARIABLE: mark}))
        return made[-1]

    yield start
    for each in made:
        with suppress(ProcessLookupError):
            each.kill()
        each.wait()


def test_real_processes(sleeper: Callable[[str], subprocess.Popen[bytes]]) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        mark = f"{owner.pid}-{start_time(owner.pid)}"
        of_it = sleeper(mark)
        of_this_run = sleeper(os.environ[VARIABLE])
        assert of_it.pid not in end_leftovers()
        owner.kill()
    assert of_this_run.pid not in end_leftovers()
    assert of_it.wait(PATIENCE) == -9
    assert of_this_run.poll() is None


def test_a_test_run_marks_what_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = f"{os.getpid()}-{start_time(os.getpid())}"
    for nobody in ("", "mine", OWNER.mark):
        monkeypatch.setenv(VARIABLE, nobody)
        mark_this_run()
        assert os.environ[VARIABLE] == mine


def test_a_test_run_inside_another_has_the_others_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = f"{os.getppid()}-{start_time(os.getppid())}"
    monkeypatch.setenv(VARIABLE, outer)
    mark_this_run()
    assert os.environ[VARIABLE] == outer
