"""What this machine keeps of the starts of a run before it resumed it: their pods, and with them their logs,
are deleted then. A file for each start, with its events and its lines as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from echelon.engines.decoding import decode
from echelon.engines.kubernetes.record import Stored
from echelon.engines.machine import Submissions
from echelon.errors import EchelonError
from echelon.model.event import Event
from echelon.model.output.log import LogLine

_MOST = 256 << 20  # bytes of one start; a thousand pods could have more than a laptop should keep


def keep_start(submissions: Submissions, stored: Stored, items: Iterable[Event | LogLine]) -> None:
    """Keep a start that has ended, as far as it can be read."""
    submissions.keep_start(stored.uid, stored.run.created, _encoded(items))


def read_kept(submissions: Submissions, stored: Stored) -> Iterator[Event | LogLine]:
    """What was kept of a run's earlier starts, the oldest first; of each, its events before its lines."""
    for raw in submissions.earlier_starts(stored.uid, stored.run.created):
        with suppress(msgspec.DecodeError):
            if raw.startswith(b"e"):
                yield decode(raw[1:], Event)
            else:
                yield decode(raw[1:], LogLine)


def _encoded(items: Iterable[Event | LogLine]) -> Iterator[bytes]:
    size = 0
    with suppress(EchelonError):
        for item in items:
            raw = (b"e" if isinstance(item, Event) else b"l") + msgspec.json.encode(item) + b"\n"
            size += len(raw)
            if size > _MOST:
                return
            yield raw
