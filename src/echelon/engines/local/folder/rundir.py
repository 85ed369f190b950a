"""The folder of a local run: every name in it, and how a process holds a run.

Standard library only, because the supervisor uses it and must start quickly. `store.py` knows the content of
the files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import IO, cast

from echelon.engines import durable

_SPARE = 64 * 1024  # bytes
_WORKER_LOG = re.compile(r"(worker-([0-9]{1,9})\.([0-9]{1,9})\.log)(?:\.gz)?")


def _entry(name: str) -> cached_property[Path]:
    """A path in the folder, made when it is asked for: a list looks at few of them in many folders."""

    def path(folder: RunDir) -> Path:
        return folder.path / name

    return cached_property(path)


class RunDir:
    """The paths of one run's folder."""

    record = _entry("record.json")
    plan = _entry("plan.json")
    task = _entry("task.json")
    secret = _entry("secret")
    bundle = _entry("bundle.tar.gz")
    code = _entry("code")
    seals = _entry("seals")
    earlier = _entry("earlier")
    events = _entry("events.jsonl")
    final = _entry("final.json")
    stop = _entry("stop.json")
    samples = _entry("samples.json")
    spare = _entry("spare")
    supervisor = _entry("supervisor.json")
    supervisor_lock = _entry("supervisor.lock")
    supervisor_log = _entry("supervisor.log")
    takers_lock = _entry("takers.lock")

    def __init__(self, path: Path) -> None:
        self.path = path

    def worker_log(self, worker: int, failures: int) -> Path:
        """The output of a worker's agent; each one that replaces another has a file of its own."""
        return self.path / f"worker-{worker}.{failures}.log"

    def worker_logs(self) -> list[tuple[int, int, Path]]:
        """Every agent's output so far: worker, failures before, path. `open_log` opens it."""
        found = set()
        for path in self.path.glob("worker-*.log*"):
            name = _WORKER_LOG.fullmatch(path.name)
            if name is not None and path.is_file():
                found.add((int(name[2]), int(name[3]), self.path / name[1]))
        return sorted(found)

    def earlier_starts(self) -> list[RunDir]:
        """What is kept of each start before the run was resumed: its events and its workers' logs."""
        try:
            numbers = sorted(int(each.name) for each in self.earlier.iterdir() if each.name.isdecimal())
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [RunDir(self.earlier / str(number)) for number in numbers]


def compressed(log: Path) -> Path:
    """Where an agent's output is once the run is over and it was compressed."""
    return log.with_name(f"{log.name}.gz")


def open_log(log: Path) -> IO[bytes]:
    """Open an agent's output, compressed or not."""
    try:
        return log.open("rb")
    except FileNotFoundError:
        import gzip

        return cast("IO[bytes]", gzip.open(compressed(log), "rb"))


@contextlib.contextmanager
def hold(folder: RunDir) -> Iterator[int | None]:
    """Take the run's lock: its descriptor, or None if another process holds it.

    A process that inherits the descriptor holds the run until it ends. `takers.lock` serialises callers,
    since one that only checks the lock would seem to hold the run."""
    with open_locked(folder.takers_lock), _opened(folder.supervisor_lock) as descriptor:
        yield descriptor if _take(descriptor) else None


def is_held(folder: RunDir) -> bool:
    """Whether a process holds the run; one whose lock was deleted is not noticed."""
    if not folder.supervisor_lock.is_file():
        return False  # and none is made: it would hide that it was deleted
    try:
        with hold(folder) as descriptor:
            return descriptor is None
    except (FileNotFoundError, NotADirectoryError):
        return False  # removed meanwhile, or no folder at all


@contextlib.contextmanager
def unused(folder: RunDir) -> Iterator[bool]:
    """Whether no process makes, removes or supervises what is in a folder; none can begin meanwhile."""
    with contextlib.ExitStack() as stack:
        yield all(_is_free(path, stack) for path in (folder.takers_lock, folder.supervisor_lock))


def _is_free(lock: Path, stack: contextlib.ExitStack) -> bool:
    try:
        return _take(stack.enter_context(_opened(lock)))
    except FileNotFoundError:
        return True  # a link that leads nowhere, in the folder of a damaged run


@contextlib.contextmanager
def open_locked(path: Path) -> Iterator[None]:
    """Wait for a lock file, and hold it while the block runs. One that was removed meanwhile locks nothing:
    another process may hold the file that is there now.
    """
    while True:
        with _opened(path) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(path, descriptor):
                yield
                return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except IsADirectoryError:  # of a damaged run; it can be locked all the same
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def append_event(folder: RunDir, event: Mapping[str, object]) -> None:
    """Append one event, in one write."""
    durable.append_line(folder.events, _line_of(event))


def make_spare(folder: RunDir) -> None:
    """Take some room on the disk, for the events and the end of a run that finds it full. Where there is none
    the run does without.
    """
    with contextlib.suppress(OSError):
        durable.write_file(folder.spare, bytes(_SPARE), sync=False)


def use_spare(folder: RunDir, *, all_of_it: bool) -> None:
    """Give up half of that room, or the rest."""
    with contextlib.suppress(OSError):
        if all_of_it:
            folder.spare.unlink()
        elif folder.spare.stat().st_size == _SPARE:
            os.truncate(folder.spare, _SPARE // 2)


def write_final(folder: RunDir, event: Mapping[str, object]) -> None:
    """Write the end of the run; only the first caller's end is kept.

    Readers need no lock: the file is complete or missing. The events are on the disk before the end is."""
    if folder.final.exists():
        return
    with contextlib.suppress(OSError):  # the end matters more
        durable.sync_file(folder.events)
    durable.replace_file(folder.final, json.dumps(dict(event)).encode())
    with contextlib.suppress(OSError):  # readers of the events find the end all the same
        durable.append_line(folder.events, _line_of(event))


def _line_of(event: Mapping[str, object]) -> bytes:
    return json.dumps({key: value for key, value in event.items() if value is not None}).encode() + b"\n"


def read_json(path: Path) -> dict[str, object] | None:
    """A small JSON file; None if it is missing or cannot be read."""
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def now() -> float:
    """The time, as events carry it."""
    return round(time.time(), 3)
