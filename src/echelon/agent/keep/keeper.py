"""The keeper of a run: an agent in a pod of its own, without ranks, that takes the workers' checkpoints while
the run goes on and their results when it ends, and holds these until they are fetched or its time is over.

It connects to the leader like a member, as a side of its own, and says where it takes results (`Door`). What
it vouches for is an event in its own log (`worker-kept`), and so are the events of the run that still matter,
as the leader tells them: a client needs no other log. It leaves with 0 when it was released, when the run
has ended and there was nothing to take, or when no client came for its results in time."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time

from echelon.agent.address import own_address
from echelon.agent.control import ControlSocket
from echelon.agent.files.beside import is_copying
from echelon.agent.files.manifest import manifest_of
from echelon.agent.files.wire import Broken, Trouble, Wire
from echelon.agent.gang import keeper_link
from echelon.agent.gang.dial import Dial
from echelon.agent.gang.door import Door
from echelon.agent.gang.wire import Connection, fresh_nonce, prove, proven
from echelon.agent.hold import Hold
from echelon.agent.keep import exchange
from echelon.agent.keep.room import TOO_LARGE, Room
from echelon.agent.loop import Loop
from echelon.agent.output.sink import Sink
from echelon.agent.task import INTERRUPTED, Task
from echelon.agent.thread import in_thread

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

    from echelon.agent.keep.shelving import Shelving

LOOK = 1.0  # seconds between two looks at whether it may leave
MOVED = 60.0  # seconds by which the end of its time moves before it is stated again
MOST_AT_ONCE = 16  # workers whose results it takes at the same time; others come again


class Line(Dial):
    """The keeper's connection to the leader."""

    def __init__(self, loop: Loop, task: Task, port: int, room: int) -> None:
        super().__init__(loop, task, keeper_link.SIDE, keeper_link.NUMBER, float("inf"))
        self._port = port
        self._room = room
        self.shelving: Shelving | None = None  # of a run with checkpoints
        self._id = fresh_nonce()  # another keeper at the same address has nothing of what this one has
        self.left = False  # the leader has ended the run, in order
        self.events: list[dict[str, object]] = []  # of the run, that still matter
        self.on_events: Callable[[list[dict[str, object]]], object] = lambda _events: None
        self.begin()

    def greeting(self) -> dict[str, object]:
        """Where it takes results, and how much."""
        return {"port": self._port, "room": self._room, "id": self._id}

    def welcomed(self) -> None:
        """Tell a leader which checkpoints are safe; before its proof a side may say little."""
        if self.shelving is not None:
            self.shelving.tell_shelf()

    def obey(self, message: dict[str, object]) -> None:
        """Note what the leader tells."""
        events = message.get("events")
        if message.get("say") in ("safe", "forget"):
            if self.shelving is not None:
                self.shelving.obey(message)
            return
        if message.get("say") != "state" or not isinstance(events, list):
            return
        if events != self.events:
            self.events = events
            self.on_events(events)
        self.send({"say": "noted"})
        if message.get("left") is True:
            self.left = True
            self._loop.call_later(0, self.close)  # after this message: no other leader will come


class Keeper:
    """Connects the parts, and decides when to leave."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._secret = task.secret()
        self._folder = task.keep_folder
        self._loop = Loop()
        self._sink = Sink(self._loop)
        self._room = Room(task.keep_size)
        self._shelving: Shelving | None = None
        self._hold = Hold(task.keep, time.monotonic())
        self._kept: set[int] = set()  # workers whose results it vouches for
        self._saved: set[int] = set()  # those of them of which it has the checkpoints only
        self._taking: set[int] = set()
        self._stated = 0.0  # the end of its time, as stated last
        self._code = 0
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        os.makedirs(task.reports, mode=0o700, exist_ok=True)
        family = socket.AF_INET6 if ":" in own_address() else socket.AF_INET
        listener = socket.create_server(("", task.keeper_port), family=family, backlog=1024)
        self._door = Door(self._loop, listener, 2 * len(task.places), self._on_offer)
        self._line = Line(self._loop, task, listener.getsockname()[1], task.keep_size)
        self._line.on_events = self._log_events
        if task.checkpoints:
            from echelon.agent.keep.shelving import Shelving  # most runs have none

            self._shelving = Shelving(self._loop, task, self._room, self._line.send)
            self._line.shelving = self._shelving
        self._control = ControlSocket(self._loop, task.control, self._answer) if task.control else None
        self._loop.on_signal(signal.SIGTERM, lambda: self._leave(INTERRUPTED))
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def run(self) -> int:
        """Run to the end, and return the exit code."""
        self._loop.call_later(0, self._look)
        self._loop.run()
        self._sink.flush()
        return self._code

    # Taking results

    def _on_offer(self, connection: Connection, nonce: str, message: dict[str, object]) -> None:
        worker, theirs, offer = (message.get(name) for name in ("worker", "nonce", "offer"))
        known = (
            type(worker) is int
            and 0 <= worker < len(self._task.places)
            and isinstance(theirs, str)
            and proven(prove(self._secret, exchange.GIVER, worker, nonce, theirs), message.get("proof"))
        )
        if not known or not isinstance(offer, dict):
            connection.close()
            return
        assert isinstance(worker, int)
        answer: dict[str, object] = {
            "say": "welcome",
            "proof": prove(self._secret, exchange.TAKER, worker, str(theirs), nonce),
        }
        if self._shelving is not None and self._shelving.receive(worker, offer, connection, answer):
            return
        files, size = (offer.get(name) for name in ("files", "size"))
        if worker in self._taking or len(self._taking) >= MOST_AT_ONCE or self._hold.released:
            connection.close()  # it comes again
            return
        if type(files) is not int or type(size) is not int or files < 0 or size < 0:
            connection.close()
            return
        refused = self._refuse(worker, files, size)
        if refused:
            exchange.dismiss(connection, dict(answer, refused=refused))
        elif not self._room.enter(files):
            connection.close()
        else:
            unsafe = self._shelving is not None and offer.get("unsafe") == 1
            self._take(worker, files, size, exchange.admit(connection, answer), unsafe=unsafe)

    def _refuse(self, worker: int, files: int, size: int) -> str:
        """Why there is no room for a worker's results. What it gave before stays beside them if it can."""
        refused = ""
        for drop in (False, True) if self._shelving is not None else (False,):
            beside = 0 if self._shelving is None else self._shelving.make_way(worker, drop=drop)
            refused = self._room.refuse(worker, files, size, self._free() + self._size_of(worker), beside)
            if refused != TOO_LARGE:
                break
        return refused

    def _take(self, worker: int, files: int, size: int, sock: socket.socket, *, unsafe: bool) -> None:
        self._taking.add(worker)
        place = os.path.join(self._folder, str(worker))
        wire = exchange.socket_wire(sock)
        taken: list[dict[str, Any] | None] = []

        def work() -> None:
            try:
                taken.append(exchange.take(wire, place, size))
            except (Broken, Trouble):
                pass  # it comes again, and what came is here
            except (OSError, ValueError) as error:
                shutil.rmtree(place, ignore_errors=True)
                exchange.report(wire, error, place)

        def restate() -> None:
            found = taken[0]
            if found is not None:
                roots = [each["root"] for each in found["manifests"]]
                taken[0] = dict(found, manifests=self._manifests(worker, roots))

        def end() -> None:
            self._room.leave(files)
            with sock:
                self._on_taken(worker, wire, taken)

        def done() -> None:
            """Have only safe checkpoints among what came."""
            if not unsafe or self._shelving is None or not taken:
                end()
                return
            try:
                self._shelving.restore(worker)
            except OSError:
                taken[0] = None
            in_thread(self._loop, restate, end)

        in_thread(self._loop, work, done)

    def _manifests(self, worker: int, roots: list[str]) -> list[dict[str, Any]]:
        places = (os.path.join(self._folder, str(worker), str(number)) for number in range(len(roots)))
        return [dict(manifest_of(place), root=root) for place, root in zip(places, roots)]

    def _save(self) -> bool:
        """The run is over, as the leader says, or a client that fetches: vouch for the safe checkpoints of
        workers that have given no results. Those which still can give them, in place of that. False if that
        failed for one.
        """
        for worker in range(len(self._task.places)):
            if self._shelving is None or worker in self._kept or worker in self._taking:
                continue
            try:
                if not self._shelving.save(worker):
                    continue
                found = self._manifests(worker, self._task.kept)
            except OSError:
                return False
            self._kept.add(worker)
            self._saved.add(worker)
            self._vouch(worker, found, only="checkpoints")
        return True

    def _vouch(self, worker: int, manifests: list[dict[str, Any]], **more: object) -> None:
        parts = self._shelving.stated(worker) if self._shelving is not None else {}
        if parts:
            more["parts"] = parts
        told = [dict(each, worker=worker) for each in manifests]
        self._sink.event("worker-kept", worker=worker, manifests=told, **more)

    def _on_taken(self, worker: int, wire: Wire, taken: list[dict[str, Any] | None]) -> None:
        """Vouch for what came, in the log first: its worker leaves when it hears of it."""
        self._taking.discard(worker)
        found = taken[0] if taken else None
        if worker in self._saved:  # what was saved is no more, or less than what came
            self._saved.discard(worker)
            self._kept.discard(worker)
        if found is not None:
            self._kept.add(worker)
            self._vouch(worker, found["manifests"], left_out=found["left_out"])
        elif worker not in self._kept and not os.path.isdir(os.path.join(self._folder, str(worker))):
            self._room.forget(worker)
        if taken:
            try:
                wire.write(kept=0 if found is None else 1)
                wire.flush()
            except Broken:
                pass  # it asks again

    # The folder

    def _free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def _size_of(self, worker: int) -> int:
        """What came of an earlier try, which takes no more room."""
        total = 0
        for above, _folders, files in os.walk(os.path.join(self._folder, str(worker))):
            for name in files:
                try:
                    total += os.lstat(os.path.join(above, name)).st_size
                except OSError:
                    pass
        return total

    # What it tells

    def _log_events(self, events: list[dict[str, object]]) -> None:
        self._sink.state(events)

    def _answer(self, order: str, details: dict[str, object]) -> dict[str, object]:
        client, seconds = str(details.get("client") or ""), details.get("seconds")
        if order == "release":
            self._hold.release(client)
            return {"ok": True}
        at_work = order == "fetch" and isinstance(seconds, (int, float))
        self._hold.renew(time.monotonic(), client, seconds if at_work else 0.0)  # type: ignore[arg-type]
        if order == "fetch":
            return {"ok": self._save()}
        if order == "stock" and self._shelving is not None:
            is_there = self._shelving.stock(str(details.get("mark")), details.get("links"))
            return {"ok": is_there, "error": "not all of it is here yet"}
        return {"ok": False, "error": "the keeper has no ranks to stop"}

    # When it leaves

    def _look(self) -> None:
        """Leave when all was fetched, when there is nothing to keep, or when its time is over. That does not
        pass while the run goes on. It does until a leader comes: the run may have ended before there was a
        keeper.
        """
        now, copying = time.monotonic(), is_copying()
        if copying or self._taking or self._carries() or self._line.connected:
            self._hold.renew(now)
            if copying and self._line.connected:
                self._line.send({"say": "receiving"})  # what a leader may wait for before ranks start
        elif self._kept:
            self._state_end(now)
        # A worker that is sending when all is released, sends what was fetched already.
        busy = copying or (bool(self._taking) and not self._hold.released)
        needless = self._line.left and self._save() and not self._kept
        if not busy and (needless or self._hold.is_over(now)):
            self._leave(0)
        else:
            self._loop.call_later(min(LOOK, self._task.keep / 4), self._look)

    def _carries(self) -> bool:
        return self._shelving is not None and self._shelving.busy

    def _state_end(self, now: float) -> None:
        """State until when it keeps results, if that has moved."""
        until = time.time() + self._hold.until - now
        if abs(until - self._stated) > MOVED:
            self._stated = until
            self._sink.event("keeping", until=round(until, 3))

    def _leave(self, code: int) -> None:
        self._code = code
        self._line.close()
        if self._control is not None:
            self._control.close()
        self._loop.stop()
