"""Rounds of measurements in a folder of their own, from which nothing is left: no file, no process.

Every benchmark works inside `workspace`, and takes its samples with `take_turns`, so that whatever else the
machine does meets us and our peers alike.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 120.0  # seconds for any one command: a benchmark that hangs must end too
_LEAVING_TIME = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """A temporary folder, and the environment of everything that is started in it."""

    path: Path
    environment: Mapping[str, str]


@contextlib.contextmanager
def workspace() -> Iterator[Workspace]:
    """Make a folder that holds echelon's state too; what still runs in the end is ended, and said."""
    with tempfile.TemporaryDirectory(prefix="echelon-bench-") as name:
        environment = {
            key: text for key, text in os.environ.items() if not key.startswith(("ECHELON_", "PYTHON"))
        }
        scratch = Path(name) / "tmp"  # what a peer or an agent forgets there goes with the rest
        scratch.mkdir()
        environment.update(ECHELON_HOME=str(Path(name) / "home"), TMPDIR=str(scratch))
        try:
            yield Workspace(path=Path(name), environment=environment)
        finally:
            end_leftovers(environment["ECHELON_HOME"])


def program(name: str) -> str:
    """A program of the environment that this Python belongs to."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        sys.exit(f"there is no {path}; `make bench` sets up what the benchmarks need")
    return str(path)


def run(place: Workspace, command: Sequence[str]) -> bytes:
    """Run a command to its good end, and return what it printed."""
    done = subprocess.run(
        command,
        cwd=place.path,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    if done.returncode:
        words = done.stderr.decode(errors="backslashreplace")
        sys.exit(f"{' '.join(command)} ended with code {done.returncode}:\n{words}")
    return done.stdout


def seconds_of(place: Workspace, command: Sequence[str]) -> float:
    """How long a command takes from its start to its end."""
    started = time.perf_counter()
    run(place, command)
    return time.perf_counter() - started


def take_turns(rounds: int, contenders: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Measure each in turn, `rounds` times. A first round, to warm up, does not count."""
    samples: dict[str, list[T]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, measure in contenders.items():
            sample = measure()
            if number:
                samples[name].append(sample)
    return samples


def end_leftovers(home: str) -> None:
    """End every process that carries our own ECHELON_HOME, which is nobody else's; there should be none."""
    mark = f"ECHELON_HOME={home}".encode()
    deadline = time.monotonic() + _LEAVING_TIME
    while left := _marked(mark):
        if time.monotonic() > deadline:
            print(f"left behind, and killed: {len(left)} processes ({left})", file=sys.stderr)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)


def _marked(mark: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone in the meantime, or somebody else's
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
