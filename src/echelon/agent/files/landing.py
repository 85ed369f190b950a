"""The target folder of a copy: each file is put in its place in one step, when it is complete.

Every path is walked from the folder down without following a link, so that nothing is written outside it,
whatever is there already. Incomplete files are in `partial`.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from echelon.agent.files import tree
from echelon.agent.files.partial import Partials
from echelon.agent.files.tree import PARTIAL, BadTree, Entry, shown

TYPE_CHECKING = False  # as mypy reads it; `typing` is not needed at run time
if TYPE_CHECKING:
    from typing import Callable

_BEGUN = PARTIAL + "-begun"  # in a folder that a copy has made and not filled yet
_TAKEN = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)  # a folder is where a file should go


def is_complete(folder: str) -> bool:
    """Whether there is such a folder, and no copy to it was cut off."""
    return os.path.isdir(folder) and not os.path.lexists(os.path.join(folder, _BEGUN))


class Landing:
    """The folder that a tree is copied to."""

    def __init__(self, folder: str, begins: bool = False) -> None:
        """With `begins`, a folder that is made here has a mark until `end`: a copy that was cut off goes on
        there, while one into a folder that was complete goes below it.
        """
        new = begins and not os.path.isdir(folder)
        os.makedirs(folder, exist_ok=True)
        self._top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.partials = Partials(self._top)
        if new:
            os.close(os.open(_BEGUN, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self._top))

    def end(self) -> None:
        """All of it is here."""
        try:
            os.unlink(_BEGUN, dir_fd=self._top)
        except FileNotFoundError:
            pass

    def close(self) -> None:
        """Close everything; incomplete files stay, for a while."""
        self.partials.close()
        os.close(self._top)

    # Existing files

    def stat(self, place: list[str]) -> os.stat_result | None:
        """The file in its place; None if there is none, or a link that the file will replace."""
        folder = tree.open_folder(self._top, place[:-1], make=True)
        try:
            found = os.stat(place[-1], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        finally:
            os.close(folder)
        if stat.S_ISDIR(found.st_mode):
            raise _in_the_way(place)
        return found if stat.S_ISREG(found.st_mode) else None

    def digest(self, place: list[str], size: int, tick: Callable[[], object]) -> str:
        """The sha256 of the file in its place."""
        file = tree.open_file(self._top, place)
        try:
            return str(tree.digest_of(file, size, tick).hexdigest())
        finally:
            os.close(file)

    def settle(self, place: list[str], entry: Entry) -> None:
        """Give the file in its place the mode and the time that it has at its source."""
        file = tree.open_file(self._top, place)
        try:
            _settle(file, entry)
        except PermissionError:
            pass  # another user's file, with the right content
        finally:
            os.close(file)

    # Folders and links

    def make_folder(self, place: list[str]) -> None:
        """Make a folder, unless it exists."""
        os.close(tree.open_folder(self._top, place, make=True))

    def set_mode(self, place: list[str], mode: int) -> None:
        """Set a folder's mode. Its owner keeps all rights: to copy into it again, and to delete it."""
        folder = tree.open_folder(self._top, place)
        try:
            os.fchmod(folder, mode | stat.S_IRWXU)
        except PermissionError:
            pass  # it existed before, and is another user's
        finally:
            os.close(folder)

    def make_link(self, place: list[str], target: str) -> None:
        """Make a link, in one step; a file or another link in its place is replaced."""
        folder = tree.open_folder(self._top, place[:-1], make=True)
        temporary = "%s.%s" % (PARTIAL, os.urandom(8).hex())
        try:
            try:
                if os.readlink(place[-1], dir_fd=folder) == target:
                    return
            except OSError:
                pass  # there is nothing, or no link
            os.symlink(target, temporary, dir_fd=folder)
            try:
                os.rename(temporary, place[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                os.unlink(temporary, dir_fd=folder)
                if error.errno in _TAKEN:
                    raise _in_the_way(place) from error
                raise
        finally:
            os.close(folder)

    # Files

    def put_in_place(self, place: list[str], entry: Entry) -> None:
        """Give a complete file its mode, time and name."""
        file = self.partials.file(place, entry)
        _settle(file, entry)
        folder = tree.open_folder(self._top, place[:-1], make=True)
        try:
            self.partials.move(place, entry, folder)
        except OSError as error:
            if error.errno in _TAKEN:
                raise _in_the_way(place) from error
            if error.errno != errno.EXDEV:
                raise
            _copy_across(file, entry, folder, place[-1])
            self.partials.discard(place, entry)
        finally:
            os.close(folder)


def write_all(file: int, data: bytes) -> None:
    """Write all of the data."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _settle(file: int, entry: Entry) -> None:
    os.fchmod(file, entry.mode)
    os.utime(file, ns=(time.time_ns(), entry.mtime))


def _copy_across(file: int, entry: Entry, folder: int, name: str) -> None:
    """Copy a file to its place on another file system under a temporary name, then rename it."""
    temporary = "%s.%s" % (PARTIAL, os.urandom(8).hex())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    there = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        at = 0
        while True:
            piece = os.pread(file, 1 << 20, at)
            if not piece:
                break
            at += len(piece)
            write_all(there, piece)
        _settle(there, entry)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(there)


def _in_the_way(place: list[str]) -> BadTree:
    return BadTree("a folder is where %s should go" % shown("/".join(place)))
