"""The sending end of a copy: it lists the files, and sends what the other end requests.

In a pod it is `files send`; on the submitting machine it is part of `echelon cp LOCAL pvc:...`. It first
sends the listing (a line for each entry), then answers requests in their order: a line about the file as it
is now, its bytes from the requested offset on, and a line with the sha256 of the whole file. It changes
nothing, and keeps no state between two connections: the receiver knows what it has.
"""

from __future__ import annotations

import os

from echelon.agent.files.tree import FILE, BadTree, Entry, check_path, digest_of, entries_at, find, open_file
from echelon.agent.files.wire import CHUNK, Garbled, Packing, Wire

TYPE_CHECKING = False  # as mypy reads it; `typing` is not needed at run time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

VERSION = 1


class Sender:
    """Sends a file or a folder, once, over one connection."""

    def __init__(
        self,
        wire: Wire,
        root: str,
        path: str = ".",
        on_progress: Callable[[int, int, int, int], object] = lambda *_: None,
    ) -> None:
        self._wire = wire
        self._root = root
        self._path = path
        self._packing = Packing()
        self._on_progress = on_progress  # bytes and files that are there, and all of them
        self._done = self._total = self._files_done = self._files = 0

    def run(self) -> dict[str, Any]:
        """Send until the other end has all it wants; returns its outcome of the copy."""
        place = find(self._root, self._path)
        if place is None:
            self._wire.write(files=VERSION, root="missing")
            self._wire.flush()
            return self._wire.read()
        name = os.path.basename(os.path.abspath(os.path.join(self._root, self._path)))
        single = not os.path.isdir(place)
        self._wire.write(files=VERSION, root="file" if single else "folder", name=name)
        top = os.path.dirname(place) if single else place
        self._list(entries_at(place))
        folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return self._serve(folder)
        finally:
            os.close(folder)

    def _list(self, entries: Iterator[Entry]) -> None:
        for entry in entries:
            self._wire.write(**entry.raw())
            if entry.kind == FILE and not entry.why_not:
                self._files += 1
                self._total += entry.size
        self._wire.write(listed=1)
        self._wire.flush()

    def _serve(self, folder: int) -> dict[str, Any]:
        left_out: list[tuple[str, str]] = []
        changed: list[str] = []
        while True:
            request = self._wire.read()
            if "end" in request:
                return {"left_out": left_out, "changed": changed, **request}
            if "left_out" in request:
                left_out.append((request["left_out"], request.get("why", "")))
            elif "changed" in request:
                changed.append(request["changed"])
            elif "there" in request:
                self._advance(int(request["bytes"]), int(request["there"]))
            else:
                self._send(folder, request)

    def _send(self, folder: int, request: dict[str, Any]) -> None:
        path = str(request.get("path"))
        try:
            file = open_file(folder, check_path(path))
        except BadTree as error:
            raise Garbled("a request for %s" % error) from error
        except OSError as error:
            gone = isinstance(error, FileNotFoundError)
            reason = "is gone" if gone else "cannot be read: %s" % (error.strerror or error)
            self._wire.write(path=path, why_not=reason)
            return
        try:
            self._send_open(file, path, request)
        finally:
            os.close(file)

    def _send_open(self, file: int, path: str, request: dict[str, Any]) -> None:
        before = os.fstat(file)
        offset = request.get("offset", 0)
        known = (request.get("size"), request.get("mtime")) == (before.st_size, before.st_mtime_ns)
        if not known or type(offset) is not int or not 0 <= offset <= before.st_size:
            offset = 0  # not the version of which the other end has a part
        self._wire.write(
            path=path,
            size=before.st_size,
            mtime=before.st_mtime_ns,
            mode=before.st_mode & 0o777,
            offset=offset,
        )
        pack = self._packing.pack
        digest = digest_of(file, offset, self._wire.tick_chunk)
        self._advance(offset, 0)
        at = offset
        while at < before.st_size:
            try:
                piece = os.pread(file, min(CHUNK, before.st_size - at), at)
            except OSError as error:
                self._wire.write(path=path, why_not="cannot be read: %s" % (error.strerror or error))
                return
            if not piece:
                break  # cut short while it was sent
            digest.update(piece)
            at += len(piece)
            try:
                self._wire.send_chunk(*pack(piece, self._wire.rate))
            finally:  # the other end may have sent why it left
                self._wire.raise_trouble()
            self._advance(len(piece), 0)
        after = os.fstat(file)
        expected = (before.st_size, before.st_size, before.st_mtime_ns)
        changed = (at, after.st_size, after.st_mtime_ns) != expected
        self._wire.write(path=path, sha256=digest.hexdigest(), changed=changed)
        self._advance(0, 1)

    def _advance(self, size: int, files: int) -> None:
        self._done += size
        self._files_done += files
        # A file that changed is sent again, and would count twice.
        self._on_progress(min(self._done, self._total), self._total, self._files_done, self._files)
