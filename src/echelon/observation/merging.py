"""Streams that may each be silent for hours, as one: what any of them gives, as it comes.

Each is read by a thread of its own, which waits while the reader of the whole is slow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
Source = Callable[[], Iterator[Sequence[T]]]
_WAITING = 16  # batches that wait for a slow reader: each may be thousands of metrics


class Merged(Generic[T]):
    """What all sources give, until the last one ends; an error of one is raised where this is read.

    Its reader may `add` a source meanwhile."""

    def __init__(self, sources: Iterable[Source[T]]) -> None:
        self._batches: list[Sequence[T] | BaseException] = []
        self._changed = threading.Condition()
        self._open = 0
        self._left = False
        for source in sources:
            self.add(source)

    def add(self, source: Source[T]) -> None:
        """Read one more."""
        with self._changed:
            self._open += 1
        threading.Thread(target=self._pump, args=(source,), name="observing", daemon=True).start()

    def __iter__(self) -> Iterator[T]:
        try:
            while batches := self._take():
                for batch in batches:
                    if isinstance(batch, BaseException):
                        raise batch
                    yield from batch
        finally:
            with self._changed:
                self._left = True
                self._changed.notify_all()

    def _take(self) -> list[Sequence[T] | BaseException]:
        """All that waits to be read; nothing once every source has ended."""
        with self._changed:
            while not self._batches and self._open:
                self._changed.wait()
            batches, self._batches = self._batches, []
            self._changed.notify_all()
            return batches

    def _pump(self, source: Source[T]) -> None:
        try:
            for batch in source():
                self._put(batch)
                if self._left:
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised where the stream is read
            self._put((), error)
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def _put(self, batch: Sequence[T], error: BaseException | None = None) -> None:
        if not batch and error is None:
            return
        with self._changed:
            while len(self._batches) >= _WAITING and not self._left:
                self._changed.wait()
            self._batches.append(batch if error is None else error)
            self._changed.notify_all()
