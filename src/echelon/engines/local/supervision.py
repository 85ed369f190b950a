"""Starting the supervisor of a local run, and noticing that it has died.

The process with a run's lock (`rundir.hold`) supervises it. The local engine passes the lock on to the
supervisor that it starts. A run that was started and whose lock is free is lost. Every reader sees that;
a command that waits for the run, ends it or starts another kills what is left of it and records the loss."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from echelon.engines.base import RunDamaged
from echelon.engines.local.folder import rundir, store
from echelon.engines.local.folder.events import read_events
from echelon.engines.local.folder.rundir import RunDir
from echelon.model.event import Event

_LOCK_DESCRIPTOR = 3  # the lock's descriptor in the supervisor
_RESERVED_DESCRIPTOR = 4  # that of the results folder
_TERMINAL_DESCRIPTOR = 5
_SUBMISSION = 10.0  # seconds from a run's record to its start
_started: list[int] = []  # supervisors that this process has started and not yet reaped


def spawn_supervisor(
    folder: RunDir,
    lock: int,
    reserved: int,
    *,
    keep_stdin: bool = False,
    terminal: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Start the supervisor in a session of its own, holding the run's lock and its results folder, and do not
    wait for it.

    It may outlive this process; otherwise it is reaped when the next one is started. `terminal` is a socket
    that leads to the user's terminal, which then is not the run's standard input. `environment` is for the
    ranks, beside this process's own.
    """
    from echelon.engines.job_secrets import read_secrets
    from echelon.engines.local import forks, processes

    record = store.read_record(folder)
    mark = processes.mark_of(folder.path, record.created)
    variables = {**os.environ, **(environment or {}), **read_secrets(record.job, os.environ)}
    variables[processes.MARK] = mark
    folder.supervisor_log.touch(mode=0o600)  # from here on the run counts as started
    if (one := forks.current()) is not None and not keep_stdin:
        one.start(folder.path, folder.supervisor_log, variables, (lock, reserved))
        return
    handed = {_LOCK_DESCRIPTOR: lock, _RESERVED_DESCRIPTOR: reserved}
    if terminal is not None:
        handed[_TERMINAL_DESCRIPTOR] = terminal
    command = [sys.executable, "-P", "-m", "echelon.supervisor", str(folder.path), *map(str, handed)]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 1, str(folder.supervisor_log), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    if not keep_stdin or terminal is not None:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    with contextlib.ExitStack() as stack:
        for target, source in handed.items():  # from above all targets, or one would be put over another
            copy = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, max(handed) + 1)
            stack.callback(os.close, copy)
            actions.append((os.POSIX_SPAWN_DUP2, copy, target))
        _started.append(os.posix_spawn(sys.executable, command, variables, file_actions=actions, setsid=True))
    for pid in _started[:-1]:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _started.remove(pid)


def end_of(folder: RunDir) -> Event | None:
    """How the run ended, or None; raises RunDamaged if that cannot be read.

    If its supervisor has died without recording the end, the loss is the end; `settle` records it.
    """
    final = store.read_final(folder)
    if final is not None or not _was_started(folder):
        return final
    return _found_dead(folder)


def settle(folder: RunDir) -> list[int]:
    """Kill what is left of a run without a supervisor, and then record that it was lost, if its end is not
    known; raises RunDamaged if that cannot be read. Returns the processes that could not be ended.
    """
    from echelon.engines.local import processes

    recorded = store.read_final(folder) is not None
    if not _was_started(folder) or (recorded and not processes.has_group(folder)):
        return []
    left: list[int] = []

    def record(end: Event | None) -> None:
        # One that recorded its end ended all that was below it, and may just not have left its group.
        left.extend(processes.end_group(folder) if end is None else processes.end_processes(folder))
        if end is not None and not left:
            with contextlib.suppress(OSError):  # on a full disk each caller finds the loss again
                store.write_final(folder, end)

    _found_dead(folder, record)
    return left


def _found_dead(folder: RunDir, then: Callable[[Event | None], object] = lambda _: None) -> Event | None:
    """How a run without a supervisor ended, None if it has one. `then` is called, while the run is held, with
    the end if that is not recorded.
    """
    try:
        if _goes_on_without_lock(folder):
            problem = f"{folder.supervisor_lock} was deleted while the run goes on"
            raise RunDamaged(folder.path.name, problem)
        with rundir.hold(folder) as lock:
            if lock is None:
                return None
            final = store.read_final(folder)
            loss = _verdict(folder) or _loss(folder) if final is None else None
            then(loss)
            return final or loss
    except (FileNotFoundError, NotADirectoryError) as error:
        if folder.path.is_dir():
            raise RunDamaged(folder.path.name, f"{error.filename} cannot be opened") from error
        return None  # removed meanwhile


def is_over(folder: RunDir) -> bool:
    """Whether the run has ended; raises RunDamaged if that cannot be read."""
    return end_of(folder) is not None or not folder.path.exists()


def never_ran(folder: RunDir) -> bool:
    """Whether the submission was interrupted after the record and before the supervisor was up."""
    return folder.path.is_dir() and not folder.supervisor.exists() and not rundir.is_held(folder)


def nothing_comes(folder: RunDir) -> bool:
    """Whether no more events will come: the run is over, its submission was interrupted a while ago, or it is
    damaged and no process supervises it.
    """
    try:
        if is_over(folder):
            return True
        return never_ran(folder) and time.time() - folder.record.stat().st_mtime > _SUBMISSION
    except (RunDamaged, FileNotFoundError):
        return not is_alive(folder)


def is_alive(folder: RunDir) -> bool:
    """Whether processes of the run go on, so that it has what its plan names."""
    return rundir.is_held(folder) or _goes_on_without_lock(folder)


def _goes_on_without_lock(folder: RunDir) -> bool:
    if folder.supervisor_lock.is_file() or not _was_started(folder):
        return False
    from echelon.engines.local import processes

    return bool(processes.marked_processes(folder.path))


def _was_started(folder: RunDir) -> bool:
    """Whether there was, or was about to be, a supervisor: any one of the files of its start will do."""
    return folder.supervisor_log.exists() or folder.supervisor.exists() or folder.task.exists()


def _verdict(folder: RunDir) -> Event | None:
    """The leader's verdict, if there is one that the supervisor could not record as the end."""
    found = None
    for event in read_events(folder):
        if event.kind in ("verdict", "finished"):
            found = event
    return replace(found, kind="finished") if found is not None else None


def _loss(folder: RunDir) -> Event:
    from echelon.model import ends

    if folder.supervisor.exists():
        summary = "the run's supervisor ended without a report: killed, or the machine was restarted"
    else:
        summary = f"the run's supervisor did not start; {folder.supervisor_log} may tell why"
    last = max((event.at for event in read_events(folder)), default=0.0)
    # Ranks may have trained for hours since the last event; their agents write to these files meanwhile.
    written = (folder.samples, *(path for _worker, _failures, path in folder.worker_logs()))
    for path in written:
        with contextlib.suppress(OSError):
            last = max(last, round(path.stat().st_mtime, 3))
    return ends.run_lost(summary, at=last or rundir.now())  # the same at every look, by any process
