"""Several agents of this machine from one process, the supervisor: to start an interpreter and to import what
an agent needs costs more than all else that an agent does before its ranks run.

An agent that is forked keeps nothing of the supervisor's but what was imported: no descriptor, no signal
handler, and of the module path only the standard library and echelon. The supervisor has one thread."""

from __future__ import annotations

import gc
import os
import signal
import sys

from echelon.agent import streams

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable, Iterable

_HANDLED = (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)


def import_agent() -> None:
    """Import, once for all of them, what an agent needs when it is made or joins."""
    import hmac  # noqa: F401
    import resource  # noqa: F401

    import echelon.agent.agent
    import echelon.agent.gang.join
    import echelon.agent.gang.leader
    import echelon.agent.ranks.reports
    import echelon.agent.ranks.shell  # noqa: F401

    gc.freeze()  # a collection would copy the memory that the agents share


def fork_agent(descriptors: Iterable[int], log: str, env: dict[str, str], live: Callable[[], int]) -> int:
    """Start an agent that has these descriptors and writes to this file; `live()` is what it does, to its
    end. Returns its process id.
    """
    streams.flush()  # or what is pending would be written by both
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    try:
        pid = os.fork()
        if pid == 0:
            _become(set(descriptors), log, env, live, before)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become(
    descriptors: set[int], log: str, env: dict[str, str], live: Callable[[], int], mask: Iterable[int]
) -> None:
    """Be the agent, as if it had been started by itself; does not return."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _close_all_but(descriptors)
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.update(env)
        _isolate()
        code = live()
    except BaseException:  # of any kind: what the interpreter would do with it at its end
        sys.excepthook(*sys.exc_info())
    finally:
        streams.flush()
        os._exit(code)


def _close_all_but(kept: set[int]) -> None:
    try:
        found = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        found = list(range(3, 1024))
    for descriptor in found:
        if descriptor > 2 and descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                pass  # the one by which they were listed


def _isolate() -> None:
    """Import from nowhere else, as under `-I -S`: a user's path may hold modules named as those of Python. Be
    called as the agent's program is, which an agent starts beside itself.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    sys.argv[:] = [os.path.join(here, "__main__.py")]
    home = os.path.dirname(os.path.dirname(here))
    library = os.path.dirname(os.__file__)
    sys.path[:] = [home, *(each for each in sys.path if _is_within(each, library))]


def _is_within(path: str, library: str) -> bool:
    if path == library or path.endswith(".zip"):
        return os.path.dirname(path) == os.path.dirname(library)
    return os.path.basename(path) == "lib-dynload"
