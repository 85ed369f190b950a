"""All local runs, and the content of the files in their folders.

Every run has a folder of its own below the state folder, readable by its owner alone. It appears and vanishes
in one step, so that a name is either free or completely taken."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from echelon.engines.base import run_exists, unknown_run
from echelon.engines.decoding import decode
from echelon.engines.local import rundir
from echelon.engines.local.rundir import RunDir
from echelon.engines.machine import state_home
from echelon.errors import StateTrouble, from_os_error
from echelon.model.event import Event
from echelon.model.plan import Plan
from echelon.model.run import Record, check_schema

T = TypeVar("T")
_ELSEWHERE = "`echelon ps -a` lists the runs of this machine; --on k8s asks the cluster"


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
        except OSError as error:
            raise from_os_error(error, self._runs) from error

    def find(self, name: str) -> RunDir:
        """The folder of an existing run; raises UnknownRun with the nearest name otherwise."""
        folder = self.dir(name)
        if not folder.record.exists():
            raise unknown_run(name, self.names(), _ELSEWHERE)
        return folder

    def create(self, record: Record, secret: str, bundle: bytes | None) -> RunDir:
        """Write a new run, all of it or nothing; raises RunExists if the name is taken."""
        with translated(self.home):
            self._runs.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder = RunDir(self._runs / f".new-{uuid.uuid4().hex}")
            folder.path.mkdir(mode=0o700)
            try:
                folder.record.write_bytes(msgspec.json.encode(record))
                _write_private(folder.secret, secret.encode())
                if bundle is not None:
                    folder.bundle.write_bytes(bundle)
                rundir.append_event(folder, {"kind": "recorded", "at": record.created})
                folder.path.rename(self.dir(record.ref.name).path)
            except BaseException as error:
                shutil.rmtree(folder.path, ignore_errors=True)
                if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                    raise run_exists(record.ref.name) from None
                raise
        return self.dir(record.ref.name)

    def delete(self, name: str) -> None:
        """Remove a run: its name is free at once, its folder gone soon after."""
        with translated(self.home):
            gone = self._runs / f".gone-{uuid.uuid4().hex}"
            self.find(name).path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    @contextlib.contextmanager
    def devices_locked(self) -> Iterator[None]:
        """Hold the lock under which runs take devices, so that no two take the same."""
        with contextlib.ExitStack() as stack:
            with translated(self.home):
                self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
                stack.enter_context(rundir.open_locked(self.home / "devices.lock"))
            yield


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise operating system errors at or below `path` as errors of ours."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, path) from error


def read_record(folder: RunDir) -> Record:
    """What was recorded, and the plan if there is one."""
    record = _decode(folder.record, Record)
    check_schema(record.ref.name, record.schema)
    plan = _decode(folder.plan, Plan) if folder.plan.exists() else None
    return replace(record, plan=plan)


def write_plan(folder: RunDir, plan: Plan) -> None:
    """Write the plan: from now on its devices are taken."""
    rundir.write_atomically(folder.plan, msgspec.json.encode(plan))


def append_event(folder: RunDir, event: Event) -> None:
    """Append one event."""
    rundir.append_event(folder, msgspec.to_builtins(event))


def write_final(folder: RunDir, event: Event) -> None:
    """Write the end of the run."""
    rundir.write_final(folder, msgspec.to_builtins(event))


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
            events.append(decode(line, Event))
    return events, position + len(whole)


def read_final(folder: RunDir) -> Event | None:
    """How the run ended; None while it has not."""
    try:
        return decode(folder.final.read_bytes(), Event)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return decode(path.read_bytes(), kind)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StateTrouble(
            f"{path} cannot be read: {error}", hint=f"`echelon rm {path.parent.name}` forgets this run"
        ) from error
