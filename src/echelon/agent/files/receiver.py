"""The receiving end of a copy: it decides what it needs, requests it, and puts it in place.

On the submitting machine it fetches results and volumes; in a pod it is `files receive`. A file is put in
place when its sha256 matches, so that a reader sees the old file or the new one. A broken copy is resumed; a
file that is in its place already is not requested again.

Nothing that the other end sends leads outside the target: see `tree` and `landing`.
"""

from __future__ import annotations

import errno
import os
import stat

from echelon.agent.files import tree
from echelon.agent.files.landing import Landing, is_complete, write_all
from echelon.agent.files.manifest import Manifest
from echelon.agent.files.sender import VERSION
from echelon.agent.files.tree import FILE, FOLDER, LINK, OTHER, BadTree, Entry, check_path, digest_of, shown
from echelon.agent.files.wire import Garbled, Wire

TYPE_CHECKING = False  # as mypy reads it; `typing` is not needed at run time
if TYPE_CHECKING:
    from typing import Any, Callable

MOST_ENTRIES = 5 * 1000 * 1000
TRIES = 3  # of a file that changes while it is sent, or arrives damaged
_ASKED = (
    1 << 14
)  # bytes of unanswered requests: less than any pipe holds, so that the two ends never block each other


class Missing(Exception):
    """The other end has nothing of that name."""


class Wanted:
    """A requested file: from which offset, and its place below the target."""

    __slots__ = ("compare", "entry", "length", "offset", "place", "tries")

    def __init__(
        self, entry: Entry, place: list[str], offset: int, compare: bool = False, tries: int = 1
    ) -> None:
        self.entry = entry
        self.place = place
        self.offset = offset
        self.compare = compare  # a file of this size is in its place: only the sha256 is requested
        self.tries = tries
        self.length = 100 + 6 * len(entry.path)  # of the request, however the path is escaped


class Receiver:
    """Receives a file or a folder, once, over one connection."""

    def __init__(
        self,
        wire: Wire,
        target: str,
        into: bool = False,
        move: Callable[[str], str] = lambda path: path,
        on_progress: Callable[[int, int, int, int], object] = lambda *_: None,
    ) -> None:
        self.at = target  # what is being worked on, for messages
        self._wire = wire
        self._into = into  # what comes goes into the target, if that is a folder, as with `cp -r`
        self._move = move  # maps a path of the tree to its place below the target
        self._on_progress = on_progress  # bytes and files that are here, and all of them
        self._kinds: dict[str, str] = {}
        self._manifest = Manifest()
        self._left_out: list[tuple[str, str]] = []
        self._failed: list[tuple[str, str]] = []
        self.outstanding: dict[str, int] = {}  # files that are not in their place yet, with their sizes
        self._changed: list[str] = []
        self._done = self._total = self._files_done = self._files = self._there = 0

    def run(self) -> dict[str, Any]:
        """Receive, and return the outcome, which the other end gets, too."""
        hello = self._wire.read()
        if hello.get("files") != VERSION:
            raise Garbled("the other end is of another version of echelon: %.100r" % (hello,))
        if hello.get("root") == "missing":
            self._wire.write(end=1, missing=1)
            self._wire.flush()
            raise Missing
        target, single = self.at, ""
        if hello.get("root") == "file":
            if self._into and (target.endswith("/") or os.path.isdir(target)):
                target = os.path.join(target, *check_path(str(hello.get("name")))[-1:])
            target, single = os.path.split(os.path.abspath(target))
        elif self._into and is_complete(target):
            target = os.path.join(target, *check_path(str(hello.get("name")))[-1:])
        entries = self._listing(single)
        landing = Landing(target, begins=self._into and not single)
        try:
            self._fetch(landing, self._decide(landing, entries))
            self._finish(landing, entries)
            landing.end()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                landing.partials.make_room()
            raise
        finally:
            landing.close()
        return self._say_end(os.path.join(target, single) if single else target)

    def _listing(self, single: str) -> list[tuple[Entry, list[str]]]:
        """Every entry that can be copied, with its place."""
        entries = []
        message = self._wire.read()
        while "listed" not in message:
            entry = tree.read_entry(message)
            self._manifest.add(entry)
            if entry.path != "." or not entry.why_not:
                check_path(entry.path)
            place = single or (self._move(entry.path) if entry.path != "." else ".")
            if entry.kind == LINK and not entry.why_not:
                entry.link = tree.moved_link(entry.path, entry.link, place, self._move)
                entry.why_not = tree.why_not_link(place, entry.link)
            if entry.why_not or entry.kind == OTHER:
                self._left_out.append((entry.path, entry.why_not or "neither file, folder nor link"))
            else:
                self._claim(entry)
                entries.append((entry, check_path(place)))
            if len(entries) > (1 if single else MOST_ENTRIES):
                raise BadTree("the tree has more entries than it may have: %d" % len(entries))
            message = self._wire.read()
        return entries

    def _claim(self, entry: Entry) -> None:
        """Accept each name once, and nothing below a file or link."""
        if entry.path in self._kinds:
            raise BadTree("%s comes more than once" % shown(entry.path))
        above = entry.path.rpartition("/")[0]
        if above and self._kinds.get(above) != FOLDER:
            raise BadTree("%s lies below something that is not a folder" % shown(entry.path))
        self._kinds[entry.path] = entry.kind

    def _decide(self, landing: Landing, entries: list[tuple[Entry, list[str]]]) -> list[Wanted]:
        """Make the folders, and find the files that are missing, or may be outdated."""
        wanted = []
        for entry, place in entries:
            self.at = "/".join(place)
            if entry.kind == FOLDER:
                landing.make_folder(place)
            elif entry.kind == FILE:
                self._files += 1
                self._total += entry.size
                self.outstanding[entry.path] = entry.size
                found = landing.stat(place)
                if found is None or found.st_size != entry.size:
                    wanted.append(Wanted(entry, place, landing.partials.begun(place, entry)))
                elif found.st_mtime_ns == entry.mtime:
                    self._there += 1
                    self._done += entry.size
                    del self.outstanding[entry.path]
                    if stat.S_IMODE(found.st_mode) != entry.mode:
                        landing.settle(place, entry)
                else:
                    wanted.append(Wanted(entry, place, entry.size, compare=True))
            self._wire.tick()
        self._files_done = self._there
        self._wire.write(there=self._there, bytes=self._done)
        self._report()
        return wanted

    def _fetch(self, landing: Landing, wanted: list[Wanted]) -> None:
        """Request files, several ahead, and take them as they arrive."""
        waiting = list(reversed(wanted))
        asked: list[Wanted] = []
        on_the_way = 0
        while waiting or asked:
            while waiting and (not asked or on_the_way + waiting[-1].length < _ASKED):
                entry = waiting[-1].entry
                self._wire.write(
                    path=entry.path, offset=waiting[-1].offset, size=entry.size, mtime=entry.mtime
                )
                on_the_way += waiting[-1].length
                asked.append(waiting.pop())
            current = asked.pop(0)
            self.at = "/".join(current.place)
            again = self._take(landing, current)
            on_the_way -= current.length
            if again is not None:
                waiting.append(again)

    def _take(self, landing: Landing, wanted: Wanted) -> Wanted | None:
        """Take one file from the wire; returns the next request for it, if one is needed."""
        header = self._wire.read()
        path = wanted.entry.path
        if header.get("path") != path:
            raise Garbled("%s was asked for, not %.200r" % (shown(path), header.get("path")))
        if "why_not" in header:
            self._leave_out(wanted.entry, header)
            return None
        now = {name: header.get(name) for name in ("size", "mode", "mtime")}
        entry = tree.read_entry({"path": path, "kind": FILE, **now})
        offset = header.get("offset")
        if type(offset) is not int or offset not in (0, wanted.offset):
            raise Garbled("%s was asked for from %d on, not %.40r" % (shown(path), wanted.offset, offset))
        self._total += entry.size - wanted.entry.size  # it may have changed since it was listed
        if wanted.compare and offset == wanted.offset:
            return self._compare(landing, wanted, entry)
        return self._write(landing, wanted, entry, offset)

    def _write(self, landing: Landing, wanted: Wanted, entry: Entry, offset: int) -> Wanted | None:
        file = landing.partials.open(wanted.place, entry, offset)
        before = self._done
        digest = digest_of(file, offset, self._wire.tick)
        self._advance(offset)

        def take(piece: bytes) -> None:
            if self._done - before + len(piece) > entry.size:
                raise Garbled("%s is longer than announced" % shown(entry.path))
            digest.update(piece)
            write_all(file, piece)
            self._advance(len(piece))

        trailer = self._wire.read_chunks(take)
        changed = bool(trailer.get("changed"))
        # A file that keeps changing is kept as it was read, and listed as changed.
        fits = trailer.get("sha256") == digest.hexdigest() and (not changed or wanted.tries == TRIES)
        if fits and "why_not" not in trailer:
            landing.put_in_place(wanted.place, entry)
            del self.outstanding[entry.path]
            if changed:
                self._changed.append(entry.path)
            self._files_done += 1
            self._total += self._done - before - entry.size  # it may have been cut short
            self._report()
            return None
        self._done = before
        landing.partials.discard(wanted.place, entry)
        if "why_not" in trailer or wanted.tries == TRIES:
            self._leave_out(entry, trailer)
            return None
        return Wanted(entry, wanted.place, 0, tries=wanted.tries + 1)

    def _compare(self, landing: Landing, wanted: Wanted, entry: Entry) -> Wanted | None:
        """Compare the file in its place with the sha256 that arrives; if they differ, request the file."""
        trailer = self._wire.read_chunks(_refuse)
        if "why_not" in trailer:
            self._leave_out(entry, trailer)
            return None
        if landing.digest(wanted.place, entry.size, self._wire.tick) != trailer.get("sha256"):
            return Wanted(entry, wanted.place, 0)
        landing.settle(wanted.place, entry)
        del self.outstanding[entry.path]
        self._there += 1
        self._files_done += 1
        self._advance(entry.size)
        return None

    def _leave_out(self, entry: Entry, message: dict[str, Any]) -> None:
        """A file that was listed, and does not come."""
        self._failed.append((entry.path, str(message.get("why_not") or "arrives damaged")))
        self._files -= 1
        self._total -= entry.size
        self._report()

    def _finish(self, landing: Landing, entries: list[tuple[Entry, list[str]]]) -> None:
        """Make the links, now that every file is written; then set the folders' modes."""
        for entry, place in entries:
            if entry.kind == LINK:
                landing.make_link(place, entry.link)
                self._wire.tick()
        for entry, place in reversed(entries):
            if entry.kind == FOLDER:
                landing.set_mode(place, entry.mode)
                self._wire.tick()

    def _say_end(self, target: str) -> dict[str, Any]:
        left_out = self._left_out + self._failed
        for path, why in left_out:
            self._wire.write(left_out=path, why=why)
        for path in self._changed:
            self._wire.write(changed=path)
        outcome = {"files": self._files, "bytes": self._total, "there": self._there, "target": target}
        self._wire.write(end=1, **outcome)
        self._wire.flush()
        manifest = self._manifest.raw()
        more = {"left_out": left_out, "failed": self._failed, "changed": self._changed, "manifest": manifest}
        return {**outcome, **more}

    def _advance(self, size: int) -> None:
        self._done += size
        self._report()

    def _report(self) -> None:
        self._on_progress(self._done, self._total, self._files_done, self._files)


def _refuse(_piece: bytes) -> None:
    raise Garbled("bytes of a file of which only the sha256 was asked for")
