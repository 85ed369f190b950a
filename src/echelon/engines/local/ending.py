"""The end of a local run that a user asks for: stopping it, and ending what is left before a removal."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from signal import SIGKILL, SIGTERM
from typing import Any

import msgspec

from echelon.engines import durable
from echelon.engines.base import RunDamaged, stopped_by
from echelon.engines.local import processes
from echelon.engines.local.folder import rundir, store
from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.local.programs import request_to_stop
from echelon.engines.local.supervision import end_of, is_alive, is_over, never_ran, settle
from echelon.errors import StateTrouble
from echelon.model import ends
from echelon.model.run import StopSignal

_SUPERVISOR_END = 5.0  # seconds that a supervisor may take from the end of its run to its own
_STOP_PATIENCE = 60.0  # seconds that a damaged run may take to end after the order to stop, beside its grace
_LOOK = 0.1  # seconds between two looks at what lives of it
_SHOWN = 10  # process ids in a message


def stop(folder: RunDir, signal: StopSignal, grace: float | None = None) -> str | None:
    """Write a stop request for the supervisor; a run that never got one ends here. The end of a damaged one,
    which cannot be read later, is waited for. What it could not do is returned.
    """
    if _is_damaged(folder):
        note = None
        with contextlib.suppress(StateTrouble):  # whether it has ended is looked at
            note = _order(folder, signal, grace)
        _await_nothing(folder, _STOP_PATIENCE + 2 * (grace or 0.0))
        return note
    if is_over(folder):
        return _could_not_end(folder.path.name, settle(folder))
    return _order(folder, signal, grace)


def _order(folder: RunDir, signal: StopSignal, grace: float | None) -> str | None:
    reason = stopped_by(signal)
    try:
        request = msgspec.json.encode({**_request(folder, signal, grace), "reason": reason})
        durable.replace_file(folder.stop, request, sync=False)
    except OSError as error:  # a full disk must not keep a run going: signal its supervisor
        _signal_supervisor(folder, SIGKILL if signal == "SIGKILL" else SIGTERM)
        if signal == "SIGINT":
            return f"its ranks get SIGTERM, not SIGINT: {folder.stop}: {error.strerror}"
        return None
    left: list[int] = []
    with store.translated(folder.path), rundir.hold(folder) as lock:
        if lock is not None:
            left = processes.end_processes(folder)
            store.write_final(folder, ends.stopped(reason, at=rundir.now()))
    return _could_not_end(folder.path.name, left)


def _request(folder: RunDir, signal: StopSignal, grace: float | None) -> dict[str, Any]:
    with contextlib.suppress(RunDamaged):
        if (program := store.read_record(folder).job.program) is not None:
            return request_to_stop(folder, program, signal, grace)
    return {"signal": signal, "now": signal == "SIGKILL", "grace": grace}


def settle_for_removal(folder: RunDir, *, force: bool = False) -> None:
    """Wait for the run's supervisor to end, and end what is left running; raises StateTrouble of a run that
    goes on, and of processes that cannot be ended. Whether a damaged run has ended cannot be read: what
    lives of it is ended only by `force`.
    """
    name = folder.path.name
    damaged = _is_damaged(folder)
    if not damaged and not is_over(folder) and not never_ran(folder):
        raise StateTrouble(f"run {name!r} has not ended", hint=f"`echelon stop {name}` first")
    left = processes.end_processes(folder) if damaged and force else []
    await_supervisor(folder, _SUPERVISOR_END)
    if damaged and not force:
        _check_nothing_lives(folder)
        left = processes.end_processes(folder)
    if trouble := _could_not_end(name, left if damaged else settle(folder)):
        raise StateTrouble(trouble, hint=f"end them, and then `echelon rm {name}` again")


def _await_nothing(folder: RunDir, patience: float) -> None:
    deadline = time.monotonic() + patience
    while processes.marked_processes(folder.path) or is_alive(folder):
        if time.monotonic() > deadline:
            _check_nothing_lives(folder)
        time.sleep(_LOOK)


def _check_nothing_lives(folder: RunDir) -> None:
    name, pids = folder.path.name, processes.marked_processes(folder.path)
    if pids or is_alive(folder):
        which = f": processes {_shown(pids)}" if pids else ""
        raise StateTrouble(
            f"run {name!r} is damaged, and something of it still runs{which}",
            hint=f"`echelon stop {name}` ends it; `echelon rm --force {name}` kills and removes it",
        )


def await_supervisor(folder: RunDir, patience: float) -> None:
    """Wait until the run has no holder, for so many seconds at most."""
    deadline = time.monotonic() + patience
    while rundir.is_held(folder) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_damaged(folder: RunDir) -> bool:
    try:
        store.inspect(folder)
        end_of(folder)
    except RunDamaged:
        return True
    return False


def _could_not_end(name: str, pids: Sequence[int]) -> str | None:
    if not pids:
        return None
    return f"processes of run {name!r} could not be ended: {_shown(pids)}"


def _shown(pids: Sequence[int]) -> str:
    return ", ".join(str(pid) for pid in pids[:_SHOWN]) + (", ..." if len(pids) > _SHOWN else "")


def _signal_supervisor(folder: RunDir, number: int) -> None:
    if not is_alive(folder):
        return
    pid = (rundir.read_json(folder.supervisor) or {}).get("pid")
    for each in [pid] if isinstance(pid, int) else processes.marked_processes(folder.path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, number)
