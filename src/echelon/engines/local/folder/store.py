"""All local runs, and the content of the files in their folders.

Every run has a folder of its own below the state folder, readable by its owner alone. It appears and vanishes
in one step, so that a name is either free or completely taken. Hidden folders beside them are those that are
being made or removed; one whose process was killed is deleted by the next command that writes."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from echelon.engines import durable
from echelon.engines.base import RunDamaged, run_exists, unknown_run
from echelon.engines.decoding import decode
from echelon.engines.local.folder import rundir
from echelon.engines.local.folder.rundir import RunDir
from echelon.errors import EchelonError, StateTrouble, from_os_error
from echelon.model.event import Event
from echelon.model.job import is_name
from echelon.model.plan import Plan
from echelon.model.run import Record, RunRef, check_schema
from echelon.model.world import worker_count
from echelon.state_home import state_home

T = TypeVar("T")
Stamps = tuple[tuple[int, int, int], ...]
_LOOKS = 1.0  # seconds within which those who only look at a run have looked, and let its locks go
_NEW, _GONE = ".new-", ".gone-"  # how the names of folders begin that are being made, and removed
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)  # of a rename onto what is there
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # errors that say nothing of the file
_UNREADABLE = (msgspec.DecodeError, RecursionError)
_FIRST_EVENT = 64 * 1024  # bytes, at most
_ELSEWHERE = "`echelon ps -a` lists the runs of this machine; --on k8s asks the cluster"


class RunStore:
    """All runs of one state folder."""

    def __init__(self, home: Path | None = None) -> None:
        self._given = home

    @cached_property
    def home(self) -> Path:
        """The state folder; raises StateTrouble if there can be none."""
        return self._given or state_home()

    @property
    def _runs(self) -> Path:
        return self.home / "runs"

    def dir(self, name: str) -> RunDir:
        """The folder of a run, whether it exists or not."""
        return RunDir(self._runs / name)

    def names(self) -> list[str]:
        """The names of all runs."""
        try:
            with os.scandir(self._runs) as entries:
                return sorted(entry.name for entry in entries if is_name(entry.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise from_os_error(error, self._runs) from error

    def find(self, name: str) -> RunDir:
        """The folder of an existing run; raises UnknownRun with the nearest name otherwise."""
        folder = self.dir(name)
        if not os.path.lexists(folder.path):
            raise unknown_run(name, self.names(), _ELSEWHERE)
        return folder

    def read(self, name: str) -> Record:
        """What was recorded of a run, and its plan; raises UnknownRun, or RunDamaged."""
        try:
            return inspect(self.find(name))[0]
        except RunDamaged:
            self.find(name)  # it may have been removed meanwhile
            raise

    def create(self, record: Record, secret: str, bundle: bytes | None) -> RunDir:
        """Write a new run, all of it or nothing; raises RunExists if the name is taken."""
        import shutil  # with three libraries for archives, which a list does not need

        with translated(self.home), contextlib.ExitStack() as stack:
            durable.make_folder(self._runs)
            self._clear_up()
            folder = self._begin(stack)
            try:
                durable.write_file(folder.record, msgspec.json.encode(record))
                durable.write_file(folder.secret, secret.encode(), sync=False)
                if bundle is not None:
                    durable.write_file(folder.bundle, bundle, sync=False)
                rundir.append_event(folder, {"kind": "recorded", "at": record.created})
                durable.sync_file(folder.events)
                durable.move_folder(folder.path, self.dir(record.ref.name).path)
            except BaseException as error:
                shutil.rmtree(folder.path, ignore_errors=True)
                if isinstance(error, OSError) and error.errno in _TAKEN:
                    raise run_exists(record.ref.name, resume=record.job.resume) from None
                raise
        return self.dir(record.ref.name)

    def delete(self, name: str) -> None:
        """Remove a run: its name is free at once, its folder gone soon after. One that another process holds
        for longer than a look takes is left to the next command that makes or removes a run.
        """
        with translated(self.home):
            gone = self._runs / f"{_GONE}{uuid.uuid4().hex}"
            durable.rename(self.find(name).path, gone)
            durable.sync_folder(self._runs)
            deadline = time.monotonic() + _LOOKS
            self._clear_up()
            while os.path.lexists(gone) and time.monotonic() < deadline:
                time.sleep(0.01)
                self._clear_up()

    def _begin(self, stack: contextlib.ExitStack) -> RunDir:
        """A new folder, locked for as long as `stack` is open, so that no other process clears it up."""
        while True:
            folder = RunDir(self._runs / f"{_NEW}{uuid.uuid4().hex}")
            folder.path.mkdir(mode=0o700)
            with contextlib.suppress(FileNotFoundError):  # cleared up before it was locked
                stack.enter_context(rundir.open_locked(folder.takers_lock))
                return folder

    def _clear_up(self) -> None:
        """Delete what was removed, and what was begun by a process that is gone."""
        import shutil

        for entry in os.scandir(self._runs):
            if not entry.name.startswith((_NEW, _GONE)):
                continue
            path = Path(entry.path)
            with contextlib.suppress(OSError):  # another process is clearing up too
                if not entry.is_dir(follow_symlinks=False):
                    path.unlink()
                    continue
                with rundir.unused(RunDir(path)) as free:
                    if free:
                        shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def devices_locked(self) -> Iterator[None]:
        """Hold the lock under which runs take devices, so that no two take the same."""
        with contextlib.ExitStack() as stack:
            with translated(self.home):
                durable.make_folder(self.home)
                stack.enter_context(rundir.open_locked(self.home / "devices.lock"))
            yield


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise operating system errors at or below `path` as errors of ours."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, path) from error


def inspect(folder: RunDir) -> tuple[Record, Event | None]:
    """What was recorded, with the plan if there is one, and how the run ended; raises RunDamaged if any of
    the files that tell how it stands cannot be read.
    """
    record = read_record(folder)
    final = read_final(folder)
    first, _, _ = _content(folder.events, _FIRST_EVENT).partition(b"\n")
    try:
        decode(first, Event)  # that it was recorded; it is written with the folder
    except _UNREADABLE as error:
        raise _damaged(folder.events, error) from error
    return record, final


def read_record(folder: RunDir) -> Record:
    """What was recorded, and the plan if there is one; raises RunDamaged if they cannot be read."""
    admitted = folder.task.exists()  # looked at first: the plan is written before it
    record = _decode(folder.record, Record)
    name = folder.path.name
    try:
        check_schema(name, record.schema)
    except StateTrouble as error:
        raise RunDamaged(name, error.message, hint=error.hint) from error
    if record.ref != RunRef(engine="local", name=name):
        raise RunDamaged(name, f"{folder.record} is of another run, {record.ref}")
    there = os.path.lexists(folder.plan)
    if admitted and not there and folder.task.exists():  # still: it is not another run of that name by now
        raise RunDamaged(name, f"{folder.plan} is missing")
    plan = _decode(folder.plan, Plan) if there else None
    if plan is not None and len(plan.placement.seats) != worker_count(plan.world):
        raise RunDamaged(name, f"{folder.plan} has not as many places as workers")
    return replace(record, plan=plan)


def write_plan(folder: RunDir, plan: Plan) -> None:
    """Write the plan: from now on its devices are taken."""
    durable.replace_file(folder.plan, msgspec.json.encode(plan))


def append_event(folder: RunDir, event: Event) -> None:
    """Append one event."""
    rundir.append_event(folder, msgspec.to_builtins(event))


def write_final(folder: RunDir, event: Event) -> None:
    """Write the end of the run."""
    rundir.write_final(folder, msgspec.to_builtins(event))


def read_final(folder: RunDir) -> Event | None:
    """How the run ended, None while it has not; raises RunDamaged if that cannot be read."""
    if not os.path.lexists(folder.final):
        return None
    final = _decode(folder.final, Event)
    if final.kind != "finished":
        raise RunDamaged(folder.path.name, f"{folder.final} does not contain the end of a run")
    return final


def stamps_of(folder: RunDir) -> Stamps | None:
    """What changes when one of the files of a run that is over does; None of one that may go on."""
    try:
        found = [path.stat() for path in (folder.final, folder.record, folder.plan, folder.events)]
    except OSError:
        return None
    return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)


def gpus_of_task(folder: RunDir) -> tuple[str, ...]:
    """The GPUs of a run whose plan cannot be read."""
    workers = (rundir.read_json(folder.task) or {}).get("gpus")
    lists = [each for each in workers if isinstance(each, list)] if isinstance(workers, list) else []
    return tuple(str(gpu) for gpus in lists for gpu in gpus)


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return decode(_content(path), kind)
    except _UNREADABLE as error:
        raise _damaged(path, error) from error


def _content(path: Path, most: int | None = None) -> bytes:
    """What a file of a run's folder contains, or its beginning; raises RunDamaged where there is none that
    can be read. Opened in this way, a pipe does not wait for a writer.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unopened(path, error) from error
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise RunDamaged(path.parent.name, f"{path} is not a file")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return (file.readall() if most is None else file.read(most)) or b""
    except OSError as error:
        raise _damaged(path, error) from error
    finally:
        os.close(descriptor)


def _unopened(path: Path, error: OSError) -> EchelonError:
    if error.errno in _PASSING:
        return from_os_error(error, path)
    if error.errno == errno.ENXIO:  # a socket
        return RunDamaged(path.parent.name, f"{path} is not a file")
    problem = "is missing" if error.errno == errno.ENOENT else f"cannot be read: {error.strerror}"
    return RunDamaged(path.parent.name, f"{path} {problem}")


def _damaged(path: Path, error: Exception) -> RunDamaged:
    empty = path.stat().st_size == 0
    return RunDamaged(path.parent.name, f"{path} {'is empty' if empty else f'cannot be read: {error}'}")
