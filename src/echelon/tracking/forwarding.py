"""Forwarding: one thread reads a run's metrics, another one hands them to a tracker.

Between them wait a bounded number of points. While the tracker is away the reader waits, and what it has not
read stays where it is kept anyway: in the run's output."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from echelon.errors import EchelonError
from echelon.model.output.metric import Metric
from echelon.model.status import Status
from echelon.tracking.sink import MOST, Away, Facts, Numbering, Point, Rejected, Sent, Sink
from echelon.values import frozen

_WAITING = 20_000  # points in memory, at most
_GATHER = 2.0  # seconds that points are gathered for one request
_FIRST, _LONGEST = 1.0, 30.0  # seconds between two attempts
_AT_THE_END = 1.0  # and when the command waits for them
_AWAY = 10.0  # seconds after a run's end that a tracker which is away is waited for
_SLOW = 60.0  # and one that takes what it is given

Source = Callable[[], Iterable[object]]


@frozen
class Outcome:
    """How far it came."""

    trouble: str = ""  # why not everything was sent
    rejected: int = 0
    why_rejected: str = ""


class Forwarding:
    """Metrics on their way to a tracker. `late` has what is there only when the run has ended and its results
    are here.
    """

    def __init__(
        self,
        sink: Sink,
        facts: Callable[[], Facts],
        source: Source,
        late: Source = tuple,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._sink, self._facts, self._source, self._late, self._tell = sink, facts, source, late, tell
        self._points = _Waiting()
        self._sent: dict[str, int] = {}
        self._opened, self._told = False, False
        self._place, self._trouble, self._unread = "", "", ""
        self._rejected, self._why_rejected = 0, ""
        self._status: Status | None = None
        self._ending = threading.Event()
        self._left = threading.Event()
        self._reader = threading.Thread(target=self._read, name="metrics", daemon=True)
        self._sender = threading.Thread(target=self._forward, name="tracking", daemon=True)

    def begin(self) -> None:
        """Start both threads."""
        self._reader.start()
        self._sender.start()

    def finish(self, status: Status | None, *, slow: float | None = _SLOW) -> Outcome:
        """Hand over what is left, and how the run ended: None of an active one. A tracker that is away is
        not waited for much longer, and one that is slow for that many seconds, if any.
        """
        self._status = status
        self._ending.set()
        began = time.monotonic()
        while self._sender.is_alive():
            self._sender.join(0.1)
            patience = _AWAY if self._trouble else slow
            if patience is not None and time.monotonic() - began > patience:
                break
        slow = self._sender.is_alive()
        self.leave()
        trouble = self._trouble or self._unread or ("it takes too long" if slow else "")
        return Outcome(trouble=trouble, rejected=self._rejected, why_rejected=self._why_rejected)

    def leave(self) -> None:
        """Go on no more."""
        self._left.set()
        self._ending.set()
        self._points.leave()

    def _read(self) -> None:
        try:
            self._take(self._source())
            self._ending.wait()
            if not self._left.is_set():
                self._take(self._late())
        except (EchelonError, OSError) as error:
            self._unread = f"they cannot be read: {error}"
        finally:
            self._points.close()

    def _take(self, items: Iterable[object]) -> None:
        numbering = Numbering()
        for item in items:
            if not isinstance(item, Metric) or not self._sink.wants(item):
                continue
            if not self._points.put(numbering.point(item)):
                return

    def _forward(self) -> None:
        try:
            while points := self._points.take():
                if not self._deliver(partial(self._send, points)):
                    return
            self._ending.wait()
            status = self._status
            self._deliver(lambda: None if status is None else self._sink.end(status))
        except Exception as error:  # noqa: BLE001 - the command that follows the run reports it, and continues
            self._unread = f"{type(error).__name__}: {error}"
        finally:
            self._sink.close()

    def _deliver(self, act: Callable[[], None]) -> bool:
        """Do it as soon as the tracker lets us; whether it was done."""
        pause = _FIRST
        while not self._left.is_set():
            try:
                self._open()
                act()
            except (Away, Rejected, EchelonError) as error:
                self._opened, self._trouble = False, str(error)
                self._tell_once()
            else:
                self._trouble, self._told = "", False
                return True
            if self._ending.is_set():
                self._left.wait(_AT_THE_END)
            else:
                self._ending.wait(pause)
            pause = min(2 * pause, _LONGEST)
        return False

    def _tell_once(self) -> None:
        """Tell of an outage, once for each."""
        if not self._told and not self._ending.is_set():
            self._told = True
            self._tell(
                f"{self._sink.name} does not take metrics: {self._trouble}; they are kept, and sent later"
            )

    def _open(self) -> None:
        if self._opened:
            return
        self._sent = dict(self._sink.open(self._facts()))
        self._opened = True
        if not self._place:
            self._place = self._sink.place()
            self._tell(f"metrics: {self._place}")

    def _send(self, points: Sequence[Point]) -> None:
        """Send what the tracker does not have. Of points that it rejects together, the others are sent."""
        new = [point for point in points if point.number > self._sent.get(point.key, 0)]
        if not new:
            return
        sent = counted(self._sent, new)
        try:
            self._sink.send(new, sent)
        except Rejected as error:
            if len(new) > 1:
                half = len(new) // 2
                self._send(new[:half])
                self._send(new[half:])
                return
            self._rejected, self._why_rejected = self._rejected + 1, str(error)
        self._sent.update(sent)


def counted(sent: Sent, points: Iterable[Point]) -> dict[str, int]:
    """How many points of each key a tracker has, once it has these, too."""
    return {**sent, **{point.key: point.number for point in points}}


class _Waiting:
    """Points between the threads: who puts waits while there are too many, who takes while there is none."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque()
        self._changed = threading.Condition()
        self._closed = self._left = False

    def put(self, point: Point) -> bool:
        """False once the thread that takes has left."""
        with self._changed:
            while len(self._points) >= _WAITING and not self._left:
                self._changed.wait()
            self._points.append(point)
            if len(self._points) in (1, MOST):
                self._changed.notify_all()
            return not self._left

    def take(self) -> list[Point]:
        """Those of one request; none once there will be no more."""
        with self._changed:
            while not (self._points or self._closed or self._left):
                self._changed.wait()
            until = time.monotonic() + _GATHER
            while len(self._points) < MOST and not (self._closed or self._left):
                if not self._changed.wait(until - time.monotonic()):
                    break
            if self._left:
                return []
            taken = [self._points.popleft() for _ in range(min(MOST, len(self._points)))]
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """No more will be put."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def leave(self) -> None:
        """The thread that takes leaves."""
        with self._changed:
            self._left = True
            self._changed.notify_all()
