"""A bundle of code, unpacked into a folder; safe to repeat, and safe from several agents at once.

- **All or nothing.** The folder is filled under a temporary name beside the target, and renamed. An agent
  that is killed meanwhile leaves a folder that the next attempt removes; a lock, which ends with its holder,
  marks one that is still being filled.
- **Several at once.** Agents on one machine may unpack the same bundle at the same moment. The first to
  rename wins; the others find the winner's marker and use its folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib

from echelon.agent.setup.untar import MARKER, BadBundle, Stream, Tree

__all__ = ["LIMIT", "BadBundle", "join_parts", "unpack"]

LIMIT = 4 << 30  # bytes that an archive may grow to

_SUFFIX = ".unpacking"


def join_parts(paths: list[str]) -> bytes:
    """The content of a file that was shipped in parts."""
    pieces = []
    for path in paths:
        with open(path, "rb") as file:
            pieces.append(file.read())
    return b"".join(pieces)


def unpack(data: bytes, digest: str, target: str, limit: int = LIMIT) -> str:
    """Unpack a bundle into the folder `target`, unless it is there already; returns the folder.

    `digest` is the sha256 of the data. The target may be missing or an empty folder; its parent is made if
    needed. Only this user may read the result. Raises BadBundle for a bad bundle, FileExistsError when
    something else is at the target, and OSError when the disk is full or read-only.
    """
    if _sha256(data) != digest:
        raise BadBundle("the bundle is damaged: its content does not have the digest %s" % digest)
    target = os.path.abspath(target)
    if _holds(target, digest):
        return target
    parent, name = os.path.split(target)
    os.makedirs(parent, exist_ok=True)
    prefix = "." + name + "."
    _clear_abandoned(parent, prefix)
    folder, lock = _make_private_folder(parent, prefix)
    try:
        Tree(os.fsencode(folder)).fill(Stream(data, limit))
        with open(os.path.join(folder, MARKER), "x", encoding="ascii") as marker:  # "x" follows no link
            marker.write(digest)
        _put_in_place(folder, target, digest)
    except zlib.error as error:
        raise BadBundle("the bundle is damaged: %s" % error) from error
    finally:
        _remove(folder)  # gone already, unless this failed or another agent was faster
        os.close(lock)
    return target


def main(argv: list[str]) -> int:
    """`unpack FILE DIGEST TARGET`: unpack an archive; what is wrong is the last line on standard error."""
    import sys

    path, digest, target = argv
    try:
        with open(path, "rb") as file:
            unpack(file.read(), digest, target)
    except (BadBundle, OSError) as error:
        print(describe_error(error), file=sys.stderr)
        return 1
    return 0


def describe_error(error: Exception) -> str:
    """The error in words, with its path and without its number."""
    if isinstance(error, OSError) and error.strerror:
        return "%s: %s" % (error.filename, error.strerror) if error.filename else error.strerror
    return str(error)


def _sha256(data: bytes) -> str:
    try:  # without OpenSSL, which takes longer to load than the digest of most code
        from _sha2 import sha256  # type: ignore[import-not-found]
    except ImportError:  # before Python 3.12
        from hashlib import sha256
    digest: str = sha256(data).hexdigest()
    return digest


def _holds(target: str, digest: str) -> bool:
    try:
        with open(os.path.join(target, MARKER), encoding="ascii") as marker:
            return marker.read() == digest
    except (OSError, ValueError):
        return False


def _put_in_place(folder: str, target: str, digest: str) -> None:
    try:
        os.rename(folder, target)  # atomic; the target may be an empty folder
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        if not _holds(target, digest):
            raise FileExistsError(errno.EEXIST, "something else is there already", target) from error


def _make_private_folder(parent: str, prefix: str) -> tuple[str, int]:
    """A folder with a lock on it, which ends with this process."""
    while True:
        folder = os.path.join(parent, prefix + os.urandom(8).hex() + _SUFFIX)
        os.mkdir(folder, 0o700)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # removed by another agent before it was locked
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue  # being removed
        except OSError:
            pass  # a file system without locks: no agent gets one, so nothing is removed
        if os.path.isdir(folder):
            return folder, lock
        os.close(lock)


def _clear_abandoned(parent: str, prefix: str) -> None:
    """Remove what killed agents left: temporary folders that no process has locked."""
    for name in os.listdir(parent):
        if not (name.startswith(prefix) and name.endswith(_SUFFIX)):
            continue
        folder = os.path.join(parent, name)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)
        except OSError:
            pass  # in use, or a file system without locks
        finally:
            os.close(lock)


def _remove(folder: str) -> None:
    if os.path.isdir(folder):
        import shutil  # seldom needed, and slow to import

        shutil.rmtree(folder, ignore_errors=True)
