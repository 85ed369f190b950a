"""The testbed's daemons: started in sessions of their own, and ended by what was recorded of them.

A process is identified by its pid and its start time together, written to the state folder, so that a reused
pid is never touched. What the daemons start in turn (containerd's shims) inherits a mark in its environment,
so that nothing of the cluster outlives `down`, even without a record.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.paths import LOGS, PROCESSES, STATE, write
from testbed.patience import FACTOR

MARK = "ECHELON_TESTBED"
GRACE = 5.0
# A process that was killed ends, on a busy machine late: until then it counts as alive, and is not restarted.
KILLED = 60.0 * FACTOR


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One daemon: what identifies it, and what is needed to restart it."""

    name: str
    pid: int
    start_time: str
    command: list[str]
    environment: dict[str, str]


def start(
    name: str, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, part: str = ""
) -> Record:
    """Start a daemon in a session of its own; `part` is the node that it belongs to, for `sweep`."""
    words = [str(word) for word in command]
    extra = {**(environment or {}), MARK: f"{STATE}/{part}"}
    LOGS.mkdir(parents=True, exist_ok=True)
    pid = os.posix_spawn(
        words[0],
        words,
        os.environ | extra,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (
                os.POSIX_SPAWN_OPEN,
                1,
                str(LOGS / f"{name}.log"),
                os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                0o644,
            ),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        # A test runner may ignore or block signals that end a daemon.
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
        setsigmask=[],
    )
    record = Record(name=name, pid=pid, start_time=start_time(pid), command=words, environment=extra)
    write(PROCESSES / f"{name}.json", json.dumps(asdict(record)))
    return record


def restart(name: str) -> Record | None:
    """Start a daemon again exactly as it was started, if it does not run."""
    record = read(name)
    if record is None or is_alive(record):
        return record
    return start(
        name, record.command, environment=record.environment, part=record.environment[MARK].rpartition("/")[2]
    )


def read(name: str) -> Record | None:
    """What was recorded of a daemon."""
    try:
        return Record(**json.loads((PROCESSES / f"{name}.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def recorded() -> list[Record]:
    """Every daemon with a record."""
    names = sorted(path.stem for path in PROCESSES.glob("*.json"))
    return [record for name in names if (record := read(name))]


def is_alive(record: Record) -> bool:
    """Whether that very process still runs."""
    with suppress(ChildProcessError):
        os.waitpid(record.pid, os.WNOHANG)
    return start_time(record.pid) == record.start_time != ""


def stop(names: Iterable[str], *, now: bool = False, forget: bool = True) -> None:
    """End daemons, all at once: SIGTERM first, then SIGKILL."""
    records = [record for name in names if (record := read(name))]
    if not now:
        _signal(records, signal.SIGTERM)
        _wait(records, GRACE)
    _signal(records, signal.SIGKILL)
    _wait(records, KILLED)
    if forget:
        for record in records:
            (PROCESSES / f"{record.name}.json").unlink(missing_ok=True)


def sweep(part: str = "") -> None:
    """Kill every process with the mark of the cluster, or of one part of it, also without a record."""
    mark = f"{MARK}={STATE}/{part}".encode()
    deadline = time.monotonic() + GRACE
    while (pids := _marked(mark, whole=bool(part))) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def start_time(pid: int) -> str:
    """When a process started, in the kernel's ticks; "" if it is gone or a zombie.

    The first thread of a process that is killed may be one while others still end: until then its ports are
    taken."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    state, threads = fields[0], int(fields[17])
    return "" if state in "ZX" and threads <= 1 else fields[19]


def _signal(records: Iterable[Record], number: signal.Signals) -> None:
    for record in records:
        if is_alive(record):
            with suppress(ProcessLookupError):
                os.kill(record.pid, number)


def _wait(records: Sequence[Record], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(is_alive(record) for record in records) and time.monotonic() < deadline:
        time.sleep(0.02)


def _marked(mark: bytes, *, whole: bool) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        hit = mark in words if whole else any(word.startswith(mark) for word in words)
        if hit and int(entry.name) != os.getpid() and start_time(int(entry.name)):
            found.append(int(entry.name))
    return found
