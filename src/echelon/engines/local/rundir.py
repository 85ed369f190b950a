"""The folder of a local run: every name in it, and how a process holds a run.

Standard library only, because the supervisor uses it and must start quickly. `store.py` knows the content of
the files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path


class RunDir:
    """The paths of one run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = path / "record.json"
        self.plan = path / "plan.json"
        self.task = path / "task.json"
        self.secret = path / "secret"
        self.bundle = path / "bundle.tar.gz"
        self.code = path / "code"
        self.events = path / "events.jsonl"
        self.final = path / "final.json"
        self.stop = path / "stop.json"
        self.supervisor = path / "supervisor.json"
        self.supervisor_lock = path / "supervisor.lock"
        self.supervisor_log = path / "supervisor.log"

    def worker_log(self, worker: int, failures: int) -> Path:
        """The output of a worker's agent; each one that replaces another has a file of its own."""
        return self.path / f"worker-{worker}.{failures}.log"

    def worker_logs(self) -> list[tuple[int, int, Path]]:
        """Every agent's output so far: worker, failures before, path."""
        found = []
        for path in self.path.glob("worker-*.log"):
            worker, failures = path.name.removeprefix("worker-").removesuffix(".log").split(".")
            found.append((int(worker), int(failures), path))
        return sorted(found)


@contextlib.contextmanager
def hold(folder: RunDir) -> Iterator[int | None]:
    """Take the run's lock: its descriptor, or None if another process holds it.

    A process that inherits the descriptor holds the run until it ends. `takers.lock` serialises callers,
    since one that only checks the lock would seem to hold the run."""
    with open_locked(folder.path / "takers.lock"):
        descriptor: int | None = os.open(folder.supervisor_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        assert descriptor is not None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
            else:
                yield descriptor
        finally:
            os.close(descriptor)


def is_held(folder: RunDir) -> bool:
    """Whether a process holds the run."""
    try:
        with hold(folder) as descriptor:
            return descriptor is None
    except FileNotFoundError:
        return False  # removed meanwhile


@contextlib.contextmanager
def open_locked(path: Path) -> Iterator[None]:
    """Wait for a lock file, and hold it while the block runs."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def append_event(folder: RunDir, event: Mapping[str, object]) -> None:
    """Append one event, in one write."""
    line = json.dumps({key: value for key, value in event.items() if value is not None}).encode() + b"\n"
    descriptor = os.open(folder.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def write_final(folder: RunDir, event: Mapping[str, object]) -> None:
    """Write the end of the run; only the first caller's end is kept.

    Readers need no lock: the file is complete or missing.
    """
    if not folder.final.exists():
        write_atomically(folder.final, json.dumps(dict(event)).encode())
        append_event(folder, event)


def read_json(path: Path) -> dict[str, object] | None:
    """A small JSON file; None if it is missing or cannot be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def now() -> float:
    """The time, as events carry it."""
    return round(time.time(), 3)
