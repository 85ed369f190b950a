"""The folders that local runs live in: the only file that knows their names, and how what is in them is
written and read.

Every run has a folder of its own below the state folder (ECHELON_HOME, else the user's state folder),
readable by its owner alone. It appears in one step and vanishes in one step, so that a name is either free or
taken whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from echelon.errors import RunExists, StateTrouble, UnknownRun
from echelon.model.event import Event
from echelon.model.plan import Plan
from echelon.model.run import Record

T = TypeVar("T")


def state_home() -> Path:
    """Where echelon keeps what it must remember on this machine."""
    if home := os.environ.get("ECHELON_HOME"):
        return Path(home).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    return Path(base) / "echelon"


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


class RunStore:
    """All runs of one state folder."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or state_home()
        self._runs = self.home / "runs"

    def dir(self, name: str) -> RunDir:
        """The folder of a run, whether it exists or not."""
        return RunDir(self._runs / name)

    def names(self) -> list[str]:
        """The names of all runs."""
        try:
            return sorted(entry.name for entry in os.scandir(self._runs) if not entry.name.startswith("."))
        except FileNotFoundError:
            return []

    def find(self, name: str) -> RunDir:
        """The folder of a run that exists; UnknownRun with the nearest name otherwise."""
        folder = self.dir(name)
        if not folder.record.exists():
            raise unknown_run(name, self.names())
        return folder

    def create(self, record: Record, secret: str, bundle: bytes | None) -> RunDir:
        """Write a new run, all of it or nothing; RunExists if the name is taken."""
        with self._translated():
            self._runs.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder = RunDir(self._runs / f".new-{uuid.uuid4().hex}")
            folder.path.mkdir(mode=0o700)
            try:
                folder.record.write_bytes(msgspec.json.encode(record))
                _write_private(folder.secret, secret.encode())
                if bundle is not None:
                    folder.bundle.write_bytes(bundle)
                append_event(folder, Event(kind="recorded", at=record.created))
                folder.path.rename(self.dir(record.ref.name).path)
            except BaseException as error:
                shutil.rmtree(folder.path, ignore_errors=True)
                if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                    raise RunExists(
                        f"a run named {record.ref.name!r} exists",
                        hint=f"`echelon rm {record.ref.name}` frees the name, or choose another with --name",
                    ) from None
                raise
        return self.dir(record.ref.name)

    def delete(self, name: str) -> None:
        """Forget a run: its name is free at once, its folder gone soon after."""
        with self._translated():
            gone = self._runs / f".gone-{uuid.uuid4().hex}"
            self.find(name).path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock under which runs take devices, so that no two take the same."""
        with self._translated():
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.home / "devices.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise state_trouble(error, self.home) from error


def unknown_run(name: str, names: list[str]) -> UnknownRun:
    """The error for a name that no run has."""
    import difflib

    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "`echelon ps -a` lists the runs"
    return UnknownRun(f"no run named {name!r}", hint=hint)


def state_trouble(error: OSError, path: Path) -> StateTrouble:
    """An operating system's refusal, as an error of ours."""
    where = error.filename or path
    if error.errno == errno.ENOSPC:
        return StateTrouble(
            f"the disk is full at {where}", hint="free some space, or set ECHELON_HOME to another disk"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
        return StateTrouble(
            f"cannot write to {where}: {error.strerror}",
            hint="set ECHELON_HOME to a folder that you may write to",
        )
    return StateTrouble(f"{where}: {error.strerror}", hint="set ECHELON_HOME to another folder")


def read_record(folder: RunDir) -> Record:
    """What was recorded, and the plan if there is one."""
    import dataclasses

    record = _decode(folder.record, Record)
    plan = _decode(folder.plan, Plan) if folder.plan.exists() else None
    return dataclasses.replace(record, plan=plan)


def write_plan(folder: RunDir, plan: Plan) -> None:
    """Write the plan: from now on its devices are taken."""
    write_atomically(folder.plan, msgspec.json.encode(plan))


def append_event(folder: RunDir, event: Event) -> None:
    """Append one event, in one write."""
    append_raw_event(folder, msgspec.json.encode(_compact(event)))


def append_raw_event(folder: RunDir, line: bytes) -> None:
    """Append an event that is JSON already."""
    descriptor = os.open(folder.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line + b"\n")
    finally:
        os.close(descriptor)


def read_events(folder: RunDir, position: int = 0) -> tuple[list[Event], int]:
    """The events from a position in the file on, and the position after them.

    A line still being written is left for later.
    """
    try:
        with folder.events.open("rb") as file:
            file.seek(position)
            data = file.read()
    except FileNotFoundError:
        return [], position
    whole = data[: data.rfind(b"\n") + 1]
    events = []
    for line in whole.splitlines():
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            events.append(_event_decoder().decode(line))
    return events, position + len(whole)


def write_final(folder: RunDir, event: Event) -> None:
    """Write the end of the run: once, whoever comes to write it.

    Readers need no lock: either there is an end or there is not.
    """
    if not folder.final.exists():
        write_atomically(folder.final, msgspec.json.encode(_compact(event)))
        append_event(folder, event)


def read_final(folder: RunDir) -> Event | None:
    """How the run ended; None while it has not."""
    try:
        return _event_decoder().decode(folder.final.read_bytes())
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def try_lock(path: Path) -> int | None:
    """Take a lock that ends with its holder; the descriptor that holds it, or None if somebody else does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def now() -> float:
    """The time, as events carry it."""
    return round(time.time(), 3)


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateTrouble(
            f"{path} cannot be read: {error}", hint=f"`echelon rm {path.parent.name}` forgets this run"
        ) from error


def _compact(event: Event) -> dict[str, object]:
    raw: dict[str, object] = msgspec.to_builtins(event)
    return {key: value for key, value in raw.items() if value is not None}


_EVENT_DECODER: list[msgspec.json.Decoder[Event]] = []


def _event_decoder() -> msgspec.json.Decoder[Event]:
    if not _EVENT_DECODER:
        _EVENT_DECODER.append(msgspec.json.Decoder(Event))
    return _EVENT_DECODER[0]
