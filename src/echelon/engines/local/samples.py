"""What the ranks of a run here use: the file that the leader's agent replaces every few seconds."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec

from echelon.engines.decoding import decode
from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.local.folder.store import RunStore
from echelon.engines.local.supervision import is_over
from echelon.model.engine.sample import Samples
from echelon.model.run import RunRef

_LOOK = 0.5  # seconds between two looks


class LocalSampling:
    """The samples of this machine's runs."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def newest(self, ref: RunRef) -> Samples:
        """Read the file; there is none before the first sample and after the end."""
        return _read(self._store.find(ref.name))

    def follow(self, ref: RunRef, left: threading.Event) -> Iterator[Samples]:
        """Read it again and again."""
        folder, seen = self._store.find(ref.name), None
        while not left.is_set():
            over, found = is_over(folder), _read(folder)
            if found != seen:
                seen = found
                yield found
            if over:
                return
            left.wait(_LOOK)


def _read(folder: RunDir) -> Samples:
    """What is in the file; nothing if it is missing or damaged, which no run depends on."""
    try:
        return decode(folder.samples.read_bytes(), Samples)
    except (OSError, ValueError, msgspec.MsgspecError):
        return Samples()
