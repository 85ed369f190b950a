"""The files for TensorBoard among a run's results, read again and again while they grow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from echelon.metrics.records import EventFile
from echelon.model.output.metric import Metric

FORWARDED = ".echelon"
"""How the name of a file ends that has metrics which echelon has found itself (`tracking/tensorboard.py`)."""
_MARK = "tfevents"
_MOST_FILES = 1000
_MOST_ENTRIES = 100_000  # of folders that are searched: results may be a data set


class EventFiles:
    """Every event file below a folder; each `read` gives what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, EventFile] = {}

    def read(self) -> Iterator[Metric]:
        """The scalars that came since the last time, file by file."""
        for path in find_event_files(self._folder):
            if path not in self._files and len(self._files) < _MOST_FILES:
                self._files[path] = EventFile(path)
        for path, file in self._files.items():
            source = path.parent.relative_to(self._folder).as_posix()
            for tag, value, at, step in file.read():
                yield Metric(tag, value, at, None, step, None, None, source)


def find_event_files(folder: Path) -> list[Path]:
    """Where they are; links are not followed, since they may lead anywhere."""
    found, entries = [], 0
    for parent, _, names in os.walk(folder):
        entries += len(names)
        for name in names:
            path = Path(parent, name) if _MARK in name and not name.endswith(FORWARDED) else None
            if path is not None and path.is_file() and not path.is_symlink():
                found.append(path)
        if entries > _MOST_ENTRIES:
            break
    return sorted(found)
