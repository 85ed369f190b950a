"""What killed test runs have left behind: runs that were started to go on by themselves, and do so for ever.

Every process of a test run carries its mark, which names the process that owns the run. What carries the
mark of an owner that is gone is ended when the next test run starts. The testbed's daemons carry it too, and
are left alone: a test run takes them over or ends them by itself. Linux only: elsewhere another process's
environment cannot be read.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed.processes import MARK as TESTBED
from testbed.processes import start_time

VARIABLE = "ECHELON_TEST_RUN"
_MARK = re.compile(r"[0-9]+-[0-9]+")
_PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process; its start time tells it from another one that gets its pid later."""

    pid: int
    start_time: str
    environment: Mapping[str, str] = field(default_factory=dict)  # empty where it is not ours to read

    @property
    def mark(self) -> str:
        """What the processes of a test run carry that this process owns."""
        return f"{self.pid}-{self.start_time}"


def left_over(processes: Iterable[Process]) -> list[Process]:
    """Of all processes, those of test runs whose owner is gone."""
    everything = list(processes)
    living = {each.mark for each in everything}

    def is_left(each: Process) -> bool:
        owner = each.environment.get(VARIABLE, "")
        return bool(_MARK.fullmatch(owner)) and owner not in living and TESTBED not in each.environment

    return [each for each in everything if is_left(each)]


def mark_this_run() -> None:
    """Have all that this process starts carry its mark, unless it is part of a test run itself."""
    owner, _, since = os.environ.get(VARIABLE, "").partition("-")
    is_part = owner.isdigit() and start_time(int(owner)) == since != ""
    if sys.platform == "linux" and not is_part:
        os.environ[VARIABLE] = Process(pid=os.getpid(), start_time=start_time(os.getpid())).mark


def end_leftovers() -> list[int]:
    """End what earlier test runs have left; their pids."""
    if sys.platform != "linux":
        return []
    found = left_over(_all_processes())
    # Looked at again: an owner that started meanwhile may be missing among the first, and a pid used again.
    still = left_over(_all_processes()) if found else []
    ended = [each.pid for each in found if each in still and each.pid != os.getpid()]
    for pid in ended:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return ended


def _all_processes() -> Iterator[Process]:
    ours = _namespace("self")
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (since := start_time(int(entry.name))):
            # In a container pids mean other processes: what a mark says there cannot be judged from here.
            environment = _environment(entry) if _namespace(entry.name) == ours else {}
            yield Process(pid=int(entry.name), start_time=since, environment=environment)


def _namespace(name: str) -> str:
    try:
        return str((_PROC / name / "ns" / "pid").readlink())
    except OSError:
        return ""


def _environment(entry: Path) -> dict[str, str]:
    """The two variables that matter here."""
    try:
        words = (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(word).partition("=") for word in words)
    return {name: value for name, _, value in pairs if name in (VARIABLE, TESTBED)}
