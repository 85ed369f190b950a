"""A worker's side of giving its results to the keeper, while it holds them: begun as soon as both the results
and a keeper are there, tried again when the connection breaks or another keeper comes.

A refusal, as for want of room, is final for that keeper: the worker then holds its results as it would
without one, and says so."""

from __future__ import annotations

import time

from echelon.agent.files.wire import Broken
from echelon.agent.keep.exchange import Refused, give
from echelon.agent.keep.room import WHY
from echelon.agent.loop import Loop
from echelon.agent.output.sink import Sink
from echelon.agent.task import Task
from echelon.agent.thread import in_thread

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable

AGAIN = 2.0  # seconds after a connection that broke
ABSENT = 10.0  # seconds without a keeper after which that is said
STANDSTILL = 60.0  # seconds without a byte sent


class Handover:
    """The results of one worker on their way to the keeper; `on_kept` is called when they are there."""

    def __init__(
        self, loop: Loop, task: Task, worker: int, sink: Sink, on_kept: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._task = task
        self._worker = worker
        self._sink = sink
        self._on_kept = on_kept
        self._said = ""
        self._address: tuple[str, int] | None = None
        self._refused_by: tuple[str, int] | None = None
        self._stated: list[dict[str, Any]] | None = None  # manifests, once the results are there
        self._unsafe = False  # its ranks may have left a checkpoint torn
        self._kept_at = float("inf")
        self._moved = 0.0  # when something of them was last sent
        self.active = False  # results are being sent, or a connection is made for it

    @property
    def kept(self) -> bool:
        """Whether the keeper vouches for this worker's results, or there are none."""
        return time.monotonic() >= self._kept_at

    @property
    def moves(self) -> bool:
        """Whether results are being sent, and have been of late: a keeper that cannot be reached holds up
        nothing.
        """
        return self.active and time.monotonic() - self._moved < STANDSTILL

    def meet(self, address: object, port: object) -> None:
        """The leader says where the keeper is; None if it has gone."""
        known = isinstance(address, str) and type(port) is int
        self._address = (address, port) if known else None  # type: ignore[assignment]
        if known:
            self._refused_by = None  # it may be another one, at the address of the one before
        self._try()

    def begin(self, stated: list[dict[str, Any]], *, has_results: bool, succeeded: bool) -> None:
        """The results are there, with these manifests. Of one that has none, as of a leader that replaces
        another, members which have some are on their way.
        """
        self._stated, self._unsafe = stated, not succeeded
        if not has_results:
            from echelon.agent.gang.decisions import REUNION  # a member does not need it before

            self._kept_at = time.monotonic() + REUNION
            return
        self._moved = time.monotonic()
        self._loop.call_later(ABSENT, self._miss)
        self._try()

    def _miss(self) -> None:
        if self._address is None and not self.active and not self.kept:
            self._tell("the run's keeper is not there")

    def _try(self) -> None:
        address = self._address
        wanted = self._stated is not None and self._kept_at == float("inf") and not self.active
        if not wanted or address is None or address == self._refused_by:
            return
        self.active = True
        outcome: list[object] = []
        stated, unsafe = self._stated or [], self._unsafe

        def moved(*_progress: int) -> None:
            self._moved = time.monotonic()

        def work() -> None:
            try:
                secret, roots = self._task.secret(), self._task.kept
                give(address, secret, self._worker, roots, stated, moved, unsafe=unsafe)
                outcome.append(True)
            except (Refused, Broken, OSError) as error:
                outcome.append(error)

        in_thread(self._loop, work, lambda: self._on_done(address, outcome[0] if outcome else None))

    def _on_done(self, address: tuple[str, int], outcome: object) -> None:
        self.active = False
        if outcome is True:
            self._kept_at = time.monotonic()
            self._sink.event("worker-kept", worker=self._worker)
            self._on_kept()
        elif isinstance(outcome, Refused):
            self._refused_by = address
            self._tell(WHY.get(outcome.kind, "the keeper did not get all of them"))
            self._try()  # another keeper may have come meanwhile
        else:
            if time.monotonic() - self._moved > ABSENT:
                self._tell("the keeper cannot be reached")
            self._loop.call_later(AGAIN, self._try)

    def _tell(self, why: str) -> None:
        if why != self._said:
            self._said = why
            reason = "worker %d holds its results itself: %s" % (self._worker, why)
            self._sink.event("unkept", worker=self._worker, reason=reason)
