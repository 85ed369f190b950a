"""The logs of pods that no agent of echelon's writes: each pod is a rank, and each line is its."""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.follow.logs import own_pieces, since
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.watched.kinds import container_of
from echelon.errors import EchelonError, Refused, Unreachable
from echelon.model.output.log import LogLine, decode

_LOOK = 1.0  # seconds between two looks for pods that were not there yet
_AHEAD = 10_000  # lines that are read ahead of the reader


def read_lines(
    api: Api, number: int, pod: Pod, *, follow: bool = False, tail: int | None = None
) -> Iterator[LogLine]:
    """What a pod's container wrote, or the last lines of it; nothing where it has not begun, or is gone.
    Lines that are followed go on after a connection was lost, unless another pod has got the name: from the
    time of the last one, since the kubelet begins another file when one is full, and serves no other.
    """
    at, same, given, again, ended = 0.0, 0, 0, False, not follow
    while True:
        old = same if again else 0  # so many lines of the moment `at` come again
        try:
            for raw in _lines(api, pod, follow=follow, tail=tail, begin=since(at), again=again):
                line = _line(number, given + 1, raw)
                if again and 0.0 < line.at <= at:
                    if line.at < at:
                        continue
                    if old > 0:
                        old -= 1
                        continue
                at, same = line.at, same + 1 if line.at == at else 1
                given += 1
                yield line
        except Refused:
            return
        except Unreachable:
            if not follow:
                raise
        else:
            if ended:
                return
            ended = _has_ended(api, pod)  # asked before the last reading: what was written by then is read
        again = True
        if not ended:
            time.sleep(_LOOK)


def _has_ended(api: Api, pod: Pod) -> bool:
    """Whether a log has no more to come: API servers cut off the stream of one that lasts for hours."""
    about = pod.metadata
    try:
        now = api.find_shape("Pod", Pod, about.name, namespace=about.namespace or None)
    except Unreachable:
        return False
    except EchelonError:  # pods may not be read
        return True
    if now is None or now.metadata.uid != about.uid:
        return True
    container = container_of(now)
    states = (each.state for each in now.status.container_statuses if each.name == container)
    never = now.spec.restart_policy == "Never"
    over = never and any(each.terminated is not None for each in states)
    return over or now.status.phase in ("Succeeded", "Failed")


def _lines(api: Api, pod: Pod, *, follow: bool, tail: int | None, begin: str, again: bool) -> Iterator[bytes]:
    about, rest = pod.metadata, b""
    with api.logs(
        about.name,
        container=container_of(pod),
        follow=follow,
        tail=tail,
        since=begin,
        stamped=True,
        namespace=about.namespace or None,
    ) as stream:
        for piece in own_pieces(api, pod, stream) if again else stream:
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
    if rest:
        yield rest


def merged_lines(api: Api, pods: dict[int, Pod]) -> Iterator[LogLine]:
    """All that is there, by the times that the nodes give it."""
    streams = [read_lines(api, number, pod) for number, pod in pods.items()]
    return heapq.merge(*streams, key=lambda line: line.at)


def follow_lines(
    api: Api, look: Callable[[], dict[int, Pod]], is_over: Callable[[], bool]
) -> Iterator[LogLine]:
    """Lines as they come, of pods that come later too, until the job is over and all is read. While the API
    server is away, those that are read already are all there are. A reader that pauses holds the streams up.
    """
    lines: queue.Queue[LogLine | EchelonError] = queue.Queue(_AHEAD)
    begun: dict[str, threading.Thread] = {}
    left = threading.Event()

    def put(found: LogLine | EchelonError) -> None:
        while not left.is_set():
            with suppress(queue.Full):
                lines.put(found, timeout=_LOOK)
                return

    def read(number: int, pod: Pod) -> None:
        try:
            for line in read_lines(api, number, pod, follow=True):
                put(line)
                if left.is_set():
                    return
        except EchelonError as error:
            put(error)

    over, pods = is_over(), look()  # an API server that is away from the beginning is the caller's to hear of
    try:
        while True:
            for number, pod in pods.items():
                uid = pod.metadata.uid
                started = pod.status.phase in ("Running", "Succeeded", "Failed")
                if uid not in begun and started:
                    begun[uid] = threading.Thread(
                        target=read, args=(number, pod), name=f"log {uid}", daemon=True
                    )
                    begun[uid].start()
            if over and lines.empty() and not any(thread.is_alive() for thread in begun.values()):
                return
            with suppress(queue.Empty):
                while True:
                    found = lines.get(timeout=_LOOK)
                    if isinstance(found, EchelonError):
                        raise found
                    yield found
            with suppress(Unreachable):
                over = is_over()
                pods = look()
    finally:
        left.set()


def _line(number: int, count: int, line: bytes) -> LogLine:
    stamp, _, text = line.partition(b" ")
    at = moment(stamp.decode("ascii", "replace"))
    return LogLine(
        text=decode(text if at is not None else line),
        at=at or 0.0,
        worker=number,
        rank=number,
        sequence=count,
    )
