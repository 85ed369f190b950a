"""The carrier of a worker's checkpoints: a process beside its agent, which looks at their folder, gives what
is complete to the run's keeper, and brings back what is safe before the ranks of another generation start.

It is a process of its own since it reads and hashes whole disks, while the agent must answer within a second
and forks ranks. It does one thing at a time, and takes the agent's orders also in the middle of a transfer.
`python agent.pyz carry FOLDER SECRET WORKER`, with the agent's socket as its standard input."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import sys
import time

from echelon.agent.files.tree import PARTIAL
from echelon.agent.files.wire import Broken
from echelon.agent.gang.rounds import GONE, KEPT, NONE, PENDING, mark_of
from echelon.agent.keep.entries import (
    ASIDE,
    Found,
    Watch,
    newer,
    read,
    remove,
    scan,
    set_aside,
    to_give,
    written_now,
)
from echelon.agent.keep.exchange import INCOMPLETE, Refused, fetch_parts, give_entry
from echelon.agent.keep.room import WHY

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Iterator

LOOK = 1.0  # seconds between two looks at the folder
AGAIN = 2.0  # seconds after a connection that broke
SIGN = 5.0  # seconds between two signs of a transfer that goes on
BACK = 60.0  # seconds in which a keeper must be found that has what is to come back
STAGE = PARTIAL + "-back"  # beside the folder: what comes back, until it is whole


class Interrupted(Exception):
    """An order came that ends the transfer under way."""


class Carrier:
    """Carries the checkpoints of one worker."""

    def __init__(self, folder: str, secret: bytes, worker: int, orders: socket.socket) -> None:
        self._folder = folder
        self._secret = secret
        self._worker = worker
        self._orders = orders
        self._came = b""
        self._keeper: tuple[str, int] | None = None
        self._keepers_id: object = None
        self._ran = self._since = -1  # the generation that ran here last, and first
        self._born: dict[
            str, tuple[str, int]
        ] = {}  # the version of each entry, and which generation wrote it
        self._safe: dict[str, str] = {}  # what all workers go on from, as it is here
        self._runs = False
        self._fresh = True  # nothing is known yet of what lies in the folder
        self._back: dict[str, Any] | None = None  # the order to bring back
        self._brings = False
        self._given = True  # it was said, since ranks ended, that nothing is left to give
        self._watch = Watch()
        self._found: dict[str, Found] = {}
        self._kept: dict[str, str] = {}  # the versions that the keeper has of this worker
        self._base: dict[str, str] = {}  # the versions that came back: of no worker
        self._refused: dict[str, str] = {}
        self._not_before = 0.0  # when the keeper may be called again
        self._signed = self._polled = 0.0

    def run(self) -> None:
        """Live until the agent closes the connection."""
        while True:
            self._take_orders(0.0 if self._back else LOOK)
            if self._back is not None:
                self._bring_back(self._back)
            self._look()
            while self._give_next():
                self._look()
            self._say_given()

    # Orders

    def _take_orders(self, seconds: float) -> None:
        while select.select([self._orders], [], [], seconds)[0]:
            data = self._orders.recv(1 << 16)
            if not data:
                sys.exit(0)
            *lines, self._came = (self._came + data).split(b"\n")
            for line in lines:
                self._obey(json.loads(line.decode()))
                seconds = 0.0

    def _obey(self, order: dict[str, Any]) -> None:
        do = order.get("do")
        if do == "keeper":
            self._meet_keeper(order)
        elif do == "running":
            self._begin(order["generation"])
        elif do == "ended":
            self._runs = self._given = False
            self._see()
            self._watch.end(bool(order["trusted"]))
        elif do == "finish":
            self._given = False
        elif do == "ask":
            self._see()
            self._say_state(order["entry"], order["number"])
        elif do == "back":
            self._back = order

    def _begin(self, generation: int) -> None:
        """Ranks run. What all workers go on from is as if they had written it."""
        self._see()
        self._ran, self._runs, self._fresh, self._back = generation, True, False, None
        self._since = generation if self._since < 0 else self._since
        for name, found in self._found.items():
            if generation == 0 or self._safe.get(name) == found.version:
                self._born[name] = found.version, generation

    def _meet_keeper(self, order: dict[str, Any]) -> None:
        """A keeper has come, or has gone. Another one than before has nothing; and of the one before a leader
        may have come that does not know what it has.
        """
        known = isinstance(order["address"], str) and type(order["port"]) is int
        self._keeper = (order["address"], order["port"]) if known else None
        self._not_before = 0.0
        if not known:
            return
        if order["id"] != self._keepers_id:
            self._keepers_id = order["id"]
            self._kept, self._base, self._refused = {}, {}, {}
        for name in self._kept:
            self._say_state(name)
        self._given = self._runs

    def _say(self, **message: object) -> None:
        self._orders.sendall(json.dumps(message).encode() + b"\n")

    # Looking

    def _see(self) -> None:
        found = scan(self._folder)
        gone = [name for name in {**self._kept, **self._base} if name not in found]
        self._found = found
        self._watch.see(found, time.monotonic())
        for name in gone:
            self._kept.pop(name, None)
            self._base.pop(name, None)
            self._say(say="checkpoint", entry=name, state=GONE, version="", born=-1, since=self._since)
        for name, entry in found.items():
            if self._born.get(name, ("", -1))[0] != entry.version:
                self._born[name] = entry.version, self._ran

    def _look(self) -> None:
        self._see()
        quiet = self._watch.quiet(time.monotonic()) if self._runs else []
        if quiet:
            written = written_now(self._folder)
            self._watch.confirm(name for name in quiet if name not in written)

    def _state(self, name: str) -> str:
        found = self._found.get(name)
        if found is None or self._base.get(name) == found.version:
            return NONE
        return KEPT if self._kept.get(name) == found.version else PENDING

    def _say_state(self, name: str, number: int | None = None) -> None:
        found, state = self._found.get(name), self._state(name)
        version, born = self._born[name] if found is not None else ("", -1)
        told: dict[str, object] = {"entry": name, "version": version, "born": born, "since": self._since}
        told["pointer"] = found is not None and found.pointer
        self._say(say="checkpoint", state=state, number=number, **told)

    # Giving

    def _next(self) -> Found | None:
        """What is to be given next, if anything is."""
        has = [name for name in self._found if self._state(name) != PENDING]
        refused = [
            name for name, version in self._refused.items() if self._watch.complete.get(name) == version
        ]
        return to_give(self._found, self._watch.complete, has, refused)

    def _give_next(self) -> bool:
        """Give one entry; True if another may follow at once."""
        found = self._next()
        if found is None or self._keeper is None or time.monotonic() < self._not_before or self._back:
            return False

        def is_same() -> bool:
            now = read(self._folder, found.name)
            return now is not None and now.version == found.version

        keeper = self._keeper
        try:
            give_entry(keeper, self._secret, self._worker, self._folder, found, is_same, self._moved)
        except Interrupted:
            return False
        except Refused as error:
            if error.kind == INCOMPLETE:
                self._not_before = time.monotonic() + LOOK  # it has changed meanwhile
            else:
                self._refused[found.name] = found.version
                self._say(note="the checkpoint %s is not kept: %s" % (found.name, WHY[error.kind]))
            return True
        except Broken:
            self._not_before = time.monotonic() + AGAIN
            return False
        if keeper == self._keeper:
            self._kept[found.name] = found.version
            self._base.pop(found.name, None)
            self._say_state(found.name)
        return True

    def _moved(self, *_progress: int) -> None:
        """Something was sent or came: show that it goes on, and hear what the agent says."""
        now = time.monotonic()
        if now - self._polled > 0.1:
            self._polled = now
            self._take_orders(0.0)
            if self._back is not None and not self._brings:
                raise Interrupted
        if now - self._signed > SIGN:
            self._signed = now
            self._say(say="carrying")

    def _say_given(self) -> None:
        if not self._given and not self._runs and self._next() is None:
            self._given = True
            self._say(say="given", generation=self._ran)

    # Bringing back

    def _bring_back(self, order: dict[str, Any]) -> None:
        """Have what is safe in the folder, before ranks start; try for a while, since the keeper may be on
        its way back, too.
        """
        until = time.monotonic() + BACK
        came: list[dict[str, object]] | None = None
        self._brings = True
        try:
            while came is None and self._back is order:
                try:
                    came = self._fetch(order)
                except (Broken, Refused, OSError) as error:
                    if time.monotonic() > max(until, self._signed + BACK / 2):
                        self._say(say="back", number=order["number"], failed=str(error))
                        self._back = None
                    else:
                        self._take_orders(AGAIN)
        finally:
            self._brings = False
        if came is not None and self._back is order:
            self._back = None
            self._say(say="back", number=order["number"], came=came)

    def _fetch(self, order: dict[str, Any]) -> list[dict[str, object]]:
        came: list[dict[str, object]] = []
        self._safe = {}
        shutil.rmtree(self._stage, ignore_errors=True)
        if order["entry"] is not None:
            if self._keeper is None:
                raise Broken("the run's keeper is not there")

            def wanted(safe: list[dict[str, Any]]) -> Iterator[tuple[str, int, str]]:
                known = {each["entry"]: mark_of(each) for each in safe}
                if known.get(order["entry"]) != order["mark"]:
                    raise Broken("the run's keeper has lost it")
                self._set_aside(safe)
                for told in safe:
                    yield from self._restore(told, came)

            fetch_parts(self._keeper, self._secret, self._worker, wanted, self._moved)
        self._see()
        self._watch.confirm(name for name in self._found if name in self._safe)
        if self._fresh:
            self._watch.end(False)  # who wrote the rest is gone
        return came

    def _set_aside(self, safe: list[dict[str, Any]]) -> None:
        """Move away what is newer than the newest that is safe: not all workers have it whole."""
        self._see()
        for name in newer(self._found, safe, self._worker, self._base):
            self._move_aside(name)

    def _is_part(self, told: dict[str, Any], found: Found) -> bool:
        """Whether what is here is what this worker wrote to a checkpoint, or what has come back of it."""
        return found.version in (told["parts"].get(str(self._worker)), self._base.get(found.name))

    def _move_aside(self, name: str) -> None:
        set_aside(self._folder, name, self._beside(ASIDE))
        self._kept.pop(name, None)
        self._base.pop(name, None)

    def _restore(self, told: dict[str, Any], came: list[dict[str, object]]) -> Iterator[tuple[str, int, str]]:
        """Fetch the parts of a checkpoint, unless this worker has what it wrote to it, and put the whole of
        it in its place: of a file that several have written, this worker's own.
        """
        name, parts = told["entry"], told["parts"]
        there, own = self._found.get(name), parts.get(str(self._worker))
        if there is not None and self._is_part(told, there):
            known = self._kept if there.version == own else self._base
            known[name] = self._safe[name] = there.version
            return
        whole = os.path.join(self._stage, "whole")
        for worker in sorted(map(int, parts), key=lambda each: (each == self._worker, -each)):
            part = os.path.join(self._stage, str(worker))
            yield name, worker, part
            _merge(part, whole)
        if there is not None:
            self._move_aside(name)
        os.makedirs(self._folder, exist_ok=True)
        os.rename(os.path.join(whole, name), os.path.join(self._folder, name))
        found = read(self._folder, name)
        if found is not None:
            known = self._kept if found.version == own else self._base
            known[name] = self._safe[name] = found.version
            came.append({"entry": name, "size": found.size})
        shutil.rmtree(self._stage, ignore_errors=True)

    def _beside(self, name: str) -> str:
        return os.path.join(os.path.dirname(self._folder), name)

    @property
    def _stage(self) -> str:
        return self._beside(STAGE)


def _merge(part: str, whole: str) -> None:
    """Move all that is in one folder into another; of two files of a name that which comes last stays."""
    os.makedirs(whole, exist_ok=True)
    for item in list(os.scandir(part)):
        place = os.path.join(whole, item.name)
        if item.is_dir(follow_symlinks=False) and os.path.isdir(place) and not os.path.islink(place):
            _merge(item.path, place)
        else:
            remove(place)
            os.rename(item.path, place)


def main(arguments: list[str]) -> int:
    """`carry FOLDER SECRET WORKER`."""
    folder, secret_file, worker = arguments
    with open(secret_file, "rb") as file:
        secret = file.read().strip()
    orders = socket.socket(fileno=os.dup(0))
    orders.setblocking(True)
    Carrier(folder, secret, int(worker), orders).run()
    return 0
