"""What a tree holds, in three figures: how many files, how many bytes, and a digest of its listing.

A worker states them when its part is over. The receiving end of a copy computes the same over the listing it
got; equal digests show that nothing of the tree was missing, and the sha256 of each file does the rest."""

from __future__ import annotations

import hashlib
import json

from echelon.agent.files.tree import FILE, Entry, entries_at, find

TYPE_CHECKING = False  # as mypy reads it; `typing` is not needed at run time
if TYPE_CHECKING:
    from typing import Any


class Manifest:
    """Takes the entries of a listing one after another, in the listing's own order: by name, each folder
    before what is in it.
    """

    def __init__(self) -> None:
        self._files = self._size = 0
        self._digest = hashlib.sha256()

    def add(self, entry: Entry) -> None:
        """The next entry. The time counts for files alone: a folder's changes with every file made in it."""
        if entry.kind == FILE and not entry.why_not:
            self._files += 1
            self._size += entry.size
        mtime = entry.mtime if entry.kind == FILE else 0
        line = [entry.path, entry.kind, entry.size, mtime, entry.link, entry.why_not]
        self._digest.update(json.dumps(line).encode() + b"\n")

    def raw(self) -> dict[str, Any]:
        """The figures, as an event carries them. Half of a sha256 is enough, and thousands of workers have
        one each in a run's record.
        """
        return {"files": self._files, "size": self._size, "digest": self._digest.hexdigest()[:32]}


def manifest_of(root: str) -> dict[str, Any]:
    """The figures of the tree at `root`; no digest if nothing is there."""
    place = find(root, ".")
    if place is None:
        return {"root": root, "files": 0, "size": 0, "digest": ""}
    manifest = Manifest()
    for entry in entries_at(place):
        manifest.add(entry)
    return {"root": root, **manifest.raw()}
