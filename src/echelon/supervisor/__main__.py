"""What a supervisor does first and last: it waits in the queue, and writes down how the run ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from echelon.agent.loop import Loop
from echelon.agent.ranks.processes import adopt_orphans, kill_below
from echelon.engines import durable
from echelon.engines.local import cgroups
from echelon.engines.local.folder import rundir
from echelon.engines.local.folder.rundir import RunDir
from echelon.errors import EchelonError, StateTrouble, from_os_error
from echelon.supervisor import ends
from echelon.supervisor.ends import Event
from echelon.supervisor.supervisor import LOOK, Supervisor

QUEUE_LOOK = 1.0  # seconds between two tries to admit a queued run

_ended_by: list[str] = []  # why the supervisor must end: signals that came while the run was queued


def wait_in_queue(folder: RunDir) -> Event | None:
    """Try to admit the run until it fits; returns the end of the run, if that comes first."""
    from echelon.admission import Queued, admit, overdue
    from echelon.engines.local.engine import LocalEngine
    from echelon.model.run import RunRef

    engine = LocalEngine(folder.path.parent.parent)
    ref = RunRef(engine="local", name=folder.path.name)
    while not folder.task.exists():
        stop = rundir.read_json(folder.stop)
        if stop is not None or _ended_by:
            return ends.stopped(str(stop.get("reason")) if stop is not None else _ended_by[0])
        try:
            if (late := overdue(engine.read(ref), time.time())) is not None:
                return ends.written(late)
            outcome = admit(ref, engine)
        except EchelonError as error:
            return ends.failed(error)
        time.sleep(QUEUE_LOOK if isinstance(outcome, Queued) else LOOK)
    return None


def look_after(folder: RunDir, terminal: int | None = None) -> Event:
    """See the run through, and return how it ended."""
    try:
        end = None if folder.task.exists() else wait_in_queue(folder)
        return end or Supervisor(folder, json.loads(folder.task.read_bytes()), Loop(), terminal).run()
    except OSError as error:
        kill_below(os.getpid(), lambda: None)
        return ends.failed(from_os_error(error, folder.path))
    except ValueError as error:
        return ends.failed(
            StateTrouble(f"{folder.task} cannot be read: {error}", hint="submit the run again")
        )


def supervise(path: Path, lock: int, reserved: int, terminal: int | None = None) -> None:
    """Look after the run in the folder given, holding the lock given, and its results folder until the run
    has ended.
    """
    folder = RunDir(path)
    for descriptor in (lock, reserved, *([] if terminal is None else [terminal])):
        os.set_inheritable(descriptor, False)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the ranks would inherit
    signal.signal(signal.SIGTERM, lambda *_: _ended_by.append("the supervisor was told to end (SIGTERM)"))
    adopt_orphans()
    group = cgroups.choose(folder.path)
    started = {"pid": os.getpid(), "at": rundir.now(), **({"cgroup": str(group)} if group else {})}
    durable.replace_file(folder.supervisor, json.dumps(started).encode(), sync=False)
    rundir.make_spare(folder)
    entered = group is not None and cgroups.enter(group)  # its name is written first: it is never lost
    end = look_after(folder, terminal)
    os.close(reserved)  # nothing writes there any more, and who sees the end may go on in it
    rundir.use_spare(folder, all_of_it=True)
    with contextlib.suppress(OSError):  # a full disk: the next reader finds the verdict among the events
        rundir.write_final(folder, end)
    if group is not None and entered:
        cgroups.leave(group)
        cgroups.end(folder.path, group)
    from echelon.engines.local.folder.compaction import (
        compact,  # a run that is over has the time to import it
    )

    compact(folder, succeeded=end.get("outcome") == "succeeded")


if __name__ == "__main__":
    supervise(Path(sys.argv[1]), *map(int, sys.argv[2:]))
