"""What lies in the folder of checkpoints, and which of it is complete.

A checkpoint is one entry directly in that folder: a file, a folder, or a link to one of them. It is complete
when its listing (names, sizes and times) has not changed for a while and no process has a file of it open for
writing; or when the ranks have ended by themselves, after which nothing is written any more.

Many scripts write beside their checkpoints which of them is the newest: DeepSpeed's `latest`, Megatron's
`latest_checkpointed_iteration.txt`, a link. Such a pointer must not be safe before what it names."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256

from echelon.agent.files.manifest import Manifest
from echelon.agent.files.tree import FILE, LINK, OTHER, BadTree, check_path, entries_at, look, why_not_link
from echelon.agent.ranks.processes import all_processes

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Collection, Iterable, Mapping

ASIDE = ".echelon-set-aside"  # beside the folder: what is newer than what is safe, or torn
POINTER = 1 << 16  # bytes that a file has at most which may be a pointer
QUIET = 5.0  # seconds without a change after which an entry is complete


class Found:
    """One entry as it is now. `version` changes with everything in it, `at` is its newest time; a `pointer`
    is a link or a small file.
    """

    __slots__ = ("at", "files", "link", "name", "pointer", "size", "version")

    def __init__(
        self, name: str, version: str, files: int, size: int, at: int, link: str = "", pointer: bool = False
    ) -> None:
        self.name = name
        self.version = version
        self.files = files
        self.size = size
        self.at = at  # nanoseconds
        self.link = link
        self.pointer = pointer

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Found | None:
        """An entry from a message; None if it makes no sense."""
        texts = [raw.get(name) for name in ("entry", "version", "link")]
        numbers = [raw.get(name) for name in ("files", "size", "at")]
        sound = all(isinstance(each, str) for each in texts)
        if not sound or not all(type(each) is int and 0 <= each < 1 << 63 for each in numbers):
            return None
        name, version, link = map(str, texts)
        files, size, at = (int(each) for each in numbers if isinstance(each, int))
        try:
            proper = len(check_path(name)) == 1 and (not link or not why_not_link(name, link))
        except BadTree:
            return None
        return cls(name, version, files, size, at, link, raw.get("pointer") is True) if proper else None

    def raw(self) -> dict[str, object]:
        """As a message carries it."""
        values = {name: getattr(self, name) for name in ("version", "files", "size", "at", "link", "pointer")}
        return dict(values, entry=self.name)


def scan(folder: str) -> dict[str, Found]:
    """All entries of the folder that can be copied."""
    try:
        names = os.listdir(folder)
    except OSError:
        return {}  # the script has not made it yet
    found = {}
    for name in names:
        entry = read(folder, name)
        if entry is not None:
            found[name] = entry
    return found


def read(folder: str, name: str) -> Found | None:
    """One entry; None if there is none that can be copied."""
    place = os.path.join(folder, name)
    try:
        check_path(name)
        top = look(place, name)
        if top.kind == OTHER or top.why_not or (top.kind == LINK and "/" in top.link):
            return None
        manifest, at = Manifest(), 0
        for entry in [top] if top.kind == LINK else entries_at(place):
            manifest.add(entry)
            if entry.kind in (FILE, LINK):
                at = max(at, entry.mtime)
    except (OSError, ValueError):
        return None  # it goes while it is looked at, or has a name that cannot be sent
    figures = manifest.raw()
    pointer = top.kind == LINK or (top.kind == FILE and top.size <= POINTER)
    return Found(name, figures["digest"], figures["files"], figures["size"], at, top.link, pointer)


def to_give(
    found: Mapping[str, Found], complete: Iterable[str], has: Collection[str], refused: Collection[str]
) -> Found | None:
    """What is given next to a keeper that `has` some: the newest that is complete. A pointer comes after all
    else, and not while anything that it may name is not there.
    """
    ready = [found[name] for name in complete if name not in has and name not in refused]
    if not ready:
        return None
    first = max(ready, key=lambda each: (not each.pointer, each.at))
    there = max((each.at for name, each in found.items() if name in has and not each.pointer), default=0)
    lacking = (each.at for name, each in found.items() if name not in has and not each.pointer)
    return None if first.pointer and any(there < at <= first.at for at in lacking) else first


def newer(
    found: Mapping[str, Found], safe: list[dict[str, Any]], worker: int, base: Mapping[str, str] | None = None
) -> list[str]:
    """What a worker has that is newer than the newest safe checkpoint, so that not all workers have it whole;
    `safe` is newest first, `base` what has come back. Of times of other workers only what is safe counts.
    """
    if not safe:
        return []
    names, newest = {told["entry"] for told in safe}, safe[0]
    own = found.get(newest["entry"])
    is_part = own is not None and own.version in (
        newest["parts"].get(str(worker)),
        (base or {}).get(own.name),
    )
    since = own.at if own is not None and is_part else newest["at"]
    return [name for name, each in found.items() if name not in names and each.at > since]


def stock_mark(found: Mapping[int, Mapping[str, Found]]) -> str:
    """By which a keeper knows that what a client has sent of an earlier start, by workers, has all come."""
    versions = {str(worker): {name: each[name].version for name in each} for worker, each in found.items()}
    return sha256(json.dumps(versions, sort_keys=True).encode()).hexdigest()[:32]


def set_aside(folder: str, name: str, aside: str) -> None:
    """Move an entry of the folder to another one; what is there under its name makes way."""
    place = os.path.join(aside, name)
    remove(place)
    os.makedirs(aside, exist_ok=True)
    os.rename(os.path.join(folder, name), place)


def remove(place: str) -> None:
    """Have nothing there."""
    if os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place)
    elif os.path.lexists(place):
        os.unlink(place)


class Watch:
    """Which entries are complete. Pure: the caller tells what it has found, and the time."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float]] = {}  # the version of each entry, and since when
        self._torn: dict[str, str] = {}  # versions that nothing will complete: ranks died over them
        self.complete: dict[str, str] = {}

    def see(self, found: Mapping[str, Found], now: float) -> None:
        """The folder is like this now."""
        for name in [name for name in self._since if name not in found]:
            del self._since[name]
            self.complete.pop(name, None)
        for name, entry in found.items():
            if self._since.get(name, ("", 0.0))[0] != entry.version:
                self._since[name] = entry.version, now
                self.complete.pop(name, None)

    def quiet(self, now: float) -> list[str]:
        """Entries that are complete unless a process has them open."""
        return [
            name
            for name, (version, since) in self._since.items()
            if name not in self.complete and self._torn.get(name) != version and now - since >= QUIET
        ]

    def confirm(self, names: Iterable[str]) -> None:
        """These are complete."""
        for name in names:
            self.complete[name] = self._since[name][0]

    def end(self, trusted: bool) -> None:
        """No rank runs any more. If they have ended by themselves, all is complete; else what is not is torn,
        and so stays until it is written anew.
        """
        for name, (version, _since) in self._since.items():
            if name in self.complete or self._torn.get(name) == version:
                continue
            if trusted:
                self.complete[name] = version
            else:
                self._torn[name] = version


def written_now(folder: str) -> set[str]:
    """The entries of which any process has a file open for writing."""
    top = os.path.realpath(folder) + "/"
    found = set()
    for pid in all_processes():
        place = "/proc/%d/fd" % pid
        try:
            files = os.listdir(place)
        except OSError:
            continue  # another user's, or it has ended
        for file in files:
            try:
                path = os.readlink("%s/%s" % (place, file))
                if path.startswith(top) and _writes("/proc/%d/fdinfo/%s" % (pid, file)):
                    found.add(path[len(top) :].partition("/")[0])
            except OSError:
                continue
    return found


def _writes(info: str) -> bool:
    with open(info, "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False
