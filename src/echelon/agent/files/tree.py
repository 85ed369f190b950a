"""What a copied tree may contain, and how a path below a folder is opened without following a link.

The sender lists a tree with it, and the receiver checks every name with it, because neither trusts the other.
Names are kept as Python keeps them (bytes that are not text become lone surrogates), so that any name can be
copied.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False  # as mypy reads it; `typing` is not needed at run time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

PARTIAL = ".echelon-partial"  # the prefix of our own names for incomplete files
MARKER = ".echelon-run"  # in a results folder, for which run it is reserved (`engines/reservation.py`)
_OWN = (PARTIAL, MARKER)  # are never copied
DEEPEST = 100  # levels of folders; it must be possible to delete them again
FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "other"

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMED = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


class BadTree(ValueError):
    """A tree that cannot be copied: it is malicious, or something else is where it should go."""


class Entry:
    """One file, folder or link of a tree. `why_not` is the reason if it cannot be copied."""

    __slots__ = ("kind", "link", "mode", "mtime", "path", "size", "why_not")

    def __init__(
        self,
        path: str,
        kind: str,
        size: int = 0,
        mode: int = 0,
        mtime: int = 0,  # nanoseconds
        link: str = "",
        why_not: str = "",
    ) -> None:
        self.path = path
        self.kind = kind
        self.size = size
        self.mode = mode
        self.mtime = mtime
        self.link = link
        self.why_not = why_not

    def raw(self) -> dict[str, Any]:
        """The entry as JSON; empty fields are left out."""
        values = {name: getattr(self, name) for name in Entry.__slots__}
        return {name: value for name, value in values.items() if value or name in ("path", "kind")}


def _senseless(raw: dict[str, Any]) -> BadTree:
    return BadTree("an entry of the tree makes no sense: %.200r" % (raw,))


def read_entry(raw: dict[str, Any]) -> Entry:
    """An entry from its JSON; raises BadTree for one that no echelon sends."""
    try:
        entry = Entry(
            **{str(name): value for name, value in raw.items() if name in Entry.__slots__}  # newer: ignored
        )
        texts = (entry.path, entry.kind, entry.link, entry.why_not)
        numbers = (entry.size, entry.mode, entry.mtime)
        sound = all(type(text) is str for text in texts) and all(type(value) is int for value in numbers)
    except TypeError:
        raise _senseless(raw) from None
    if not sound or entry.kind not in (FILE, FOLDER, LINK, OTHER) or not 0 <= entry.size < 1 << 62:
        raise _senseless(raw)
    entry.mode &= 0o777  # never special rights
    return entry


def check_path(path: str) -> list[str]:
    """The parts of a path that stays below its folder; raises BadTree for any other."""
    parts = path.split("/")
    if path.startswith("/"):
        raise BadTree("%s is an absolute path" % shown(path))
    if ".." in parts:
        raise BadTree("%s climbs out of the folder" % shown(path))
    try:
        longest = max(len(os.fsencode(part)) for part in parts)
    except UnicodeEncodeError:
        longest = 1 << 16
    if "" in parts or "." in parts or "\0" in path or longest > 255 or len(parts) > DEEPEST:
        raise BadTree("%s is not a proper name" % shown(path))
    if any(part.startswith(_OWN) for part in parts):
        raise BadTree("%s is a name of our own" % shown(path))
    return parts


def why_not_link(path: str, target: str) -> str:
    """Why a link may not be made, or "".

    It may climb only at its beginning, and no higher than the top of the tree: after a name, `..` would
    depend on where that name leads.
    """
    parts = target.split("/")
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    if not target or "\0" in target:
        return "a link to nothing"
    if target.startswith("/"):
        return "a link to an absolute path, %s" % shown(target)
    if climbs > path.count("/") or ".." in parts[climbs:]:
        return "a link out of the folder, to %s" % shown(target)
    return ""


def relative_link(path: str, target: str, top: str) -> str:
    """The target of the link at `path`: one that names a place inside the folder `top` by its absolute path
    is made relative, so that it stays a link wherever the folder is copied to.
    """
    for above in (top, os.path.realpath(top)) if top and target.startswith("/") else ():
        if target == above or target.startswith(above.rstrip("/") + "/"):
            below = [part for part in target[len(above) :].split("/") if part not in ("", ".")]
            if ".." not in below:  # else it depends on where the names before it lead
                return "/".join([".."] * path.count("/") + below) or "."
    return target


def moved_link(path: str, link: str, place: str, move: Callable[[str], str]) -> str:
    """The target of a link whose tree is put together anew: `move` gives the new place of each path of it."""
    if why_not_link(path, link) or link.startswith("/"):
        return link
    whole = os.path.normpath(os.path.join(os.path.dirname(path), link))  # `..` is at the beginning only
    if whole == "." or (move(whole) == whole and place == path):
        return link
    return os.path.relpath("/" + move(whole), os.path.dirname("/" + place))


def shown(path: str) -> str:
    """A path for a message, shortened and with unprintable characters escaped."""
    return repr(path[:200])


def find(root: str, path: str) -> str | None:
    """The real path of `path` below `root`, with links followed while they stay inside; None if nothing is
    there.
    """
    top = os.path.realpath(root)
    place = os.path.realpath(os.path.join(top, path))
    if place != top and not place.startswith(top.rstrip("/") + "/"):
        raise BadTree("%s is outside %s" % (shown(path), shown(root)))
    return place if os.path.exists(place) else None


def entries_at(place: str) -> Iterator[Entry]:
    """The listing of what is at `place`: everything below a folder, or the one file."""
    return walk(place) if os.path.isdir(place) else iter([look(place, os.path.basename(place))])


def walk(top: str) -> Iterator[Entry]:
    """Everything below a folder, each folder before what is in it, in order of names."""
    pending = [("", _scan(top))]
    while pending:
        above, found = pending[-1]
        try:
            item = next(found, None)
        except OSError as error:
            item = None
            yield Entry(above or ".", FOLDER, why_not="cannot be read: %s" % error.strerror)
        if item is None:
            pending.pop()
            continue
        if item.name.startswith(_OWN):
            continue
        path = above + "/" + item.name if above else item.name
        entry = look(item.path, path, top)
        yield entry
        if entry.kind == FOLDER and not entry.why_not:
            pending.append((path, _scan(item.path)))


def look(place: str, path: str, top: str = "") -> Entry:
    """The entry for what is at `place`, which is `path` below the folder `top`."""
    try:
        found = os.lstat(place)
        kind = kind_of(found.st_mode)
        link = relative_link(path, os.readlink(place), top) if kind == LINK else ""
    except OSError as error:
        return Entry(path, OTHER, why_not="cannot be read: %s" % error.strerror)
    why_not = ""
    if kind == OTHER:
        why_not = _NAMED.get(stat.S_IFMT(found.st_mode), "a device")
    elif kind == LINK:
        why_not = why_not_link(path, link)
    elif path.count("/") >= DEEPEST:
        why_not = "too deep below its folder"
    elif kind == FILE and not os.access(place, os.R_OK):
        why_not = "may not be read"
    size = found.st_size if kind == FILE else 0
    return Entry(path, kind, size, stat.S_IMODE(found.st_mode) & 0o777, found.st_mtime_ns, link, why_not)


def kind_of(mode: int) -> str:
    """The kind of entry that a mode stands for."""
    if stat.S_ISREG(mode):
        return FILE
    if stat.S_ISDIR(mode):
        return FOLDER
    return LINK if stat.S_ISLNK(mode) else OTHER


def open_folder(top: int, parts: list[str], make: bool = False) -> int:
    """A descriptor of the folder at these parts below the folder `top`; no link on the way is followed."""
    folder = os.open(".", _OPEN_FOLDER, dir_fd=top)
    for at, part in enumerate(parts):
        try:
            if make:
                try:
                    os.mkdir(part, dir_fd=folder)
                except FileExistsError:
                    pass
            below = os.open(part, _OPEN_FOLDER, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                where = shown("/".join(parts[: at + 1]))
                raise BadTree("%s is not a folder, but a file or a link" % where) from error
            raise
        finally:
            os.close(folder)
        folder = below
    return folder


def open_file(top: int, parts: list[str]) -> int:
    """A descriptor to read the file at these parts below the folder `top`; raises OSError if it is none."""
    folder = open_folder(top, parts[:-1])
    try:
        # Without O_NONBLOCK the opening of a pipe would wait for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(parts[-1], flags, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "is no longer a file", "/".join(parts))
    return file


def digest_of(file: int, upto: int, tick: Callable[[], object]) -> Any:
    """The unfinished sha256 of the first bytes of an open file; `tick` is called meanwhile."""
    import hashlib

    digest = hashlib.sha256()
    at = 0
    while at < upto:
        piece = os.pread(file, min(1 << 20, upto - at), at)
        if not piece:
            break  # shorter than it was: the digests will differ, and reveal it
        digest.update(piece)
        at += len(piece)
        tick()
    return digest


def _scan(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        items = sorted(found, key=lambda item: item.name)
    for item in items:
        yield item
