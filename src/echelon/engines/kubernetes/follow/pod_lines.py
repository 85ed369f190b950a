"""The logs of all pods of a run at once, as they come: a thread reads each, one queue takes them all.

A reader that pauses holds up the threads and fills no memory; where the lines are saved on this machine, it
holds up nothing: what it has not taken yet waits in a file. Leaving the context ends the threads and their
connections."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from types import TracebackType
from typing import Self

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.http.stream import Stream
from echelon.engines.kubernetes.follow.line_queue import SpillingQueue
from echelon.engines.kubernetes.follow.logs import is_last_line, read_pod
from echelon.engines.kubernetes.follow.mirror import Mirror
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state import workers
from echelon.engines.kubernetes.state.workers import has_ended, has_started, worker_of
from echelon.errors import EchelonError
from echelon.model.output.log import Line

_AHEAD = 64  # pieces of logs, of some hundred lines each, that are read ahead of the reader
_FULL = 0.02  # seconds before the next try to put something into a full queue
_LEFT = 0.2  # seconds within which a thread with a full queue notices that the context was left


class PodLines:
    """The lines of all pods as they come, those of pods still to come too. Use it as a context.

    `reading` are the pods (by uid) whose agents may still write; an agent's last line is its own
    `worker-ended`, after which its pod may stay for its results."""

    def __init__(
        self,
        api: Api,
        mirror: Mirror,
        wanted: Callable[[Pod], bool] = lambda _pod: True,
        *,
        events_only: bool = False,
        streamed: StreamedLogs | None = None,
    ) -> None:
        self._api = api
        self._mirror = mirror
        self._wanted = wanted
        self._events_only = events_only
        self._streamed = streamed
        self._lines: queue.Queue[tuple[Pod, list[Line] | EchelonError | None]] = (
            queue.Queue(_AHEAD) if streamed is None else SpillingQueue(_AHEAD, streamed.folder)
        )
        self._known: set[str] = set()
        self._left = threading.Event()
        self._lock = threading.Lock()
        self._streams: dict[str, Stream[bytes]] = {}
        self.reading: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._left.set()
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()
        if isinstance(self._lines, SpillingQueue):
            self._lines.close()

    def take(self, patience: float, pods: Sequence[Pod] | None = None) -> Iterator[tuple[Pod, Line]]:
        """What has come, each line with its pod; waits for the first at most `patience` seconds. `pods` are
        those that are the run's own; all that the mirror has if it is left out.

        However much comes, it returns now and then, so that its caller can do other work."""
        self._look(self._mirror.pods() if pods is None else pods)
        try:
            for number in range(_AHEAD):
                pod, found = self._lines.get(timeout=patience) if not number else self._lines.get_nowait()
                if isinstance(found, EchelonError):
                    raise found
                if found is None:
                    self.reading.discard(pod.metadata.uid)
                else:
                    for line in found:
                        yield pod, line
        except queue.Empty:
            return

    def finds_more(self, pods: Sequence[Pod]) -> bool:
        """Whether these have pods that were not known: their lines come from now on."""
        before = len(self._known)
        self._look(pods)
        return len(self._known) > before

    def misses(self, numbers: Collection[int], pods: Sequence[Pod]) -> bool:
        """Whether one of these workers has pods, and none of them was begun to be read."""
        found = workers.pods_by_worker(pods)
        return any(
            number in found and not any(pod.metadata.uid in self._known for pod in found[number])
            for number in numbers
        )

    def _look(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            uid = pod.metadata.uid
            if uid not in self._known and self._wanted(pod) and has_started(pod):
                self._known.add(uid)
                self.reading.add(uid)
                if self._streamed is not None:
                    self._streamed.begin(uid, worker_of(pod))
                threading.Thread(target=self._read, args=(pod,), name=f"log {uid}", daemon=True).start()

    def _read(self, pod: Pod) -> None:
        uid, worker = pod.metadata.uid, worker_of(pod)
        # A worker that loses its leader after its own end has more events.
        last = worker == 0 or not self._events_only

        def ended() -> bool:
            now = next((each for each in self._mirror.pods() if each.metadata.uid == uid), None)
            return now is None or has_ended(now)

        def opened(stream: Stream[bytes]) -> None:
            with self._lock:
                self._streams[uid] = stream
                if not self._left.is_set():
                    return
            stream.close()

        batches = read_pod(
            self._api,
            pod,
            follow=True,
            events_only=self._events_only,
            ended=ended,
            leave=self._left,
            opened=opened,
        )
        try:
            with closing(batches):
                for batch in batches:
                    if batch and self._streamed is not None:
                        self._streamed.take(uid, batch)
                    if batch:
                        self._put(pod, batch)
                    if self._left.is_set() or (last and any(is_last_line(line, worker) for line in batch)):
                        break
            self._put(pod, None)
        except EchelonError as error:
            self._put(pod, error)
        finally:
            with self._lock:
                self._streams.pop(uid, None)

    def _put(self, pod: Pod, found: list[Line] | EchelonError | None) -> None:
        while not self._left.is_set():
            try:
                self._lines.put((pod, found), timeout=_LEFT)
            except queue.Full:
                self._left.wait(_FULL)
                continue
            return
