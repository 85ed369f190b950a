"""Which checkpoints are safe, as the leader decides it. Pure.

When a worker has given an entry to the keeper, all workers are asked what they have of it. It is safe when
each one has answered that it wrote nothing to it, or that the keeper has what it wrote. Only who was there in
the generation that wrote it can know: the answer of a worker that was lost never comes, so that a checkpoint
is not safe whose missing part it may have had."""

from __future__ import annotations

import json
from hashlib import sha256

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Collection, Iterable

KEPT, NONE, PENDING, GONE = "kept", "none", "pending", "gone"  # what a worker says of an entry


class Round:
    """One question to all workers: what they have of an entry that was written in this generation."""

    def __init__(self, number: int, generation: int, pointer: bool) -> None:
        self.number = number
        self.generation = generation
        self.pointer = pointer  # it may name another entry (`keep/entries.py`)
        self.answers: dict[int, str] = {}  # the version that the keeper has, "" for none; else no answer


class Rounds:
    """`outbox` and `to_keeper` are what is to be sent next; `events` what is to be logged."""

    def __init__(self, workers: int, below: str) -> None:
        self._workers = workers
        self._below = below  # the folder of checkpoints, as users know it
        self._rounds: dict[str, Round] = {}
        self._number = 0
        self._concluded = 0  # the number of the last question that was answered and is about no pointer
        self._safe: dict[str, dict[str, Any]] = {}  # what the keeper has that is whole
        self._whole: dict[str, dict[str, str]] = {}  # what was found whole, also what no keeper has any more
        self._again: dict[str, set[str]] = {}  # whose parts of that another keeper has got again
        self._ordered: dict[str, dict[str, str]] = {}  # parts that the keeper was told are whole
        self._deleted: dict[str, set[int]] = {}  # by which of their workers checkpoints were deleted
        self._frozen = False
        self.unconfirmed = 0  # orders to the keeper that it has not confirmed
        self.outbox: list[dict[str, object]] = []  # for every worker
        self.to_keeper: list[dict[str, object]] = []
        self.events: list[dict[str, object]] = []

    @property
    def asks(self) -> bool:
        """Whether answers are awaited."""
        return bool(self._rounds)

    def newest(self) -> dict[str, Any] | None:
        """The newest safe checkpoint."""
        return newest_of(self._safe.values())

    def meet_keeper(self, safe: object) -> None:
        """A keeper has come, with these. What another one had has to come again."""
        told = [each for each in safe if _is_sound(each)] if isinstance(safe, list) else []
        self._safe = {each["entry"]: each for each in told}
        self._whole.update((each["entry"], each["parts"]) for each in told)
        self._again.clear()
        self._rounds.clear()
        self._ordered.clear()
        self._deleted.clear()
        self.to_keeper.clear()
        self.unconfirmed = 0

    def freeze(self) -> dict[str, str] | None:
        """A generation is prepared: until it starts nothing becomes safe, so that all workers go on from the
        same checkpoint. Returns what they are told of it.
        """
        self._frozen = True
        self._rounds.clear()
        newest = self.newest()
        return None if newest is None else {"entry": newest["entry"], "mark": mark_of(newest)}

    def thaw(self) -> None:
        """The generation starts."""
        self._frozen = False

    def told(self, worker: int, message: dict[str, Any]) -> None:
        """What a worker says of an entry, asked or not."""
        entry, state, version = (message.get(name) for name in ("entry", "state", "version"))
        born, since = message.get("born"), message.get("since")  # generations: of the version, of the worker
        known = isinstance(entry, str) and isinstance(version, str) and type(born) is type(since) is int
        if not known or self._frozen:
            return
        assert isinstance(entry, str)
        assert isinstance(version, str)
        assert isinstance(born, int)
        assert isinstance(since, int)
        if state == GONE:
            self._note_deleted(worker, entry)
        elif state == KEPT:
            self._deleted.get(entry, set()).discard(worker)  # it was written anew
        if state == KEPT and self._is_whole_again(worker, entry, version):
            return
        current = self._rounds.get(entry)
        if state == KEPT and not self._is_known(worker, entry, version):
            before = None if current is None else current.answers.get(worker)
            if current is None or born > current.generation or before not in (None, version):
                current = self._ask(entry, born, message.get("pointer") is True)
        if current is None or not 0 <= since <= current.generation:
            return
        if state == KEPT:
            current.answers[worker] = version
        elif message.get("number") == current.number:
            if state == PENDING:
                current.answers.pop(worker, None)  # it will say so when the keeper has it
            else:
                current.answers[worker] = ""
        self._conclude(entry, current)

    def confirmed(self, message: dict[str, Any]) -> None:
        """The keeper has carried out an order."""
        self.unconfirmed = max(0, self.unconfirmed - 1)
        entry, told = message.get("entry"), message.get("checkpoint")
        self._ordered.pop(str(entry), None)
        if not _is_sound(told):
            return
        assert isinstance(told, dict)
        entry = told["entry"]
        self._safe[entry] = told
        self._whole[entry] = told["parts"]
        self._deleted.pop(entry, None)
        if told is self.newest():  # an older one may follow it
            what = {"path": "%s/%s" % (self._below, entry), "size": told["size"], "files": told["files"]}
            self.events.append(dict(what, kind="checkpoint"))
        for other in list(self._deleted):
            self._delete(other)

    def dropped(self, entry: object) -> None:
        """The keeper had to make room."""
        self._safe.pop(str(entry), None)
        self._whole.pop(str(entry), None)

    def _is_known(self, worker: int, entry: str, version: str) -> bool:
        safe = self._safe.get(entry, {}).get("parts", {})
        return version in (safe.get(str(worker)), self._ordered.get(entry, {}).get(str(worker)))

    def _ask(self, entry: str, generation: int, pointer: bool) -> Round:
        self._number += 1
        asked = self._rounds[entry] = Round(self._number, generation, pointer)
        if self._workers > 1:
            self.outbox.append({"say": "checkpoint", "entry": entry, "number": self._number})
        return asked

    def _conclude(self, entry: str, current: Round) -> None:
        if len(current.answers) < self._workers or (current.pointer and self._may_name_more(current)):
            return
        del self._rounds[entry]
        parts = {str(worker): version for worker, version in current.answers.items() if version}
        if parts and parts != self._safe.get(entry, {}).get("parts"):
            self._order_safe(entry, parts)
        if not current.pointer:
            self._concluded = max(self._concluded, current.number)
            self._conclude_pointers()

    def _conclude_pointers(self) -> None:
        for entry, asked in list(self._rounds.items()):
            if asked.pointer:
                self._conclude(entry, asked)

    def _may_name_more(self, pointer: Round) -> bool:
        """Whether a pointer may name a checkpoint that is not safe yet. One that is older than what is safe
        may never be, and does not count.
        """
        others = (each.number for each in self._rounds.values() if not each.pointer)
        return any(self._concluded < number < pointer.number for number in others)

    def _is_whole_again(self, worker: int, entry: str, version: str) -> bool:
        """Whether this is a part of what was found whole before; with the last one no question is needed."""
        whole = self._whole.get(entry, {})
        if whole.get(str(worker)) != version:
            return False
        came = self._again.setdefault(entry, set())
        came.add(str(worker))
        if came >= set(whole) and not self._is_known(worker, entry, version):
            self._order_safe(entry, whole)
        return True

    def _order_safe(self, entry: str, parts: dict[str, str]) -> None:
        self._ordered[entry] = parts
        self._order({"say": "safe", "entry": entry, "parts": parts})

    def _note_deleted(self, worker: int, entry: str) -> None:
        if str(worker) in self._safe.get(entry, {}).get("parts", {}):
            self._deleted.setdefault(entry, set()).add(worker)
            self._delete(entry)
        elif entry not in self._safe and entry not in self._ordered:
            self._rounds.pop(entry, None)  # it cannot become whole any more
            self._order({"say": "forget", "entry": entry, "worker": worker})
            self._conclude_pointers()

    def _delete(self, entry: str) -> None:
        """Forget what all that wrote it have deleted, but never what is needed."""
        told = self._safe.get(entry)
        writers = {int(worker) for worker in told["parts"]} if told else set()
        is_needed = entry in needed(self._safe.values())
        if told is not None and not is_needed and self._deleted.get(entry, set()) >= writers:
            del self._safe[entry], self._deleted[entry], self._whole[entry]
            self._order({"say": "forget", "entry": entry})

    def _order(self, message: dict[str, object]) -> None:
        self.unconfirmed += 1
        self.to_keeper.append(message)


def newest_of(safe: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The newest of safe checkpoints; a pointer is one only if there is nothing else."""
    return max(safe, key=lambda told: (not told.get("pointer"), int(told["at"])), default=None)


def needed(safe: Collection[dict[str, Any]]) -> set[object]:
    """The names of the newest of safe checkpoints, and of the newest that each pointer may name: its next
    version may be on its way.
    """
    plain = [told for told in safe if not told.get("pointer")]
    times = [told["at"] for told in safe if told.get("pointer")]
    named = [newest_of(told for told in plain if told["at"] <= at) for at in times]
    return {told["entry"] for told in [newest_of(safe), *named] if told is not None}


def mark_of(told: dict[str, Any]) -> str:
    """By which a checkpoint is told from another one of its name."""
    return sha256(json.dumps(told["parts"], sort_keys=True).encode()).hexdigest()[:16]


def _is_sound(told: object) -> bool:
    if not isinstance(told, dict) or not isinstance(told.get("entry"), str):
        return False
    parts = told.get("parts")
    numbers = all(type(told.get(name)) is int for name in ("at", "files", "size"))
    return numbers and isinstance(parts, dict) and bool(parts) and all(each.isdigit() for each in parts)
