"""The keeper's dealings with checkpoints: it takes their parts from workers, gives them back, and carries out
what the leader says of them."""

from __future__ import annotations

import os
import shutil
import socket

from echelon.agent.files.wire import Broken, Trouble
from echelon.agent.gang.wire import Connection
from echelon.agent.keep import exchange
from echelon.agent.keep.entries import ASIDE, Found, scan, stock_mark
from echelon.agent.keep.room import MOST_FILES, NO_SPACE, TOO_LARGE, TOO_MANY, Room, space_of
from echelon.agent.keep.shelf import Shelf
from echelon.agent.loop import Loop
from echelon.agent.task import Task
from echelon.agent.thread import in_thread

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

SENT = "sent"  # below the keeper's folder: what a client sends of an earlier start, by mark and worker
MOST_AT_ONCE = 16  # parts that are taken at the same time; others come again


class Shelving:
    """One keeper's; `tell` takes messages to the leader."""

    def __init__(
        self, loop: Loop, task: Task, room: Room, tell: Callable[[dict[str, object]], object]
    ) -> None:
        self._loop = loop
        self._task = task
        self._room = room
        self._tell = tell
        self._shelf = Shelf(os.path.join(task.keep_folder, "checkpoints"))
        self._taking: dict[tuple[int, str], int] = {}  # what comes, and what it takes at most
        self._serving = 0  # workers that get something back
        self._stocks = False  # what a client has sent is being looked at
        self._stocked = False  # the safe checkpoints of the earlier start are here

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        return bool(self._taking or self._serving)

    def tell_shelf(self) -> None:
        """Tell a leader which checkpoints are safe."""
        self._tell({"say": "shelf", "checkpoints": self._shelf.safe(), "stocked": self._stocked})

    def stated(self, worker: int) -> dict[str, list[object]]:
        """What a worker wrote to the safe checkpoints."""
        return self._shelf.stated(worker)

    def stock(self, mark: str, links: object) -> bool:
        """A client has sent the safe checkpoints of an earlier start: have them as safe here, if they are
        what the mark says. Their links, which no copy takes alone, are told: worker, name and target. False
        until that is done; the client asks again.
        """
        if self._stocked or self._stocks or not mark.isalnum():
            return self._stocked
        self._stocks = True
        place = os.path.join(self._task.keep_folder, SENT, mark)
        found: dict[int, dict[str, Found]] = {}

        def work() -> None:
            _make_links(place, links)
            workers = os.listdir(place) if os.path.isdir(place) else []
            found.update({int(each): scan(os.path.join(place, each)) for each in workers if each.isdigit()})

        def done() -> None:
            self._stocks = False
            if stock_mark(found) == mark and not self._stocked:
                self._shelf.stock(found, place)
                self._stocked = True
                shutil.rmtree(os.path.join(self._task.keep_folder, SENT), ignore_errors=True)
                self.tell_shelf()

        in_thread(self._loop, work, done)
        return False

    def receive(
        self, worker: int, offer: dict[str, Any], connection: Connection, answer: dict[str, object]
    ) -> bool:
        """A worker has come, and `answer` would let it in; False if it is not about checkpoints."""
        if "restore" in offer:
            self._give_back(exchange.admit(connection, answer))
        elif "entry" in offer:
            self._consider(worker, Found.of(offer), connection, answer)
        else:
            return False
        return True

    def obey(self, message: dict[str, object]) -> None:
        """The leader says what is safe, or was deleted."""
        entry, parts = message.get("entry"), message.get("parts")
        if not isinstance(entry, str):
            return
        answer: dict[str, object] = {"say": "shelved", "entry": entry}
        if message["say"] == "forget":
            worker = message.get("worker")
            self._shelf.forget(entry, worker if type(worker) is int else None)
        elif isinstance(parts, dict) and all(str(each).isdigit() for each in parts):
            safe = {int(worker): str(version) for worker, version in parts.items()}
            answer["checkpoint"] = self._shelf.describe(entry) if self._shelf.make_safe(entry, safe) else None
        self._tell(answer)

    def make_way(self, worker: int, *, drop: bool) -> int:
        """The results of a worker come: its checkpoints are among them, and need not come twice. Returns what
        the shelf takes still; to `drop` what the worker gave costs what of it differs from its results.
        """
        place = self._place(worker)
        try:
            self._shelf.link_newest(worker, place)
        except OSError:
            pass  # they come again
        if drop:
            self._shelf.drop(worker)
        return self._space

    @property
    def _space(self) -> int:
        return self._shelf.space + sum(self._taking.values())

    def restore(self, worker: int) -> None:
        """The results of a worker have come, and the run did not succeed: checkpoints are those that are
        safe.
        """
        place = self._place(worker)
        self._shelf.restore(worker, place, os.path.join(os.path.dirname(place), ASIDE))

    def save(self, worker: int) -> bool:
        """The run is over, and this worker has given no results: what it wrote to safe checkpoints takes
        their place. False if that is nothing.
        """
        if all(each != worker for _entry, each in self._shelf.places()):
            return False
        shutil.rmtree(os.path.join(self._task.keep_folder, str(worker)), ignore_errors=True)
        self._shelf.link_safe(worker, self._place(worker))
        return True

    def _place(self, worker: int) -> str:
        """Where the checkpoints of a worker are among its results."""
        for number, root in enumerate(self._task.kept):
            below = os.path.relpath(self._task.checkpoints, root)
            if not below.startswith(".."):
                return os.path.join(self._task.keep_folder, str(worker), str(number), below)
        raise ValueError("no folder that is kept has the checkpoints")

    def _consider(
        self, worker: int, found: Found | None, connection: Connection, answer: dict[str, object]
    ) -> None:
        """A worker offers its part of a checkpoint."""
        key = (worker, "" if found is None else found.name)
        if found is None or key in self._taking or len(self._taking) >= MOST_AT_ONCE:
            connection.close()  # it comes again
        elif self._shelf.has(worker, found):
            exchange.dismiss(connection, dict(answer, kept=1))
        elif refused := self._refuse(found):
            exchange.dismiss(connection, dict(answer, refused=refused))
        elif not self._room.enter(found.files):
            connection.close()
        else:
            self._take(key, found, connection, answer)

    def _refuse(self, found: Found) -> str:
        need = space_of(found.files, found.size)
        if found.files > MOST_FILES:
            return TOO_MANY
        most = self._room.most - self._room.promised - sum(self._taking.values())
        for entry in self._shelf.make_room(need, most):
            self._tell({"say": "dropped", "entry": entry})
        if self._shelf.space + need > most:
            return TOO_LARGE
        disk = os.statvfs(self._task.keep_folder)
        return NO_SPACE if need > disk.f_bavail * disk.f_frsize else ""

    def _take(
        self, key: tuple[int, str], found: Found, connection: Connection, answer: dict[str, object]
    ) -> None:
        self._taking[key] = space_of(found.files, found.size)
        sock, place = exchange.admit(connection, answer), self._shelf.place()
        wire = exchange.socket_wire(sock)
        taken: list[bool] = []

        def work() -> None:
            try:
                taken.append(exchange.take_entry(wire, place, found))
            except (Broken, Trouble):
                pass  # it comes again
            except (OSError, ValueError) as error:
                exchange.report(wire, error, place)

        def done() -> None:
            del self._taking[key]
            self._room.leave(found.files)
            whole = taken == [True]
            if whole:
                self._shelf.put(key[0], found, place)
            else:
                shutil.rmtree(place, ignore_errors=True)
            with sock:
                try:
                    wire.write(kept=int(whole))
                    wire.flush()
                except Broken:
                    pass  # it asks again

        in_thread(self._loop, work, done)

    def _give_back(self, sock: socket.socket) -> None:
        """A worker wants what is safe."""
        safe, places = self._shelf.safe(), self._shelf.places()
        self._serving += 1

        def work() -> None:
            try:
                exchange.serve_parts(exchange.socket_wire(sock), safe, places)
            except (Broken, Trouble, OSError, ValueError):
                pass  # it comes again

        def done() -> None:
            self._serving -= 1
            sock.close()

        in_thread(self._loop, work, done)


def _make_links(place: str, links: object) -> None:
    """Make the links that a client tells of, each the whole of a checkpoint."""
    for each in links if isinstance(links, list) else ():
        worker, name, target = each
        raw = {"entry": name, "link": target, "version": "", "files": 0, "size": 0, "at": 0}
        if type(worker) is int and Found.of(raw) is not None:
            link = os.path.join(place, str(worker), name)
            os.makedirs(os.path.dirname(link), exist_ok=True)
            if not os.path.lexists(link):
                os.symlink(target, link)
