"""An agent's hold on the carrier of its worker's checkpoints (`keep/carrier.py`), which is started before the
first ranks, told what happens to them, and started again if it ends."""

from __future__ import annotations

import os
import socket
import sys

from echelon.agent.gang.wire import Connection
from echelon.agent.loop import Loop
from echelon.agent.output.sink import Sink
from echelon.agent.ranks.child import Child
from echelon.agent.ranks.ranks import Ranks
from echelon.agent.task import Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

AGAIN = 2.0  # seconds after which a carrier that has ended is started again
MOST_COMPLAINT = 2000  # bytes of what it says when it fails


class CarrierLink:
    """One worker's; `send` takes messages to the leader."""

    def __init__(
        self,
        loop: Loop,
        task: Task,
        worker: int,
        ranks: Ranks,
        sink: Sink,
        send: Callable[[dict[str, object]], object],
    ) -> None:
        self._loop = loop
        self._task = task
        self._worker = worker
        self._ranks = ranks
        self._sink = sink
        self._send = send
        self._carrier: Child | None = None
        self._line: Connection | None = None
        self._keeper: dict[str, object] | None = None
        self._running: dict[str, object] | None = None  # the order by which the carrier knows of ranks
        self._backs = 0
        self._generation = 0  # for which they are brought back
        self._on_back: Callable[[str], object] | None = None
        self._on_given: Callable[[], object] | None = None
        self._complaint = b""
        self._closed = False

    def meet_keeper(self, message: dict[str, object]) -> None:
        """There is a keeper, or there is none any more."""
        self._keeper = {name: message.get(name) for name in ("address", "port", "id")}
        self._keeper["do"] = "keeper"
        self._order(self._keeper)

    def started(self, generation: int) -> None:
        """Ranks run."""
        self._running = {"do": "running", "generation": generation}
        self._order(self._running)

    def ended(self, trusted: bool) -> None:
        """All of them have ended; by themselves, if what they have left is to be trusted."""
        if self._running is not None:
            self._running = None
            self._order({"do": "ended", "trusted": trusted})

    def ask(self, message: dict[str, object]) -> None:
        """The leader asks what this worker has of an entry."""
        self._order({"do": "ask", "entry": message.get("entry"), "number": message.get("number")})

    def bring_back(self, generation: int, what: object, then: Callable[[str], object]) -> None:
        """Before a generation starts, have what is safe in the folder, and call `then("")`, or with why that
        cannot be.
        """
        told = what if isinstance(what, dict) else {}
        self._backs += 1
        self._generation, self._on_back = generation, then
        self._order(
            {"do": "back", "number": self._backs, "entry": told.get("entry"), "mark": told.get("mark")}
        )

    def finish(self, then: Callable[[], object], within: float) -> None:
        """Call `then()` when all that is complete has been given, or the time for that is over."""
        if self._closed or self._carrier is None:
            then()
            return

        def finished() -> None:
            announce, self._on_given = self._on_given, None
            if announce is not None:
                then()

        self._on_given = finished
        self._order({"do": "finish"})
        self._loop.call_later(within, finished)

    def close(self) -> None:
        """The run is over: its results have all of it."""
        self._closed = True
        if self._line is not None:
            self._line.close()
        if self._carrier is not None:
            self._carrier.cancel()
        self._ranks.beside.clear()

    def _order(self, order: dict[str, object]) -> None:
        if self._closed:
            return
        if self._carrier is None:
            self._start(but=order)
        if self._line is not None:
            self._line.send(order)

    def _start(self, but: dict[str, object] | None = None) -> None:
        """Start the carrier, and tell it what it has to know."""
        ours, theirs = socket.socketpair()
        argv = [sys.executable, sys.argv[0], "carry", self._task.checkpoints, self._task.secret_file]
        try:
            self._carrier = Child(
                self._loop,
                self._ranks.children,
                [*argv, str(self._worker)],
                dict(os.environ),
                self._note_complaint,
                self._on_ended,
                stdin=theirs.fileno(),
            )
        except OSError as error:
            ours.close()
            self._say("cannot be started: %s" % (error.strerror or error))
            return
        finally:
            theirs.close()
        self._ranks.beside.add(self._carrier.pid)
        self._line = Connection(self._loop, ours)
        self._line.trust()
        self._line.on_message = lambda _connection, message: self._take(message)
        for order in (self._keeper, self._running):
            if order is not None and order is not but:
                self._line.send(order)

    def _take(self, message: dict[str, Any]) -> None:
        say = message.get("say")
        if say == "back":
            self._came_back(message)
        elif "note" in message:
            self._sink.event("note", worker=self._worker, reason=str(message["note"]))
        else:
            self._send(message)
            if say == "given" and self._on_given is not None:
                self._on_given()

    def _came_back(self, message: dict[str, Any]) -> None:
        if message.get("number") != self._backs or self._on_back is None:
            return
        announce, self._on_back = self._on_back, None
        below = os.path.relpath(self._task.checkpoints, self._task.output)
        for each in message.get("came") or ():
            path = "%s/%s" % (below, each["entry"])
            told = {"path": path, "size": each["size"], "generation": self._generation}
            self._sink.event("restored", worker=self._worker, **told)
        announce(str(message.get("failed") or ""))

    def _note_complaint(self, _stream: int, data: bytes) -> None:
        self._complaint = (self._complaint + data)[-MOST_COMPLAINT:]

    def _on_ended(self, code: int) -> None:
        if self._carrier is not None:
            self._ranks.beside.discard(self._carrier.pid)
        self._carrier, self._line = None, None
        if self._closed:
            return
        last = self._complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
        self._say("ended with code %d%s; it is started again" % (code, ": " + last if last else ""))
        if self._on_back is not None:
            announce, self._on_back = self._on_back, None
            announce("their carrier ended")
        if self._on_given is not None:
            self._on_given()
        self._loop.call_later(AGAIN, self._start_again)

    def _start_again(self) -> None:
        if not self._closed and self._carrier is None:
            self._start()

    def _say(self, what: str) -> None:
        reason = "the carrier of worker %d's checkpoints %s" % (self._worker, what)
        self._sink.event("note", worker=self._worker, reason=reason)
