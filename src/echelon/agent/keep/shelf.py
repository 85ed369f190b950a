"""The checkpoints that a keeper has: the parts of each, one from every worker that wrote to it, and which of
them together are safe.

A part is never changed: a worker that writes a checkpoint anew brings another part, and the one before stays
as long as it belongs to what is safe. So there is always a whole one."""

from __future__ import annotations

import os
import shutil

from echelon.agent.keep.entries import Found
from echelon.agent.keep.room import space_of

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

    Key = tuple[str, int, str]  # an entry, a worker, the version of its part


class Shelf:
    """Below `folder`, which is emptied: what an earlier keeper had there, the workers give again."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._numbers = 0
        self._parts: dict[Key, tuple[Found, str]] = {}  # with the folder of each
        self._safe: dict[str, dict[int, str]] = {}  # by entry: the version of each worker's part
        self._newest: dict[tuple[str, int], str] = {}  # by entry and worker: the version that came last
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, mode=0o700)

    @property
    def space(self) -> int:
        """What all parts take on the disk."""
        return sum(space_of(found.files, found.size) for found, _place in self._parts.values())

    def has(self, worker: int, found: Found) -> bool:
        """Whether this part is there."""
        return (found.name, worker, found.version) in self._parts

    def place(self) -> str:
        """A new folder for a part that is to come."""
        self._numbers += 1
        place = os.path.join(self._folder, str(self._numbers))
        os.mkdir(place, 0o700)
        return place

    def put(self, worker: int, found: Found, place: str) -> None:
        """A part has come, whole, into its folder."""
        key = (found.name, worker, found.version)
        earlier = self._parts.get(key)
        self._parts[key] = found, place
        self._newest[found.name, worker] = found.version
        if earlier is not None:
            shutil.rmtree(earlier[1], ignore_errors=True)
        self._clear()

    def make_safe(self, entry: str, parts: dict[int, str]) -> bool:
        """These parts are a whole checkpoint; False if one of them is not here."""
        if not parts or not all((entry, worker, version) in self._parts for worker, version in parts.items()):
            return False
        self._safe[entry] = dict(parts)
        self._clear()
        return True

    def forget(self, entry: str) -> None:
        """Its script has deleted this checkpoint."""
        self._safe.pop(entry, None)
        for name, worker in list(self._newest):
            if name == entry:
                del self._newest[name, worker]
        self._clear()

    def make_room(self, need: int, most: int) -> list[str]:
        """Forget the oldest safe checkpoints, never the newest, until so many bytes more fit into `most`;
        returns their names.
        """
        gone = []
        while self.space + need > most and len(self._safe) > 1:
            oldest = str(self.safe()[-1]["entry"])
            self.forget(oldest)
            gone.append(oldest)
        return gone

    def safe(self) -> list[dict[str, Any]]:
        """The safe checkpoints, newest first."""
        return sorted(map(self.describe, self._safe), key=lambda told: -int(told["at"]))

    def describe(self, entry: str) -> dict[str, Any]:
        """One of them, as it is told to others."""
        parts = self._safe[entry]
        found = [self._parts[entry, worker, version][0] for worker, version in parts.items()]
        return {
            "entry": entry,
            "parts": {str(worker): version for worker, version in parts.items()},
            "files": sum(each.files for each in found),
            "size": sum(each.size for each in found),
            "at": max(each.at for each in found),
        }

    def places(self) -> dict[tuple[str, int], str]:
        """The folder of each part of what is safe, by the checkpoint and the worker."""
        return {
            (entry, worker): self._parts[entry, worker, version][1]
            for entry, parts in self._safe.items()
            for worker, version in parts.items()
        }

    def move_to(self, worker: int, folder: str) -> None:
        """The run is over, and its results come: what a worker gave of them before is moved to its place
        among them, and need not come twice. No part is whole any more then.
        """
        for (entry, whose, version), (_found, place) in list(self._parts.items()):
            if whose != worker:
                continue
            if self._newest.get((entry, worker)) == version:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                try:
                    os.rename(os.path.join(place, entry), os.path.join(folder, entry))
                except OSError:
                    pass  # it comes again
            del self._parts[entry, whose, version]
            shutil.rmtree(place, ignore_errors=True)
        self._safe = {entry: parts for entry, parts in self._safe.items() if worker not in parts}

    def _clear(self) -> None:
        """Delete the parts that belong to nothing safe, and are not what came last either."""
        for key in list(self._parts):
            entry, worker, version = key
            needed = version in (self._safe.get(entry, {}).get(worker), self._newest.get((entry, worker)))
            if not needed:
                shutil.rmtree(self._parts.pop(key)[1], ignore_errors=True)
