"""The process tree below an agent: so that no child or grandchild of a rank outlives it.

On Linux the agent adopts every orphan below it (a subreaper), finds its descendants in /proc, and has the
kernel kill the ranks with it. Elsewhere (macOS) there is no such help: the process group of each rank is
ended, and a grandchild that left its group can stay."""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_THREADS = 17  # where their number is in what `stat_of` gives
_SHELLS = (b"sh", b"bash", b"dash", b"ash", b"zsh", b"ksh")


def _load_prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return prctl


_prctl = _load_prctl()


def adopt_orphans() -> bool:
    """Become the parent of every orphan below this process; False where the system cannot do that."""
    return _prctl is not None and _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it dies; for the moment between fork and
    exec.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def descendants(root: int, but: set[int] | None = None) -> list[int]:
    """Every process below `root`, zombies left out, and those in `but` with all that is below them."""
    return list(parents_below(root, but))


def parents_below(root: int, but: set[int] | None = None) -> dict[int, int]:
    """The same, each with its parent."""
    if root == os.getpid() and not _has_children():
        return {}  # at once: elsewhere on this machine there may be thousands of processes to look at
    parents = {}
    for pid in all_processes():
        parent, lives = _parent_and_life(pid)
        if parent is not None and lives:
            parents[pid] = parent
    children: dict[int, list[int]] = {}
    for pid, seen in parents.items():
        # One that has ended since the child was looked at has left it to another.
        parent = seen if seen in parents else _parent_and_life(pid)[0]
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    unseen = [root]
    while unseen:
        parent = unseen.pop()
        for child in children.get(parent, ()):
            if not but or child not in but:
                found[child] = parent
                unseen.append(child)
    return found


def session_of(pid: int) -> int | None:
    """The process that leads the session of a process; a rank leads its own."""
    fields = stat_of(pid)
    return int(fields[3]) if len(fields) > 3 else None


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    return _has_signal(pid, b"SigCgt:", number)


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal, as SIGINT in the background of a shell."""
    return _has_signal(pid, b"SigIgn:", number)


def _has_signal(pid: int, field: bytes, number: int) -> bool:
    try:
        with open("/proc/%d/status" % pid, "rb") as file:
            masks = [line.split()[1] for line in file if line.startswith(field)]
        return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        return False


def _has_children() -> bool:
    """Whether this process has any, ended ones that no process has waited for included. Where that cannot be
    asked, it may have.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except AttributeError:  # macOS before Python 3.13
        pass
    return True


def all_processes() -> list[int]:
    """The ids of all processes of this machine, or of this container; none where there is no /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def stat_of(pid: int) -> list[bytes]:
    """What /proc tells of a process, from its state on; nothing if it has ended."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            # The name in parentheses may hold anything; what follows the last one does not.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _parent_and_life(pid: int) -> tuple[int | None, bool]:
    """The parent of a process, and whether it has not ended: its first thread may end before the others, and
    what it has started is theirs then.
    """
    try:
        fields = stat_of(pid)
        return int(fields[1]), fields[0] != b"Z" or int(fields[_THREADS]) > 1
    except (ValueError, IndexError):
        return None, False


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does: T is stopped, D waits for a disk; nothing where it is not
    known.
    """
    return b"".join(stat_of(pid)[:1]).decode()


def interrupted(pid: int) -> list[int]:
    """The processes that Ctrl-C is meant for: a rank's main process and, where that is a shell, which waits
    for its commands whatever it gets, those too.
    """
    try:
        with open("/proc/%d/comm" % pid, "rb") as file:
            name = file.read().strip()
    except OSError:
        name = b""
    if name not in _SHELLS:
        return [pid]
    return [pid] + [each for each in descendants(pid) if _parent_and_life(each)[0] == pid]


def send(pid: int, number: int) -> bool:
    """Send a signal; False if the process is gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_below(
    root: int,
    reap: Callable[[], object],
    groups: list[int] | None = None,
    patience: float = 5.0,
    but: set[int] | None = None,
) -> bool:
    """Kill every descendant, but those that are to stay, until none is left, calling `reap()` in between;
    True if that worked in time.

    Round after round, because a process can fork while it is being looked for.
    """
    deadline = time.monotonic() + patience
    if not os.path.isdir("/proc/self"):
        for group in groups or ():  # the tree cannot be seen here: the groups are all that can be named
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
    while True:
        reap()
        left = descendants(root, but)
        if not left:
            reap()  # those that ended while we looked
            return True
        for pid in left:
            send(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)


def allow_descriptors(workers: int) -> None:
    """A large gang needs more connections than a shell's usual limit; take what the system grants."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * workers + 768  # the strangers that a leader holds at its door included
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
