"""Output that is streamed from pods, written into the results folder as it comes: a pod that is lost takes
nothing along that was streamed before. The workers' own, complete log files replace these once fetched.

One thread writes what all others bring, a moment later and together (`log_files`)."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from echelon.engines.kubernetes.follow.log_files import (
    UID,
    PodFiles,
    SavedFile,
    SavedPod,
    inode_of,
    read_notes,
)
from echelon.engines.results import STREAMED
from echelon.model.output.log import Line

_DELAY = 0.2  # seconds that lines wait to be written together, at most: a write for each line would cost more
_MANY, _TOO_MANY = 500, 20_000  # lines that wait: then they are written at once; then more are held up
_MOST_OPEN = 200  # files at a time


class StreamedLogs:
    """Takes the lines of all pods, from any thread, and writes them to a folder of logs.

    One process at a time writes; a second one leaves it to the first. What keeps it from writing is told
    once, and ends the writing, not the following."""

    def __init__(self, logs: Path, tell: Callable[[str], object]) -> None:
        self._logs = logs
        self._tell = tell
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._come = threading.Condition()  # guards what follows; never taken inside `_lock`
        self._waiting: list[tuple[str, Sequence[Line]]] = []
        self._count = 0
        self._closed = False
        self._thread = threading.Thread(target=self._write_on, name="saving lines", daemon=True)
        self._pods: dict[str, PodFiles] = {}
        self._notes: dict[str, SavedPod] = {}
        self._foreign: frozenset[str] = frozenset()  # files that were there before this run's
        self._folder: int | None = None
        self._ended = False  # nothing is written any more
        self._failed = False  # because it could not be: what is noted is true, and all that is known

    @property
    def folder(self) -> Path:
        """Where the lines are written."""
        return self._logs

    def begin(self, uid: str, worker: int) -> None:
        """A pod has started; older pods of the same worker were begun before."""
        with self._lock:
            if uid not in self._pods and UID.fullmatch(uid):  # it comes from the cluster, and becomes a path
                self._pods[uid] = PodFiles(SavedPod(worker=worker))
                if self._folder is not None:
                    self._take_up(uid)

    def take(self, uid: str, lines: Sequence[Line]) -> None:
        """Write the lines that a pod's agent has printed next, in a moment."""
        with self._come:
            if self._closed or self._ended:
                return
            if self._thread.ident is None:
                self._thread.start()
            self._waiting.append((uid, lines))
            self._count += len(lines)
            if self._count >= _MANY:
                self._come.notify_all()
            if self._count >= _TOO_MANY:
                self._come.wait_for(lambda: self._count < _TOO_MANY or self._closed)

    def flush(self) -> None:
        """Write what waits."""
        with self._turn:  # what came first is written first
            with self._come:
                waiting, self._waiting, self._count = self._waiting, [], 0
                self._come.notify_all()
            together: dict[str, list[Line]] = {}
            for uid, lines in waiting:
                together.setdefault(uid, []).extend(lines)
            for uid, each in together.items():
                self._write(uid, each)

    def _write_on(self) -> None:
        while not self._closed:
            with self._come:
                self._come.wait_for(lambda: self._closed or self._count >= _MANY, _DELAY)
            self.flush()

    def _write(self, uid: str, lines: Sequence[Line]) -> None:
        with self._lock:
            writer = self._pods.get(uid)
            if self._ended or writer is None:
                return
            try:
                if self._folder is None and not self._open():
                    self._ended = True
                    return
                before = writer.open_files
                writer.take(lines, self._logs, self._foreign, lambda pod: self._write_note(uid, pod))
                if writer.open_files != before:
                    self._close_others(writer)
                if writer.is_due():
                    self._note(uid)
            except OSError as error:
                self._ended = self._failed = True
                why = error.strerror or str(error)
            else:
                return
        self._tell(f"the output is not written to {self._logs} any more: {why}")

    def close(self) -> None:
        """Write what waits, note how far everything came, and let another process go on."""
        with self._come:
            self._closed = True
            self._come.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self.flush()
        with self._lock:
            self._ended = True
            if self._folder is None:
                return
            for uid, writer in self._pods.items():
                if not self._failed:
                    self._note(uid)
                writer.close()
            os.close(self._folder)
            self._folder = None

    def _close_others(self, writer: PodFiles) -> None:
        """Stay below the limit of open files: the others are opened again when they are needed."""
        if sum(each.open_files for each in self._pods.values()) > _MOST_OPEN:
            for each in self._pods.values():
                if each is not writer:
                    each.close()

    def _open(self) -> bool:
        """Begin to write; False if another process does."""
        if self._logs.is_symlink():
            raise NotADirectoryError(0, "it is a link", str(self._logs))
        (self._logs / STREAMED).mkdir(parents=True, exist_ok=True)
        folder = os.open(self._logs / STREAMED, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            return False
        except OSError:
            pass  # a file system without locks
        self._folder = folder
        self._notes = read_notes(self._logs)
        ours = {each.name for pod in self._notes.values() for each in pod.files.values()}
        self._foreign = frozenset(path.name for path in self._logs.iterdir()) - ours
        for uid in list(self._pods):
            self._take_up(uid)
        return True

    def _take_up(self, uid: str) -> None:
        """Go on with what is noted of a pod; files of older pods of the same worker make room."""
        writer = self._pods[uid]
        noted = self._notes.pop(uid, None)
        if noted is not None and noted.worker == writer.pod.worker:
            writer.go_on(noted)
        older = [self._pods[each].pod for each in list(self._pods)[: list(self._pods).index(uid)]]
        same = [pod for pod in (*self._notes.values(), *older) if pod.worker == writer.pod.worker]
        number = sum(1 for pod in same if pod.suffix)
        for pod in same:
            if not pod.suffix and not writer.pod.suffix:
                number += 1
                while any(self._logs.glob(f"*.lost-{number}.log")):
                    number += 1
                pod.suffix = f".lost-{number}"
                for key, file in pod.files.items():
                    self._rename(file, f"{key}{pod.suffix}.log")

    def _rename(self, file: SavedFile, name: str) -> None:
        with suppress(OSError):
            if inode_of(self._logs / file.name) == file.inode:
                (self._logs / file.name).rename(self._logs / name)
                file.name = name

    def _note(self, uid: str) -> None:
        """Write a pod's note, in one step: files never have less than their notes say."""
        writer = self._pods[uid]
        writer.noted = time.monotonic()
        if writer.pod.files:
            self._write_note(uid, writer.pod)

    def _write_note(self, uid: str, pod: SavedPod) -> None:
        if self._folder is None:
            return
        partial = f".{uid}"
        with suppress(OSError):  # the results were fetched, or the disk is full: what is noted is true
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(partial, flags, 0o600, dir_fd=self._folder)
            try:
                os.write(file, json.dumps(asdict(pod)).encode())
            finally:
                os.close(file)
            os.rename(partial, uid, src_dir_fd=self._folder, dst_dir_fd=self._folder)
