"""Safe checkpoints that came home, for the next start of their run.

The keeper of a run has stated what each worker wrote to them (`SafeCheckpoints`). Here only those count of
which every part is still as it was: whatever else is in the folder, of an earlier start, torn or edited, is
not sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from echelon.agent.gang.rounds import mark_of
from echelon.agent.keep.entries import Found, scan
from echelon.agent.keep.room import Room, space_of
from echelon.engines.kubernetes.files.results.gather import place_of
from echelon.engines.machine import SafeCheckpoints

Parts = Mapping[int, Mapping[str, Found]]  # by worker and name


def look(safe: SafeCheckpoints, below: str) -> Parts:
    """What is at home of each worker that has written any, in the folder of checkpoints."""
    return {worker: scan(str(folder_of(safe, worker, below))) for worker in safe.parts}


def folder_of(safe: SafeCheckpoints, worker: int, below: str) -> Path:
    """Where a worker's checkpoints are at home."""
    return Path(safe.path, place_of(worker, below))


def whole(safe: SafeCheckpoints, there: Parts) -> dict[str, dict[int, Found]]:
    """The checkpoints of which every part is here; a pointer only if what it may name is. Pure."""
    times = {name: told[2] for each in safe.parts.values() for name, told in each.items()}
    found = {name: parts for name in sorted(times) if (parts := _parts_of(name, safe, there))}
    newest = max((times[name] for name in found), default=0)
    lacking = [at for name, at in times.items() if name not in found and at > newest]
    return {
        name: parts
        for name, parts in found.items()
        if times[name] or not any(at <= each.at for at in lacking for each in parts.values())
    }


def _parts_of(name: str, safe: SafeCheckpoints, there: Parts) -> dict[int, Found]:
    stated = {worker: each[name] for worker, each in safe.parts.items() if name in each}
    found = {worker: there.get(worker, {}).get(name) for worker in stated}
    parts = {worker: each for worker, each in found.items() if each and each.version == stated[worker][0]}
    mark = mark_of({"parts": {str(worker): each.version for worker, each in parts.items()}})
    return parts if all(mark == told for _version, told, _at in stated.values()) else {}


def fitting(found: Mapping[str, Mapping[int, Found]], size: int) -> Parts:
    """Those that are sent to a keeper of so many bytes: the newest first, which always is, as long as they
    fit. Pure.
    """
    most, taken, has_one = Room(size).most, 0, False
    sent: dict[int, dict[str, Found]] = {}
    for name in sorted(found, key=lambda name: -max(each.at for each in found[name].values())):
        parts = found[name]
        need = sum(space_of(each.files, each.size) for each in parts.values())
        if has_one and taken + need > most:
            break
        taken, has_one = taken + need, has_one or not all(each.pointer for each in parts.values())
        for worker, each in parts.items():
            sent.setdefault(worker, {})[name] = each
    return sent


def one_by_one(parts: Parts) -> Iterator[tuple[int, Found]]:
    """Every part, in the order in which they are sent."""
    for worker, entries in sorted(parts.items()):
        for _name, found in sorted(entries.items()):
            yield worker, found
