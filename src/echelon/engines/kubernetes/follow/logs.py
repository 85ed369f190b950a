"""The logs of a run's pods, as one stream of lines: complete, each line once, gaps named.

Every line of an agent carries its number, so a connection that breaks off is taken up again without losing or
repeating one; where the kubelet has thrown lines away (it keeps 10 MiB and serves the newest file only), the
numbers show how many, and a line in their place reports it. `pod_lines` follows all pods at once."""

from __future__ import annotations

import heapq
import itertools
import json
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.engines.kubernetes.client.http.stream import Stream, split_batches
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.workers import container_name, has_ended, has_started, worker_of
from echelon.errors import Denied, EchelonError
from echelon.model.output.log import GAP, LOOSE, EventLine, Line, LogLine, may_be_event, parse_line

_AGAIN = 1.0  # seconds before a stream that broke off is opened again
_SOON = 0.2  # seconds before one that has brought nothing yet is: a short run's pods go soon
_OVERLAP = 2.0  # seconds of log that are asked for again then: the kubelet's clock counts whole ones
_RECENT = 300  # lines that a look at the last ones asks for
_TRIES = 3  # how often the log of a container that has ended is asked for in vain


@dataclass(slots=True, kw_only=True)
class _Read:
    """How far a pod's log was read: to know a line again that comes twice."""

    last: int = -1  # the number of the last line
    at: float = 0.0  # and its time
    loose: int = 0  # lines without a number that came after it

    def fresh(self, batches: Iterable[list[bytes]], worker: int) -> Iterator[list[Line]]:
        """Of the lines from `at` on, those that were not read before; a gap is reported in its place."""
        again = self.loose  # so many lines without a number are old, once the last numbered one went by
        known = self.last == -1
        for batch in batches:
            found: list[Line] = []
            for raw in batch:
                line = parse_line(raw, worker)
                if line.sequence == LOOSE:  # a message of Python or of the agent
                    if not known:
                        continue
                    if again > 0:
                        again -= 1
                        continue
                    self.loose += 1
                    found.append(line)
                    continue
                if line.sequence <= self.last:
                    known = known or line.sequence == self.last
                    continue
                if line.sequence > self.last + 1:
                    found.append(gap(worker, line.sequence - self.last - 1, line.at))
                    self.last, self.at, self.loose, again, known = line.sequence - 1, line.at, 0, 0, True
                if isinstance(line, LogLine):  # an event has the next line's number; twice it does no harm
                    self.last, self.at, self.loose, again, known = line.sequence, line.at, 0, 0, True
                found.append(line)
            yield found

    def fresh_events(self, batches: Iterable[list[bytes]], worker: int) -> Iterator[list[Line]]:
        """Only the events among them; other lines are hardly looked at."""
        for batch in batches:
            found = [parse_line(raw, worker) for raw in batch if may_be_event(raw)]
            yield [line for line in found if isinstance(line, EventLine) and line.sequence > self.last]
            line = parse_line(batch[-1], worker)
            if isinstance(line, LogLine) and line.sequence != LOOSE:
                self.last, self.at = line.sequence, line.at


def read_pod(
    api: Api,
    pod: Pod,
    *,
    follow: bool = False,
    events_only: bool = False,
    ended: Callable[[], bool] | None = None,
    leave: threading.Event | None = None,
    opened: Callable[[Stream[bytes]], object] = lambda _stream: None,
) -> Generator[list[Line], None, None]:
    """Every line of one pod's agent, as many at once as come at once; with `follow`, until the container has
    ended (`ended`) and all is read, or until `leave` is set and the stream that `opened` received is closed.
    """
    worker, name, container = worker_of(pod), pod.metadata.name, container_name(pod)
    ended = ended or (lambda: has_ended(pod))
    leave = leave or threading.Event()
    read, failed, again = _Read(), 0, False
    choose = read.fresh_events if events_only else read.fresh
    while not leave.is_set():
        was_ended = ended()  # asked before reading: what was written by then will be read
        try:
            with api.logs(
                name, container=container, follow=follow, since=since(read.at), stamped=True
            ) as stream:
                opened(stream)
                pieces = own_pieces(api, pod, stream) if again else stream
                again = pod.metadata.maker.kind not in ("", "Job")  # a Job's have names of their own
                # A line that was cut with its connection is whole the next time.
                yield from choose(split_batches(pieces, with_rest=was_ended), worker)
        except NotThere:
            return  # the pod is gone, and its log with it
        except Denied:
            raise
        except EchelonError as error:
            if not follow:
                raise
            failed = failed + 1 if was_ended else 0
            if failed >= _TRIES:
                yield [unreadable(worker, error)]
                return
        else:
            if not follow or was_ended:
                return
        leave.wait(0.0 if ended() and not failed else _AGAIN if read.at else _SOON)


def own_pieces(api: Api, pod: Pod, stream: Iterable[bytes]) -> Iterator[bytes]:
    """What a log that is opened again brings, unless it is another pod's, to which a controller has given the
    name. That is asked when the first piece is here: the name may change hands at any moment before.
    """
    about = pod.metadata
    for number, piece in enumerate(stream):
        if not number and api.is_replaced("Pod", about.name, about.uid, namespace=about.namespace or None):
            return
        yield piece


def read_recent(api: Api, pod: Pod) -> Iterator[LogLine]:
    """The last lines that a pod's ranks wrote; nothing if it is gone."""
    worker, name, container = worker_of(pod), pod.metadata.name, container_name(pod)
    with suppress(NotThere), api.logs(name, container=container, tail=_RECENT, stamped=True) as stream:
        for raw in itertools.chain.from_iterable(split_batches(stream, with_rest=has_ended(pod))):
            line = parse_line(raw, worker)
            if isinstance(line, LogLine):
                yield line


def gap(worker: int, count: int, at: float) -> LogLine:
    """A line in the place of those that the cluster no longer has."""
    lines = "1 line is" if count == 1 else f"{count} lines are"
    text = f"[{lines} missing here: the cluster has thrown them away]"
    return LogLine(text=text, at=at, worker=worker, sequence=GAP)


def unreadable(worker: int, error: EchelonError) -> LogLine:
    """A line in the place of a log that cannot be read, as when its node is gone."""
    text = f"[the log cannot be read: {error.message}]"
    return LogLine(text=text, at=0.0, worker=worker, sequence=LOOSE)


def read_all(api: Api, pods: Iterable[Pod]) -> Iterator[Line]:
    """The lines of all pods so far, in the order of time; a log that cannot be read hides no other."""
    sources = [_readable(api, pod) for pod in pods if has_started(pod)]
    return heapq.merge(*sources, key=lambda line: line.at)


def _readable(api: Api, pod: Pod) -> Iterator[Line]:
    try:
        yield from itertools.chain.from_iterable(read_pod(api, pod))
    except Denied:
        raise
    except EchelonError as error:
        yield unreadable(worker_of(pod), error)


def is_last_line(line: Line, worker: int) -> bool:
    """Whether this is an agent's last line: its own `worker-ended`. A leader that stays after it repeats
    it in its state lines.
    """
    if not isinstance(line, EventLine) or b'"worker-ended"' not in line.payload:
        return False
    with suppress(ValueError, KeyError, TypeError):
        raw = json.loads(line.payload)
        events = raw["events"] if raw["kind"] == "state" else [raw]
        return any(each["kind"] == "worker-ended" and each.get("worker") == worker for each in events)
    return False


def since(at: float) -> str:
    """From when on a log is asked for whose last line is of that time; some lines come again. Everything, if
    there was none.
    """
    if not at:
        return ""
    return datetime.fromtimestamp(max(0.0, at - _OVERLAP), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
