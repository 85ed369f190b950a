"""The checkpoints that a keeper has: the parts of each, one from every worker that wrote to it, and which of
them together are safe.

A part is never changed: a worker that writes a checkpoint anew brings another part, and the one before stays
as long as it belongs to what is safe. So there is always a whole one."""

from __future__ import annotations

import os
import shutil

from echelon.agent.gang.rounds import mark_of, newest_of
from echelon.agent.keep.entries import Found, newer, scan, set_aside
from echelon.agent.keep.room import space_of

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Mapping

    Key = tuple[str, int, str]  # an entry, a worker, the version of its part


class Shelf:
    """Below `folder`, which is emptied: what an earlier keeper had there, the workers give again."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._numbers = 0
        self._parts: dict[Key, tuple[Found, str]] = {}  # with the folder of each
        self._safe: dict[str, dict[int, str]] = {}  # by entry: the version of each worker's part
        self._newest: dict[tuple[str, int], str] = {}  # by entry and worker: the version that came last
        # As they became safe, with parts that were dropped since; and their time, 0 of a pointer.
        self._whole: dict[str, tuple[dict[int, str], int]] = {}
        self._dropped: set[int] = set()  # workers whose parts are among their results only
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
        told = self.describe(entry)
        self._whole[entry] = dict(parts), 0 if told["pointer"] else int(told["at"])
        self._clear()
        return True

    def stock(self, found: Mapping[int, Mapping[str, Found]], folder: str) -> None:
        """Take the safe checkpoints of an earlier start, which are in `folder`, below the number of each
        worker. Of a name that workers have given something to since, theirs counts.
        """
        known = {name for name, _worker in self._newest}
        parts: dict[str, dict[int, str]] = {}
        for worker, entries in found.items():
            for name, each in entries.items():
                if name not in known:
                    place = self.place()
                    os.rename(os.path.join(folder, str(worker), name), os.path.join(place, name))
                    self.put(worker, each, place)
                    parts.setdefault(name, {})[worker] = each.version
        for name, versions in parts.items():
            self.make_safe(name, versions)

    def stated(self, worker: int) -> dict[str, list[object]]:
        """What a worker wrote to the safe checkpoints: of each the version of its part, the mark of all parts
        together and their newest time, 0 of a pointer. By these a machine that fetches the results of all
        workers knows what is whole.
        """
        return {
            entry: [parts[worker], mark_of({"parts": {str(each): parts[each] for each in parts}}), at]
            for entry, (parts, at) in self._whole.items()
            if worker in parts
        }

    def forget(self, entry: str, worker: int | None = None) -> None:
        """Its script has deleted this checkpoint, or only what this worker wrote to it, which is not safe."""
        if worker is None:
            self._safe.pop(entry, None)
            self._whole.pop(entry, None)
        for name, whose in list(self._newest):
            if name == entry and worker in (None, whose):
                del self._newest[name, whose]
        self._clear()

    def make_room(self, need: int, most: int) -> list[str]:
        """Forget what is older than the newest safe checkpoint, the oldest first, until so many bytes more
        fit into `most`; nothing if they cannot. Returns the names of those that were safe.
        """
        newest = newest_of(self.safe())
        older = self._older_than(newest["at"], but=newest["entry"]) if newest is not None else []
        if self.space - sum(self._space_of(entry) for entry in older) + need > most:
            return []
        gone = []
        for entry in older:
            if self.space + need <= most:
                break
            gone += [entry] if entry in self._safe else []
            self.forget(entry)
        return gone

    def _older_than(self, at: int, but: str) -> list[str]:
        """What was written before that moment, oldest first: also what never became safe."""
        newest: dict[str, int] = {}
        for (entry, _worker, _version), (found, _place) in self._parts.items():
            if not found.pointer:
                newest[entry] = max(found.at, newest.get(entry, 0))
        return sorted((name for name in newest if newest[name] <= at and name != but), key=newest.__getitem__)

    def _space_of(self, entry: str) -> int:
        return sum(
            space_of(part.files, part.size) for key, (part, _) in self._parts.items() if key[0] == entry
        )

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
            "pointer": all(each.pointer for each in found),
        }

    def places(self) -> dict[tuple[str, int], str]:
        """The folder of each part of what is safe, by the checkpoint and the worker."""
        return {
            (entry, worker): self._parts[entry, worker, version][1]
            for entry, parts in self._safe.items()
            for worker, version in parts.items()
        }

    def link_newest(self, worker: int, folder: str) -> None:
        """Have in `folder` what a worker gave last of each checkpoint: its results come, with these among
        them, and what is there need not come twice. The parts stay what they are.
        """
        for (entry, whose, version), (_found, place) in self._parts.items():
            there = os.path.join(folder, entry)
            if (
                whose == worker
                and self._newest.get((entry, worker)) == version
                and not os.path.lexists(there)
            ):
                _link(os.path.join(place, entry), there)

    def link_safe(self, worker: int, folder: str) -> None:
        """Have in `folder` what this worker wrote to the safe checkpoints."""
        for entry, each in self.places():
            if each == worker:
                self._put_back(entry, worker, folder)

    def restore(self, worker: int, folder: str, aside: str) -> None:
        """The run has not succeeded. Have in `folder`, where a worker's checkpoints are as its ranks left
        them, what another start would go on from; what is newer, or in its place, is moved to `aside`.
        """
        if worker in self._dropped:
            return
        safe, there = self.safe(), scan(folder)
        own = {str(told["entry"]): told["parts"].get(str(worker)) for told in safe}
        torn = [name for name in there if own.get(name) not in (None, there[name].version)]
        for name in [*torn, *newer(there, safe, worker)]:
            set_aside(folder, name, aside)
        for name, version in own.items():
            if version is not None and (name in torn or name not in there):
                self._put_back(name, worker, folder)

    def drop(self, worker: int) -> None:
        """Forget the parts of a worker: its results, which have them, take their room."""
        for key in [key for key in self._parts if key[1] == worker]:
            shutil.rmtree(self._parts.pop(key)[1], ignore_errors=True)
        self._dropped.add(worker)
        for entry, parts in list(self._safe.items()):
            parts.pop(worker, None)
            if not parts:
                del self._safe[entry]

    def _put_back(self, entry: str, worker: int, folder: str) -> None:
        _found, place = self._parts[entry, worker, self._safe[entry][worker]]
        _link(os.path.join(place, entry), os.path.join(folder, entry))

    def _clear(self) -> None:
        """Delete the parts that belong to nothing safe, and are not what came last either."""
        for key in list(self._parts):
            entry, worker, version = key
            needed = version in (self._safe.get(entry, {}).get(worker), self._newest.get((entry, worker)))
            if not needed:
                shutil.rmtree(self._parts.pop(key)[1], ignore_errors=True)


def _link(source: str, place: str) -> None:
    """Have at `place` what is at `source`, without another copy of any file. Both stay as they are when
    the other one is replaced.
    """
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), place)
    elif os.path.isdir(source):
        os.mkdir(place, 0o700)
        for name in os.listdir(source):
            _link(os.path.join(source, name), os.path.join(place, name))
    else:
        os.link(source, place)
