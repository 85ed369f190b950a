"""Who looks after a local run: its supervisor is started here, and missed here when it has died without a
word.

A run is held by whoever has its lock (`rundir.hold`). The local engine hands the lock to the supervisor it
starts; a run that was taken up and is held by nobody is lost, and whoever notices first writes that down and
clears up after it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace

from echelon.engines.base import read_secrets
from echelon.engines.local import processes, rundir, store
from echelon.engines.local.rundir import RunDir
from echelon.errors import RunLost, StateTrouble
from echelon.model.event import Event, RootCause

_LOCK_DESCRIPTOR = 3  # where a supervisor finds the lock it is handed
_SUBMISSION = 10.0  # seconds within which whoever has recorded a run has started it
_started: list[int] = []  # supervisors that this process has started and not yet seen the end of


def spawn_supervisor(folder: RunDir, lock: int, *, keep_stdin: bool) -> None:
    """Start the supervisor in a session of its own, holding the run's lock, and do not wait for it.

    It outlives us, or we take note of its end when we start the next.
    """
    job = store.read_record(folder).job
    environment = {**os.environ, **read_secrets(job, os.environ), processes.MARK: run_id(folder)}
    command = [sys.executable, "-P", "-m", "echelon.supervisor", str(folder.path), str(_LOCK_DESCRIPTOR)]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, lock, _LOCK_DESCRIPTOR),
        (os.POSIX_SPAWN_OPEN, 1, str(folder.supervisor_log), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    if not keep_stdin:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    folder.supervisor_log.touch(mode=0o600)  # from here on the run counts as taken up
    _started.append(os.posix_spawn(sys.executable, command, environment, file_actions=actions, setsid=True))
    for pid in _started[:-1]:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _started.remove(pid)


def end_of(folder: RunDir) -> Event | None:
    """How the run ended, or None.

    If its supervisor has died without a word, that is the end, and it is written down.
    """
    if folder.final.exists():
        return store.read_final(folder)
    if not folder.supervisor_log.exists():
        return None  # recorded, and not taken up yet
    try:
        with rundir.hold(folder) as lock:
            if lock is None:
                return None
            if folder.final.exists():
                return store.read_final(folder)
            processes.end_marked_processes(run_id(folder))
            loss = _verdict(folder) or _loss(folder)
            with contextlib.suppress(OSError):  # on a full disk it can still be told, by everybody who asks
                store.write_final(folder, loss)
            return loss
    except (FileNotFoundError, StateTrouble):
        return None  # removed in the meantime


def is_over(folder: RunDir) -> bool:
    """Whether the run has ended."""
    return end_of(folder) is not None or not folder.path.exists()


def never_ran(folder: RunDir) -> bool:
    """Recorded, but its submission was interrupted before a supervisor said its first word."""
    return not folder.supervisor.exists() and folder.record.exists() and not rundir.is_held(folder)


def nothing_comes(folder: RunDir) -> bool:
    """Whether waiting is in vain: the run is over, or its submission was interrupted a while ago."""
    if is_over(folder):
        return True
    return never_ran(folder) and time.time() - folder.record.stat().st_mtime > _SUBMISSION


def run_id(folder: RunDir) -> str:
    """What marks every process of a run: the same name at another time is another run."""
    return f"{folder.path}@{store.read_record(folder).created}"


def _verdict(folder: RunDir) -> Event | None:
    """The leader's verdict, if it came to that before the supervisor could write down the end."""
    events, _ = store.read_events(folder)
    said = [event for event in events if event.kind == "verdict"]
    return replace(said[-1], kind="finished") if said else None


def _loss(folder: RunDir) -> Event:
    if folder.supervisor.exists():
        summary = "the run's supervisor ended without a word: killed, or the machine was restarted"
    else:
        summary = f"the run's supervisor did not start; {folder.supervisor_log} may tell why"
    cause = RootCause(summary=summary, exit_code=RunLost.exit_code)
    return Event(kind="finished", at=rundir.now(), outcome="lost", exit_code=cause.exit_code, cause=cause)
