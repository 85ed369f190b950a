"""Writing below the state folder, so that a power cut leaves a file's old content or its new one, never half;
and forcing results that were fetched to disk.

Everything that is written to the state folder comes through this file. What decides something is forced to
the disk: the file, then, after it got its name, its folder. Standard library only: the supervisor must start
quickly."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in the place of a damaged run's file is not waited for


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Replace a file in one step; it is its owner's alone.

    Without `sync` a power cut may leave it empty: for what means nothing once the machine was restarted."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
    try:
        write_file(temporary, content, sync=sync)
        rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def forget_older(folder: Path, seconds: float) -> None:
    """Remove the files of a folder that were written longer ago."""
    for entry in folder.iterdir():
        with suppress(OSError):  # another process was faster, or it is none of ours
            if time.time() - entry.stat().st_mtime > seconds:
                entry.unlink(missing_ok=True)


def write_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Make a file that is not there yet; for files of a folder that gets its name later, by `move_folder`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(descriptor)


def append_line(path: Path, line: bytes) -> None:
    """Append a line in one write, so that those of several writers do not mix. It is not forced to disk. What
    a full disk or a power cut has left of a line before ends there; so may, for a reader, what another writer
    is just writing: an empty line can stand between two.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), str(path))
        size = found.st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, for the user alone."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True, mode=0o700)
        sync_folder(path.parent)


def move_folder(source: Path, target: Path) -> None:
    """Give a folder another name, with what it has now."""
    sync_folder(source)
    rename(source, target)
    sync_folder(target.parent)


def move_file(source: Path, target: Path) -> None:
    """Give a file that was forced to disk another name in its folder, and force that to disk."""
    rename(source, target)
    sync_folder(target.parent)


def rename(source: Path, target: Path) -> None:
    """Give a file or folder another name, without forcing that to disk."""
    source.replace(target)


def sync_file(path: Path) -> None:
    """Force what was appended to a file to disk."""
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Force the names in a folder to disk; a file system that cannot does it in its own time."""
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def sync_tree(path: Path) -> None:
    """Force all that is below a folder to disk. Linux does it with one call for the whole file system, which
    takes about as long as one file; elsewhere it is done file by file.
    """
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        done = _sync_file_system(descriptor)
    finally:
        os.close(descriptor)
    if not done:
        _sync_each(path)


def _sync_file_system(descriptor: int) -> bool:
    """False where the system has no call for it."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return False
    if call(descriptor) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code))


def _sync_each(path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    folders = [Path(folder) for folder, _, _ in os.walk(path)]
    files = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    with ThreadPoolExecutor(8) as pool:  # a disk does several at a time
        list(pool.map(sync_file, (file for file in files if not file.is_symlink() and file.is_file())))
        list(pool.map(sync_folder, folders))
