"""The objects of one run as the API server has them, kept up to date by watches.

Followers of a run read this copy instead of polling. A watch that breaks off continues where it was; one that
is too old (410), or that was away, begins with a new list; an API server that is away is waited for, and
`trouble` reports it meanwhile. A kind that is served no longer has no objects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from echelon.engines.kubernetes.client.answers import Change
from echelon.engines.kubernetes.client.api import Api, Gone, Listing, NotThere, Object
from echelon.engines.kubernetes.client.http.stream import Stream
from echelon.engines.kubernetes.pods import Pod
from echelon.errors import Denied, EchelonError, Unreachable

_WATCH = 30.0  # seconds that one watch lasts; a connection that died silently is missed no longer
_PAUSE = (0.2, 5.0)  # seconds between two tries: at first, and at most
_LEAVE = 0.5  # seconds that a thread in the middle of a request gets to end it when it is left
_HICCUP = 2.0  # seconds of silence that are not reported


class Mirror:
    """Objects of some kinds, each with its selector. Use it as a context; leaving ends its threads."""

    def __init__(self, api: Api, selectors: Mapping[str, str]) -> None:
        self._api = api
        self._selectors = dict(selectors)
        self._changed = threading.Condition()
        self._left = threading.Event()
        self._objects: dict[str, dict[str, Any]] = {kind: {} for kind in selectors}
        self._listed: set[str] = set()
        self._broken: dict[str, tuple[float, EchelonError]] = {}  # since when, and why
        self._watches: dict[str, Stream[Change[Any]]] = {}
        self._fatal: EchelonError | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for kind in self._objects:
            self._begin(kind)
        return self

    def watch(self, selectors: Mapping[str, str]) -> None:
        """Keep objects of further kinds, too; those that are kept already stay as they are."""
        with self._changed:
            further = [kind for kind in selectors if kind not in self._objects]
            for kind in further:
                self._selectors[kind] = selectors[kind]
                self._objects[kind] = {}
        for kind in further:
            self._begin(kind)

    def _begin(self, kind: str) -> None:
        thread = threading.Thread(target=self._keep, args=(kind,), name=f"watch {kind}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._left.set()
            watches = list(self._watches.values())
            self._changed.notify_all()
        for watch in watches:
            watch.close()
        deadline = time.monotonic() + _LEAVE
        for thread in self._threads:  # so that none opens a connection after its client is closed
            thread.join(max(0.0, deadline - time.monotonic()))

    def of(self, kind: str) -> list[Object]:
        """The objects of a kind, the oldest first; those that were deleted while we looked are left out."""
        return sorted(self._all(kind), key=_age)

    def pods(self) -> list[Pod]:
        """The same of pods."""
        return sorted(self._all("Pod"), key=_age_of_pod)

    def _all(self, kind: str) -> list[Any]:
        with self._changed:
            if self._fatal is not None:
                raise self._fatal
            return list(self._objects.get(kind, {}).values())

    @property
    def trouble(self) -> EchelonError | None:
        """Why the cluster does not respond, if it does not."""
        now = time.monotonic()
        with self._changed:
            broken = list(self._broken.values())
        lasting = (why for since, why in broken if now - since >= _HICCUP)
        return next((why for why in lasting if not isinstance(why, NotThere)), None)

    def is_ready(self, patience: float) -> bool:
        """Whether the first lists are there, waited for at most `patience` seconds.

        Raises what keeps them from coming for good (a right that is missing)."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._fatal or self._left.is_set() or len(self._listed) == len(self._objects),
                patience,
            )
            if self._fatal is not None:
                raise self._fatal
            return len(self._listed) == len(self._objects)

    def _keep(self, kind: str) -> None:
        """One thread for each kind, until it is left or there is no sense in going on."""
        try:
            self._list_and_watch(kind)
        except EchelonError as error:
            self._give_up(error)
        except Exception as error:  # noqa: BLE001 - the reader that waits for this thread gets it
            self._give_up(
                Unreachable(
                    f"the objects of kind {kind} cannot be followed: {error!r}",
                    hint="an API server, or something before it, answers oddly",
                )
            )

    def _list_and_watch(self, kind: str) -> None:
        pause, version = _PAUSE[0], ""
        while not self._left.is_set():
            try:
                if not version:
                    listing = self._list(kind)
                    version = listing.version
                    self._replace(kind, listing.items)
                pause = _PAUSE[0]
                for change, newer, obj in self._open(kind, version):
                    version = newer or version
                    self._apply(kind, change, obj)
            except Gone:
                version = ""
            except Denied:
                raise
            except EchelonError as error:
                since = self._note(kind, error)
                version = ""  # the next list shows that the cluster responds again
                # An API server that has just started may not know a CustomResourceDefinition yet.
                if isinstance(error, NotThere) and time.monotonic() - since >= _HICCUP:
                    self._replace(kind, [])
                self._left.wait(pause)
                pause = min(2 * pause, _PAUSE[1])

    def _list(self, kind: str) -> Listing[Any]:
        if kind == "Pod":
            return self._api.listing(kind, Pod, selector=self._selectors[kind])
        return self._api.list(kind, selector=self._selectors[kind])

    def _open(self, kind: str, version: str) -> Stream[Change[Any]]:
        """A watch that leaving will close."""
        shape: type[Any] = Pod if kind == "Pod" else dict
        selector = self._selectors[kind]
        watch = self._api.watch(kind, shape, selector=selector, version=version, timeout=_WATCH)
        with self._changed:
            self._watches[kind] = watch
            if not self._left.is_set():
                return watch
        watch.close()
        return watch

    def _replace(self, kind: str, items: list[Any]) -> None:
        with self._changed:
            self._objects[kind] = {_uid(item): item for item in items}
            self._listed.add(kind)
            self._broken.pop(kind, None)
            self._changed.notify_all()

    def _apply(self, kind: str, change: str, obj: Any) -> None:
        with self._changed:
            if obj is None:  # a bookmark, or damaged
                return
            if change == "DELETED":
                self._objects[kind].pop(_uid(obj), None)
            else:
                self._objects[kind][_uid(obj)] = obj

    def _note(self, kind: str, error: EchelonError) -> float:
        """Keep why a kind cannot be read; returns since when it is so."""
        with self._changed:
            since, last = self._broken.get(kind, (time.monotonic(), error))
            if isinstance(error, NotThere) and not isinstance(last, NotThere):
                since = time.monotonic()
            self._broken[kind] = since, error
            return since

    def _give_up(self, error: EchelonError) -> None:
        with self._changed:
            self._fatal = error
            self._changed.notify_all()


class Mirrors:
    """Mirrors that the threads of a process have in common: what shows the lines of a run and what reports
    its events watch the same objects.
    """

    def __init__(self) -> None:
        # Reentrant: a follower that was dropped leaves when it is collected, in any thread at any moment.
        self._lock = threading.RLock()
        self._open: dict[str, tuple[Mirror, int]] = {}  # with the number of their readers

    @contextmanager
    def reading(self, name: str, make: Callable[[], Mirror]) -> Iterator[Mirror]:
        """The mirror of that name while it is read; made for the first reader, left with the last."""
        with self._lock:
            if name not in self._open:
                self._open[name] = make().__enter__(), 0
            mirror, readers = self._open[name]
            self._open[name] = mirror, readers + 1
        try:
            yield mirror
        finally:
            with self._lock:
                mirror, readers = self._open.pop(name)
                if readers > 1:
                    self._open[name] = mirror, readers - 1
            if readers == 1:
                mirror.__exit__(None, None, None)


def _age(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("creationTimestamp") or "", obj["metadata"]["name"]


def _age_of_pod(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def _uid(obj: Object | Pod) -> str:
    """What an object is known by; its name alone would be the next one's too."""
    return obj.metadata.uid if isinstance(obj, Pod) else str(obj["metadata"]["uid"])
