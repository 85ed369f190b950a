"""The first process of a container: it starts the agent as its child, and ends with the agent's exit code.

An agent that is stopped, or hangs, is noticed by its peers; that of a run with one worker has none, and the
first process of a container cannot be killed from inside. So the first process does nothing but watch: the
agent sends it a heartbeat, and is killed when it does not for a while, so that the Job controller replaces
the pod. A container that is stopped as a whole loses no agent: then this process stood still, too."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from echelon.agent import streams
from echelon.agent.gang.silence import OwnTicks
from echelon.agent.ranks.processes import die_with_parent, send, state_of

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

TICK = 1.0  # seconds between two looks
LOST_AFTER = 10.0  # seconds without a heartbeat
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def watch_over(live: Callable[[int], int], task: str, lost_after: float = LOST_AFTER) -> int:
    """Call `live()` in a child with the descriptor that its heartbeats go to, and return its exit code. While
    the descriptor is open and was written to, silence is counted.
    """
    beats, to_us = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(beats)
        os.set_blocking(to_us, False)
        die_with_parent()
        code = 1
        try:
            code = live(to_us)
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            streams.flush()
            os._exit(code)
    os.close(to_us)
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _frame: send(child, got))
    silent = _wait(child, beats, lost_after)
    if silent:
        from echelon.agent.output import termination

        termination.write(_termination_of(task), {"reason": "it did not respond for %g s" % lost_after})
        send(child, signal.SIGKILL)
    return _reap(child)


def _wait(child: int, beats: int, lost_after: float) -> bool:
    """Wait until the agent closes its descriptor, by ending or before; True if it is silent instead."""
    ticks = OwnTicks(TICK, time.monotonic())
    last, has_begun = time.monotonic(), False
    while True:
        ready = select.select([beats], [], [], TICK)[0]
        now = time.monotonic()
        if ready:
            if not os.read(beats, 4096):
                return False
            last, has_begun = now, True
        if ticks.stood_still(now):
            last = now
        if now - last > lost_after:
            state = state_of(child)
            # Another agent would wait for the disk, too; and one that has just begun may take long.
            if state != "D" and (has_begun or state == "T"):
                return True
            last = now
        _reap_others(child)


def _reap_others(child: int) -> None:
    """Take in what `exec` has left: a first process is the parent of all orphans."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == child:
            return
        os.waitpid(found.si_pid, 0)


def _reap(child: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _termination_of(task: str) -> str | None:
    try:
        with open(task, "rb") as file:
            found = json.load(file).get("termination")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None
