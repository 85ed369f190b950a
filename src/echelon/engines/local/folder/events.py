"""A run's event file, read as a stream: a run of a week has more events than memory should hold."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from echelon.engines.decoding import decoder_of
from echelon.engines.local.folder.rundir import RunDir
from echelon.model.event import Event

_AT_ONCE = 256 * 1024  # bytes of lines that are in memory at a time


class EventFile:
    """The event file of a run; each `read` goes on where the last one ended."""

    def __init__(self, folder: RunDir) -> None:
        self._path = folder.events
        self._position = 0

    def read(self) -> Iterator[Event]:
        """The events up to the current end of the file; none if there is no file.

        A line still being written is left for later. One that cannot be read (a power cut has torn it, a
        newer version wrote it) is left out."""
        decode = decoder_of(Event).decode
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            while lines := file.readlines(_AT_ONCE):
                if not lines[-1].endswith(b"\n"):
                    lines.pop()
                for line in lines:
                    self._position += len(line)
                    try:
                        event = decode(line)
                    except (msgspec.DecodeError, RecursionError):
                        continue
                    yield event
                if not lines:
                    return


def read_events(folder: RunDir) -> Iterator[Event]:
    """Every event so far."""
    return EventFile(folder).read()
