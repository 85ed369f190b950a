"""What torch's flight recorder tells of one rank, reduced to what ranks are compared by. Pure.

The recorder keeps the last collectives of each process group with their number, which counts alike on all
ranks. There is one for Gloo and others (since torch 2.8) and one for NCCL (since 2.5); a rank gives both."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

KEPT = (
    48  # collectives of a group that are passed on: how far one rank may be ahead of another and be compared
)
TIMED = 200  # collectives of a group of which it is told when they were called
_MOST_GROUPS = 16  # those whose newest collective is the newest
_MOST_FRAMES = 100
# What reading raises of text that is not an answer.
_NO_ANSWER = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError)


def read(text: bytes) -> dict[str, Any] | None:
    """What a rank has answered: its number as torch counts it, and its `groups` by name: their `ranks`, the
    numbers of the last collective that was `called` and of the last that is `done` with all before it, and
    the newest of the `calls` by their number: name, sizes, type and the time. None without an answer; without
    a group there is nothing to compare.
    """
    found = _read(text)
    return None if found is None else _reduce(*found)


def read_dump(rank: int, dump: Any) -> dict[str, Any] | None:
    """The same of what torch's own dump has; None if that has no group."""
    groups: dict[str, Any] = {}
    try:
        configs = dump["pg_config"].items()
        ranks = {str(name): json.loads(str(config["ranks"])) for name, config in configs if str(name)}
        _add(groups, dump, ranks)
        return _reduce(rank, groups) if groups else None
    except _NO_ANSWER:
        return None


def give_up_newest(told: dict[str, Any]) -> None:
    """Take the newest collective as one that is not done: Gloo counts one that has failed as done."""
    groups = [group for group in told["groups"].values() if str(group["called"]) in group["calls"]]
    if groups:
        newest = max(groups, key=lambda group: group["calls"][str(group["called"])][3])
        newest["done"] = min(newest["done"], newest["called"] - 1)


def read_frames(text: bytes) -> list[tuple[str, str, str]]:
    """Where a rank was that has written this at its end, as `stacks.find_frames` tells it."""
    try:
        return [_frame(*each) for each in json.loads(text.partition(b"\n")[0])["frames"][:_MOST_FRAMES]]
    except _NO_ANSWER:
        return []


def frames_of_wait(dump: Any) -> list[tuple[str, str, str]]:
    """Where the first collective of a dump was called that is not done."""
    try:
        waits = [entry for entry in dump["entries"] if not _is_done(entry) and not entry.get("is_p2p")]
        first = min(waits, key=lambda entry: int(entry["time_created_ns"]))
        frames = first["frames"][:_MOST_FRAMES]
        return [_frame(each["name"], each["filename"], each["line"]) for each in frames]
    except _NO_ANSWER:
        return []


def _frame(function: Any, file: Any, line: Any) -> tuple[str, str, str]:
    return str(function)[:200], str(file)[:1000], str(line)[:20]


def _reduce(number: Any, groups: dict[str, Any]) -> dict[str, Any]:
    for group in groups.values():
        # Not by `last_completed_collective`: Gloo's threads write it in any order, and it may stay behind.
        group["done"] = min(group.pop("pending"), default=group["called"] + 1) - 1
        numbers = sorted(group["calls"], key=int)[-KEPT:]
        group["calls"] = {number: group["calls"][number] for number in numbers}
    return {"rank": number, "groups": _newest(groups)}


def read_times(text: bytes) -> dict[str, Any] | None:
    """When a rank called its last collectives: as `read`, but of each of its `groups` only the `ranks`, the
    number of the `first` that is told, and the `times` of that and of those that follow it without a gap, in
    microseconds: the first since 1970, each other since the one before it.
    """
    found = _read(text)
    if found is None:
        return None
    number, groups = found
    for group in groups.values():
        calls = group["calls"]
        last = first = max(map(int, calls))
        while last - first < TIMED - 1 and str(first - 1) in calls:
            first -= 1
        called = [round(calls[str(each)][3] * 1e6) for each in range(first, last + 1)]
        since = [called[at] - called[at - 1] for at in range(1, len(called))]
        group["first"], group["times"] = first, [called[0], *since]
        del group["calls"], group["called"], group["pending"]
    return {"rank": number, "groups": _newest(groups)}


def _newest(groups: dict[str, Any]) -> dict[str, Any]:
    newest = sorted(groups, key=lambda name: -groups[name].pop("newest"))[:_MOST_GROUPS]
    return {name: groups[name] for name in newest}


def _read(text: bytes) -> tuple[Any, dict[str, Any]] | None:
    """A rank's number, and all that is told of its groups."""
    lines = text.split(b"\n")
    try:
        head = json.loads(lines[0])
        dumps = [json.loads(line) for line in lines[1:] if line]
        if not text or not isinstance(head, dict):
            return None
        groups: dict[str, Any] = {}
        for dump in dumps:
            _add(groups, dump, head.get("groups") or {})
    except _NO_ANSWER:
        return None
    return head.get("rank"), groups


def _add(groups: dict[str, Any], dump: dict[str, Any], ranks: dict[str, list[int]]) -> None:
    status = dump.get("pg_status") or {}
    for entry in dump.get("entries") or ():
        if entry.get("is_p2p"):
            continue
        name, number = str(entry["process_group"][0]), int(entry["collective_seq_id"])
        group = groups.setdefault(
            name, {"ranks": ranks.get(name), "called": 0, "pending": [], "calls": {}, "newest": 0}
        )
        known = status.get(str(entry.get("pg_id"))) or {}
        group["called"] = max(group["called"], number, _number(known.get("last_enqueued_collective")))
        if not _is_done(entry):
            group["pending"].append(number)
        group["newest"] = max(group["newest"], int(entry.get("time_created_ns") or 0))
        group["calls"][str(number)] = describe(entry)


def _is_done(entry: dict[str, Any]) -> bool:
    return bool(entry.get("retired") or entry.get("state") == "completed")


def describe(entry: dict[str, Any]) -> list[Any]:
    """A collective: its name, its sizes and type, and when it was called, in seconds."""
    name = str(entry.get("profiling_name") or "").rpartition(":")[2].lstrip("_") or "a collective"
    sizes = json.dumps(entry.get("input_sizes") or [])[1:-1]
    kind = str((entry.get("input_dtypes") or [""])[0])
    return [name, sizes[:80], _TYPES.get(kind, kind.lower()), int(entry.get("time_created_ns") or 0) / 1e9]


_TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
}  # fmt: skip


def _number(value: object) -> int:
    """A number that may be written as text; -1 says that there is none."""
    try:
        return max(0, int(value))  # type: ignore[call-overload,no-any-return]
    except (TypeError, ValueError):
        return 0
