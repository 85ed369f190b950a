"""A results folder belongs to one run at a time: a file in the folder itself says to which.

Links, other state folders and other users lead to the same file. A run of this machine has a lock on it from
its submission to its end; its supervisor holds that, so that the reservation ends with the process, however
that ends. A run elsewhere has no process here: its reservation lasts until a submission finds that it has
ended (`echelon/reserving.py`); while it is being submitted the command holds the lock."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from echelon.agent.files.tree import MARKER
from echelon.errors import EchelonError, RunExists, StateTrouble, from_os_error
from echelon.state_home import named_state_home
from echelon.values import frozen

RUNS = "runs"
"""The folder with the results of runs whose user names none."""
NO_RESULTS = (MARKER, ".gitignore")
"""What may be in a results folder before a run has written to it."""
_IGNORES_ALL = "*\n"
_MOST = 4096  # bytes that are read of a marker
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # another user may have put anything there
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # of file systems without


@frozen
class Owner:
    """The run that a folder is reserved for: its address, and when it was recorded. `state` is the state
    folder of a run of this machine; one that is elsewhere has none.
    """

    run: str
    created: float
    state: str = ""

    @property
    def name(self) -> str:
        """The run's name."""
        return self.run.partition("://")[2].partition("?")[0].rpartition("/")[2]


class Hold:
    """A marker that this process has locked. Processes that inherit the descriptor hold it, too; without them
    it is let go when it is closed, or dropped.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """Its descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Let it go, as far as this process is concerned."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def reserve(folder: Path, owner: Owner) -> Hold:
    """Reserve a folder, which is made if it is not there, for a run. The reservation of a run of this machine
    lasts as long as the hold that is returned. Raises StateTrouble, which names the run that has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while (hold := _try_to_reserve(folder, owner)) is None:
            pass  # another process has removed the marker meanwhile, or we have another user's
    except OSError as error:
        raise from_os_error(error, folder) from error
    return hold


def _try_to_reserve(folder: Path, owner: Owner) -> Hold | None:
    hold, writable = _open(folder / MARKER)
    with ExitStack() as unless_reserved:
        unless_reserved.enter_context(hold)
        if not _lock(hold) or not _may_take(_read(hold), owner):
            raise _refused(folder, _read(hold), owner)
        if not _is_there(folder / MARKER, hold):
            return None
        if not writable:  # of a user who holds it no more
            (folder / MARKER).unlink()
            return None
        text = json.dumps({"run": owner.run, "created": owner.created, "state": owner.state})
        os.ftruncate(hold.fileno(), 0)
        os.pwrite(hold.fileno(), text.encode() + b"\n", 0)
        unless_reserved.pop_all()
        return hold


def check_free(folder: Path, owner: Owner) -> None:
    """Raise what `reserve` would for a folder of another run; nothing is made."""
    with suppress(OSError), _opened(folder / MARKER) as hold:
        before = _read(hold)
        if not _lock(hold) or not _may_take(before, owner):
            raise _refused(folder, before, owner)


def _refused(folder: Path, before: Owner | None, owner: Owner) -> EchelonError:
    """Why a folder cannot be had. A process that holds it for a run of the same address submits that run."""
    if before is None or before.state or before.run != owner.run:
        return in_use(folder, before)
    hint = f"another command submits it at this moment; `echelon status {shlex.quote(owner.name)}` shows it"
    return RunExists(f"a run named {owner.name!r} exists", hint=hint)


def _may_take(before: Owner | None, owner: Owner) -> bool:
    """Whether a reservation that no process holds is over: a run elsewhere needs no process here."""
    return before is None or bool(before.state) or before.run == owner.run


def owner_of(folder: Path) -> Owner | None:
    """The run that a folder was reserved for last; None if there is none. Anybody may have written it."""
    try:
        with _opened(folder / MARKER) as hold:
            return _read(hold)
    except OSError:
        return None


def withdraw(folder: Path, owner: Owner) -> None:
    """The run, which is elsewhere, has ended: its folder is free."""
    with suppress(OSError), _opened(folder / MARKER) as hold:
        if _lock(hold) and _read(hold) == owner and _is_there(folder / MARKER, hold):
            (folder / MARKER).unlink()


def forget(folder: Path, owner: Owner) -> None:
    """The run is removed: of a folder `runs/NAME` without results nothing stays. Among results the marker
    stays, or an older run, of which they are not, would bring its own there.
    """
    with suppress(OSError, UnicodeError):
        if {each.name for each in folder.iterdir()} <= {MARKER}:
            withdraw(folder, owner)
            if folder.parent.name == RUNS:
                folder.rmdir()
                _remove_if_ours(folder.parent)


def make_runs(folder: Path) -> None:
    """Make the folder for results that the user has given no other, so that git ignores it; no other one."""
    if folder.absolute() != Path(RUNS).absolute():
        return
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    (folder / ".gitignore").write_text(_IGNORES_ALL, encoding="utf-8")


def _remove_if_ours(runs: Path) -> None:
    ignore = runs / ".gitignore"
    if [*runs.iterdir()] == [ignore] and ignore.read_text(encoding="utf-8") == _IGNORES_ALL:
        ignore.unlink()
        runs.rmdir()


def in_use(folder: Path, owner: Owner | None) -> StateTrouble:
    """The error for a folder that another run writes to."""
    other = "--results chooses another folder"
    if owner is None:
        return StateTrouble(f"the results folder {folder} is in use by another run", hint=other)
    named = describe(owner)
    command = f"echelon stop {shlex.quote(owner.name if owner.state else owner.run)}"
    if owner.state and owner.state != _own_state():
        command = f"ECHELON_HOME={shlex.quote(owner.state)} {command}"
    return StateTrouble(
        f"the results folder {folder} is in use: {named} writes to it",
        hint=f"{other}; `{command}` ends that run",
    )


def describe(owner: Owner) -> str:
    """The run that has a folder, for a message."""
    if not owner.state:
        return f"run {owner.run}"
    return f"run {owner.name!r}" + (f" of {owner.state}" if owner.state != _own_state() else "")


def _own_state() -> str:
    with suppress(StateTrouble):
        return str(named_state_home())
    return ""


def _open(path: Path) -> tuple[Hold, bool]:
    """The marker, made if there is none, and whether it can be written: that of another user cannot."""
    try:
        return Hold(os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o644)), True
    except PermissionError:
        return _opened(path), False


def _opened(path: Path) -> Hold:
    """The marker as it is."""
    return Hold(os.open(path, os.O_RDONLY | _FLAGS))


def _lock(hold: Hold) -> bool:
    try:
        fcntl.flock(hold.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _is_there(path: Path, hold: Hold) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(hold.fileno()))
    except FileNotFoundError:
        return False


def _read(hold: Hold) -> Owner | None:
    try:
        found = json.loads(os.pread(hold.fileno(), _MOST, 0))
        owner = Owner(run=str(found["run"]), created=float(found["created"]), state=str(found["state"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return owner if owner.name else None
