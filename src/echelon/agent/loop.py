"""The agent's event loop: file descriptors, timers and signals in one thread.

One thread, because ranks are forked from here and forking a process with threads is unsafe; and because
nothing in an agent takes long."""

from __future__ import annotations

import heapq
import selectors
import signal
import socket
import time

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE
AT_ONCE = 64  # connections: a few at a time, so that a flood of them does not delay the run


def accepted(listener: socket.socket) -> Iterator[socket.socket]:
    """The next connections to a listener that does not block. When there is none, or no descriptor is left,
    it ends: the next round will see.
    """
    for _ in range(AT_ONCE):
        try:
            yield listener.accept()[0]
        except OSError:
            return


class Timer:
    """A scheduled call; `cancel` may be called several times."""

    __slots__ = ("action", "at")

    def __init__(self, at: float, action: Callable[[], object]) -> None:
        self.at = at
        self.action: Callable[[], object] | None = action

    def __lt__(self, other: Timer) -> bool:
        return self.at < other.at

    def cancel(self) -> None:
        """Drop the call."""
        self.action = None


class Loop:
    """Waits for the next event and calls its callback."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._keys: dict[int, selectors.SelectorKey] = {}  # what is watched, by descriptor
        self._timers: list[Timer] = []
        self._signals: dict[int, Callable[[], object]] = {}
        self._running = False
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self.watch(self._wake_read, READ, self._on_wake)

    def watch(self, file: Any, events: int, callback: Callable[[int], object]) -> None:
        """Call `callback(events)` when the file is ready; a second call replaces events and callback."""
        descriptor = file if isinstance(file, int) else file.fileno()
        change = self._selector.modify if descriptor in self._keys else self._selector.register
        self._keys[descriptor] = change(descriptor, events, callback)

    def forget(self, file: Any) -> None:
        """Stop watching."""
        descriptor = file if isinstance(file, int) else file.fileno()
        if self._keys.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)

    def call_later(self, delay: float, action: Callable[[], object]) -> Timer:
        """Call `action()` after `delay` seconds."""
        timer = Timer(time.monotonic() + delay, action)
        heapq.heappush(self._timers, timer)
        return timer

    def on_signal(self, number: int, action: Callable[[], object]) -> None:
        """Call `action()` from the loop after a signal."""
        self._signals[number] = action
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(number, lambda *_: None)

    def run(self) -> None:
        """Run until `stop`."""
        self._running = True
        while self._running:
            for key, events in self._selector.select(self._patience()):
                if self._stopped():
                    return
                if self._keys.get(key.fd) is key:  # an earlier callback may have forgotten it
                    key.data(events)
            now = time.monotonic()
            while self._timers and self._timers[0].at <= now and not self._stopped():
                action = heapq.heappop(self._timers).action
                if action is not None:
                    action()

    def stop(self) -> None:
        """Leave `run` after the current callback."""
        self._running = False

    def close(self) -> None:
        """Close the loop's descriptors; for a process that outlives it."""
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    def _stopped(self) -> bool:
        return not self._running

    def _patience(self) -> float | None:
        while self._timers and self._timers[0].action is None:
            heapq.heappop(self._timers)
        if not self._running:
            return 0
        return max(0.0, self._timers[0].at - time.monotonic()) if self._timers else None

    def _on_wake(self, _events: int) -> None:
        try:
            numbers = set(self._wake_read.recv(4096))
        except BlockingIOError:
            return
        for number in numbers:
            action = self._signals.get(number)
            if action is not None:
                action()
