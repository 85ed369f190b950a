"""Incomplete files of a copy, in a folder of their own at the top of the target, so that a copy can be
resumed.

A file's name there is made of its place, size and time, so that the next attempt, also by another process,
finds what an earlier one left. A lock, which ends with its holder, marks a file that another process is
writing right now.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time

from echelon.agent.files import tree
from echelon.agent.files.tree import PARTIAL, BadTree, Entry

TYPE_CHECKING = False  # as mypy reads it; `typing` is not needed at run time
if TYPE_CHECKING:
    from typing import Callable

_PATIENCE = 5.0  # seconds for an earlier receiver of the same file to notice that its connection is gone
_FORGOTTEN = 24 * 3600.0  # seconds after which an abandoned file is removed
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Partials:
    """The incomplete files below the folder `top`; their folder is made when it is first needed."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._name = PARTIAL
        self._folder: int | None = None
        self._held: dict[str, int] = {}  # by key: open, and locked
        self._names: dict[str, str] = {}  # by key: the names of these files

    def close(self) -> None:
        """Close everything; the files stay, for a while."""
        for file in self._held.values():
            os.close(file)
        self._held.clear()
        if self._folder is not None:
            self._clear(lambda _name, age: age > _FORGOTTEN)
            try:
                os.rmdir(self._name, dir_fd=self._top)
            except OSError:
                pass  # it is not empty, or another receiver has removed it
            os.close(self._folder)

    def begun(self, place: list[str], entry: Entry) -> int:
        """How many bytes of a file an earlier attempt left; from now on the file is locked by this one."""
        key = _key(place, entry)
        if self._folder is None and not self._exists():
            return 0
        try:
            file = os.open(key, _OPEN & ~os.O_CREAT, dir_fd=self._open_folder())
        except OSError:
            return 0
        mine = self._is_mine(key, file, _PATIENCE)
        size = os.fstat(file).st_size
        if not mine or not 0 < size <= entry.size:
            os.close(file)
            return 0
        self._held[key], self._names[key] = file, key
        return size

    def open(self, place: list[str], entry: Entry, offset: int) -> int:
        """The file, to continue at the offset; its content from there on is dropped."""
        key = _key(place, entry)
        for other in [each for each in self._held if each != key and _same_place(each, key)]:
            self._drop(other)  # of an earlier version of the file
        file = self._held.get(key)
        if file is None:
            file = self._create(key)
        os.ftruncate(file, offset)
        os.lseek(file, offset, os.SEEK_SET)
        return file

    def file(self, place: list[str], entry: Entry) -> int:
        """The file that was opened."""
        return self._held[_key(place, entry)]

    def move(self, place: list[str], entry: Entry, folder: int) -> None:
        """Rename the file into the folder of its place."""
        key = _key(place, entry)
        os.rename(self._names[key], place[-1], src_dir_fd=self._open_folder(), dst_dir_fd=folder)
        os.close(self._held.pop(key))

    def discard(self, place: list[str], entry: Entry) -> None:
        """Drop what was received of a file."""
        self._drop(_key(place, entry))

    def make_room(self) -> None:
        """Remove all incomplete files, since the disk is full."""
        for key in list(self._held):
            self._drop(key)

    def _drop(self, key: str) -> None:
        file = self._held.pop(key, None)
        if file is not None:
            os.unlink(self._names[key], dir_fd=self._open_folder())
            os.close(file)

    def _create(self, key: str) -> int:
        """A new locked file; under another name if another process is writing one of this name."""
        name = key
        self._clear(lambda other, _age: other != key and _same_place(other, key))
        while True:
            try:
                file = os.open(name, _OPEN, 0o600, dir_fd=self._open_folder())
            except FileNotFoundError:  # another receiver removed the empty folder
                if self._folder is not None:
                    os.close(self._folder)
                self._folder = None
                continue
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR) or name != key:
                    raise
                name = "%s-%s" % (key, os.urandom(8).hex())
                continue
            if self._is_mine(name, file, 0):
                self._held[key], self._names[key] = file, name
                return file
            os.close(file)
            name = "%s-%s" % (key, os.urandom(8).hex())

    def _exists(self) -> bool:
        try:
            os.stat(PARTIAL, dir_fd=self._top, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _open_folder(self) -> int:
        while self._folder is None:
            try:
                os.mkdir(self._name, 0o700, dir_fd=self._top)
            except FileExistsError:
                pass
            try:
                folder = tree.open_folder(self._top, [self._name])
            except FileNotFoundError:
                continue  # removed by another receiver
            except (BadTree, PermissionError):
                folder = -1
            if folder >= 0 and os.fstat(folder).st_uid == os.geteuid():
                self._folder = folder
            else:  # another user's, or no folder at all: not safe for our files
                if folder >= 0:
                    os.close(folder)
                self._name = "%s-%s" % (PARTIAL, os.urandom(8).hex())
        return self._folder

    def _clear(self, unwanted: Callable[[str, float], bool]) -> None:
        """Remove files that are unwanted by name and age, and that no process is writing."""
        folder = self._open_folder()
        for name in os.listdir(folder):
            try:
                file = os.open(name, _OPEN & ~os.O_CREAT, dir_fd=folder)
            except OSError:
                continue
            if unwanted(name, time.time() - os.fstat(file).st_mtime) and self._is_mine(name, file, 0):
                os.unlink(name, dir_fd=folder)
            os.close(file)

    def _is_mine(self, name: str, file: int, patience: float) -> bool:
        """Whether no other process writes this file or has moved it since it was opened."""
        if not _lock(file, patience):
            return False
        try:
            named = os.stat(name, dir_fd=self._open_folder(), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(file))


def _lock(file: int, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)
        except OSError:
            return True  # a file system without locks: two at once would write the same bytes
        else:
            return True


def _key(place: list[str], entry: Entry) -> str:
    """A key of the file's place, and of the size and time that identify its version."""
    version = "%d\0%d" % (entry.size, entry.mtime)
    return "-".join(hashlib.sha256(os.fsencode(part)).hexdigest()[:24] for part in ("/".join(place), version))


def _same_place(one: str, other: str) -> bool:
    return one.partition("-")[0] == other.partition("-")[0]
