"""The logs of pods that no agent of echelon's writes: each pod is a rank, and each line is its."""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.follow.logs import own_pieces
from echelon.engines.kubernetes.watched.kinds import container_of
from echelon.errors import EchelonError, Refused, Unreachable
from echelon.model.output.log import LogLine, decode

_LOOK = 1.0  # seconds between two looks for pods that were not there yet


def read_lines(
    api: Api, number: int, pod: Object, *, follow: bool = False, tail: int | None = None
) -> Iterator[LogLine]:
    """What a pod's container wrote, or the last lines of it; nothing where it has not begun, or is gone.
    Lines that are followed go on after a connection was lost, unless another pod has got the name.
    """
    given, again = 0, False
    while True:
        try:
            for count, line in enumerate(_lines(api, pod, follow=follow, tail=tail, again=again)):
                if count >= given:
                    given = count + 1
                    yield _line(number, given, line)
        except Refused:
            return
        except Unreachable:
            if not follow:
                raise
            again = True
            time.sleep(_LOOK)
        else:
            return


def _lines(api: Api, pod: Object, *, follow: bool, tail: int | None, again: bool) -> Iterator[bytes]:
    about, rest = pod["metadata"], b""
    with api.logs(
        str(about["name"]),
        container=container_of(pod),
        follow=follow,
        tail=tail,
        stamped=True,
        namespace=about.get("namespace"),
    ) as stream:
        for piece in own_pieces(api, pod, stream) if again else stream:
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
    if rest:
        yield rest


def merged_lines(api: Api, pods: dict[int, Object]) -> Iterator[LogLine]:
    """All that is there, by the times that the nodes give it."""
    streams = [read_lines(api, number, pod) for number, pod in pods.items()]
    return heapq.merge(*streams, key=lambda line: line.at)


def follow_lines(
    api: Api, look: Callable[[], dict[int, Object]], is_over: Callable[[], bool]
) -> Iterator[LogLine]:
    """Lines as they come, of pods that come later too, until the job is over and all is read."""
    lines: queue.Queue[LogLine | EchelonError] = queue.Queue()
    begun: dict[str, threading.Thread] = {}

    def read(number: int, pod: Object) -> None:
        try:
            for line in read_lines(api, number, pod, follow=True):
                lines.put(line)
        except EchelonError as error:
            lines.put(error)

    while True:
        over = is_over()
        for number, pod in look().items():
            uid = str(pod["metadata"].get("uid"))
            started = (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")
            if uid not in begun and started:
                begun[uid] = threading.Thread(target=read, args=(number, pod), daemon=True)
                begun[uid].start()
        if over and lines.empty() and not any(thread.is_alive() for thread in begun.values()):
            return
        with suppress(queue.Empty):
            while True:
                found = lines.get(timeout=_LOOK)
                if isinstance(found, EchelonError):
                    raise found
                yield found


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
