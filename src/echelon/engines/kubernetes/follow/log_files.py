"""The log files at home of one pod's output: which they are, how much of them is noted, and writing on.

`logs/rank-N.log` has the lines of rank N, `logs/agent-N.log` what the agent of worker N printed itself or ran
before the ranks (pip). Lines that the cluster threw away are named in their place. When a pod is replaced,
what it wrote moves to `rank-N.lost-K.log`.

`logs/.streamed/` has a note for each pod: the number of the last line, and the size of each file up to it. A
later follower goes on from there without repeating a line. A file with another inode than noted was put there
by the fetch or by the user: it is never appended to, nor cut."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from echelon.engines.kubernetes.follow.logs import gap, is_last_line
from echelon.engines.results import STREAMED
from echelon.model.output.log import GAP, LOOSE, Line, LogLine

_NOTE = 0.5  # seconds between two notes of a pod, at least; a later follower reads so much again
_MOST_FILES = 256  # of one pod; a pod that names more ranks is none of ours
UID = re.compile(r"[0-9a-zA-Z-]{1,64}")


@dataclass(slots=True)
class SavedFile:
    """One file that lines of a pod were written to: which it is, and how much of it is noted."""

    name: str
    inode: int
    size: int = 0
    open: str = ""  # the stream whose line has begun and not ended
    painted: bool = False  # that line is the state of a progress bar, which the next text overwrites


@dataclass(slots=True)
class SavedPod:
    """How much of a pod's output was written, and where."""

    worker: int
    suffix: str = ""  # of its files, once another pod has replaced it
    last: int = -1  # the number of the last line
    loose: int = 0  # lines without a number that came after it
    torn: bool = False  # some lines were missing
    over: bool = False  # its agent's last line was read
    files: dict[str, SavedFile] = field(default_factory=dict)  # by rank-N or agent-N


def read_notes(logs: Path) -> dict[str, SavedPod]:
    """What is noted in a folder of logs, by the uid of each pod; what cannot be read is left out."""
    found = {}
    with suppress(OSError):
        for path in sorted((logs / STREAMED).iterdir()):
            if not UID.fullmatch(path.name):
                continue
            with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
                raw = json.loads(path.read_bytes())
                files = {key: SavedFile(**each) for key, each in raw.pop("files").items()}
                found[path.name] = SavedPod(**raw, files=files)
    return found


def forget_complete(logs: Path) -> None:
    """The results were fetched: drop the notes of pods whose files were replaced, or lack nothing."""
    with suppress(OSError):
        for uid, pod in read_notes(logs).items():
            still = [each for each in pod.files.values() if inode_of(logs / each.name) == each.inode]
            if not still or (pod.over and not pod.torn):
                (logs / STREAMED / uid).unlink(missing_ok=True)
        (logs / STREAMED).rmdir()


def inode_of(path: Path) -> int:
    """The number of a file; 0 if there is none."""
    with suppress(OSError):
        return path.lstat().st_ino
    return 0


class PodFiles:
    """Writes the lines of one pod."""

    def __init__(self, pod: SavedPod) -> None:
        self.pod = pod
        self.noted = 0.0
        self._known = True  # the last line that was written before this process has gone by
        self._again = 0  # lines without a number that were written before, and will come again
        self._checked = True  # files of an earlier process were looked at
        self._files: dict[str, int | None] = {}  # open descriptors; None for a file that is not ours

    def go_on(self, noted: SavedPod) -> None:
        """Continue what an earlier process has written."""
        self.pod, self._known, self._again, self._checked = noted, noted.last < 0, noted.loose, False

    @property
    def open_files(self) -> int:
        """How many files it has open."""
        return len(self._files)

    def is_due(self) -> bool:
        """Whether it is time for a note."""
        return time.monotonic() - self.noted >= _NOTE

    def close(self) -> None:
        """Close the files; the next line opens them again."""
        for descriptor in self._files.values():
            if descriptor is not None:
                os.close(descriptor)
        self._files.clear()
        self._checked = False

    def take(
        self,
        lines: Sequence[Line],
        logs: Path,
        foreign: frozenset[str],
        note: Callable[[SavedPod], object],
    ) -> None:
        """Write what is new among the lines, each file with one call. New files are noted before: they are
        known as this run's own even if nothing can be written to them.
        """
        pod = self.pod
        before, known = replace(pod, over=False), len(pod.files)
        texts: dict[str, list[str]] = {}
        for line in lines:
            if not isinstance(line, LogLine):
                if is_last_line(line, pod.worker):
                    pod.over, self.noted = True, 0.0
                continue
            if line.sequence == GAP:
                continue  # the next line's number shows how many are missing since the last that we have
            if line.sequence == LOOSE:
                if not self._known:
                    continue
                if self._again > 0:
                    self._again -= 1
                    continue
                self._check(logs, contiguous=True)
                pod.loose += 1
            elif line.sequence <= pod.last:
                self._known = self._known or line.sequence == pod.last
                continue
            else:
                missing = line.sequence - pod.last - 1
                self._check(logs, contiguous=not missing)
                if missing:
                    pod.torn = True
                    self._add_gap(texts, missing, line, logs, foreign)
                pod.last, pod.loose, self._again, self._known = line.sequence, 0, 0, True
            self._add(texts, self._key(line), line, logs, foreign)
        if len(pod.files) > known:
            note(before)  # with the files, which it shares; none of the lines
        for key, pieces in texts.items():
            self._write(key, "".join(pieces).encode("utf-8", "backslashreplace"))

    def _add_gap(
        self, texts: dict[str, list[str]], count: int, line: LogLine, logs: Path, foreign: frozenset[str]
    ) -> None:
        """Name missing lines in the files of every rank that may have written them."""
        missing = gap(self.pod.worker, count, line.at)
        for key in dict.fromkeys([*self.pod.files, self._key(line)]):
            if key.startswith("rank-") or key == self._key(line):
                self._add(texts, key, missing, logs, foreign)

    def _key(self, line: LogLine) -> str:
        key = f"rank-{line.rank}"
        if line.rank is None or (key not in self.pod.files and len(self.pod.files) >= _MOST_FILES):
            return f"agent-{line.worker}"
        return key

    def _add(
        self, texts: dict[str, list[str]], key: str, line: LogLine, logs: Path, foreign: frozenset[str]
    ) -> None:
        file = self.pod.files.get(key)
        if file is None:
            file = self._create(key, logs, foreign)
        pieces = texts.setdefault(key, [])
        if file.open and (file.open != line.stream or line.sequence < 0):
            pieces.append("\n")  # the other stream's line goes on below, as it would on a terminal
        elif file.painted:
            pieces.append("\r")
        pieces.append(line.text)
        file.painted = line.progress
        file.open = line.stream if line.unfinished or line.progress else ""
        if not file.open:
            pieces.append("\n")

    def _create(self, key: str, logs: Path, foreign: frozenset[str]) -> SavedFile:
        name = f"{key}{self.pod.suffix}.log"
        if name in foreign:  # of an earlier run in the same folder; the fetch will replace it
            name = f"{key}{self.pod.suffix}.streamed.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor: int | None
        try:
            descriptor = os.open(logs / name, flags, 0o666)
            inode = os.fstat(descriptor).st_ino
        except FileExistsError:  # the fetch was faster
            descriptor, inode = None, 0
        self._files[key] = descriptor
        self.pod.files[key] = SavedFile(name=name, inode=inode)
        return self.pod.files[key]

    def _check(self, logs: Path, *, contiguous: bool) -> None:
        """Before the first new line: drop what an earlier process wrote after its last note, since it comes
        again; but not if some of it does not.
        """
        if self._checked:
            return
        self._checked = True
        for key, file in self.pod.files.items():
            path = logs / file.name
            if inode_of(path) != file.inode:
                self._files[key] = None
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            size = os.fstat(descriptor).st_size
            if contiguous and size >= file.size:
                os.ftruncate(descriptor, file.size)
            else:
                file.size, file.painted = size, False
                ends = not size or os.pread(descriptor, 1, size - 1) == b"\n"
                file.open = "" if ends else "cut"
            os.lseek(descriptor, file.size, os.SEEK_SET)
            self._files[key] = descriptor

    def _write(self, key: str, data: bytes) -> None:
        descriptor, file = self._files.get(key), self.pod.files[key]
        if descriptor is None:
            return
        rest = memoryview(data)
        while rest:
            done = os.write(descriptor, rest)
            file.size += done
            rest = rest[done:]
