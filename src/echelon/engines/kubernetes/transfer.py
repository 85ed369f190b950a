"""Files in and out of pods: a tree is copied over `exec`, gone on with when the connection breaks.

`kubectl cp` pipes tar through the same kind of connection, and what breaks is lost. Here both ends are ours:
the agent in the pod is one, this process the other (`echelon.agent.file_sender` and `file_receiver`, the same
code on both sides). A connection that breaks, as when the API server restarts, is made again for minutes, and
every try goes on where the last one stopped; each file is checked by its sha256 and appears in one step.

The engine calls `fetch_tree` for results, `echelon cp` calls both. Who opens the connection is a parameter,
so that tests talk to an agent without a cluster."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from echelon.agent.file_receiver import Missing, Receiver
from echelon.agent.file_sender import Sender
from echelon.agent.file_tree import BadTree
from echelon.agent.file_wire import Broken, Garbled, Trouble, Wire
from echelon.engines.kubernetes import labels
from echelon.errors import (
    EchelonError,
    InvalidJob,
    Refused,
    StateTrouble,
    Unavailable,
    Unreachable,
    from_os_error,
)

if TYPE_CHECKING:
    from echelon.engines.kubernetes.api import Api

T = TypeVar("T")
PATIENCE = 300.0  # seconds without a byte after which a connection is no longer made again
_REFUSED_PATIENCE = 20.0  # an answer of the cluster: most often it means what it says
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 10.0
_HOPELESS = (1, 2, 126, 127)  # exit codes: the agent gave up, or there is none
_GO_ON = "what has arrived is kept: the same command goes on from there"
_KEPT_WORDS = 4000  # bytes of what the other end says beside the protocol


class Channel(Protocol):
    """A running command and its streams; `Exec` is one."""

    @property
    def exit_code(self) -> int | None:
        """How it ended, once it has."""
        ...

    def read(self, timeout: float | None = None) -> tuple[int, bytes] | None:
        """What came next on which stream; None at the end. Raises TimeoutError when nothing did."""
        ...

    def write(self, data: bytes) -> None:
        """Write to its standard input."""
        ...


Opener = Callable[[Sequence[str]], AbstractContextManager[Channel]]  # words after `files` -> the command


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a copy has come; `trouble` says what keeps it waiting, if anything does."""

    done: int = 0
    total: int = 0
    files_done: int = 0
    files: int = 0
    trouble: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """Something that could not be copied."""

    path: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """What came of a copy. `changed` names files that were being written all the while they were read."""

    target: str
    files: int
    size: int
    there: int  # of the files: those that were in their place before
    left_out: tuple[LeftOut, ...] = ()
    changed: tuple[str, ...] = ()


def pod_opener(
    api: Api,
    pod: str,
    *,
    container: str = labels.CONTAINER,
    namespace: str | None = None,
    python: str | None = None,
) -> Opener:
    """Reach the agent in a pod; a connection that broke is not made again once the pod has ended."""
    tried = False

    def opener(words: Sequence[str]) -> AbstractContextManager[Channel]:
        nonlocal tried
        if tried:
            _check_runs(api, pod, namespace)
        tried = True
        command = labels.agent_command(python, "files", *words)
        return api.exec(pod, command, container=container, stdin=True, namespace=namespace)

    return opener


def _check_runs(api: Api, pod: str, namespace: str | None) -> None:
    from echelon.engines.kubernetes.api import NotThere
    from echelon.engines.kubernetes.workers import has_ended

    found = api.find("Pod", pod, namespace=namespace)
    if found is None or has_ended(found):
        raise NotThere(
            f"pod {pod!r} has ended, and what it held is gone", hint="keep it on a volume: --output"
        )


def fetch_tree(
    opener: Opener,
    root: str,
    to: Path | str,
    *,
    path: str = ".",
    into: bool = False,
    move: Callable[[str], str] = lambda path: path,
    progress: Callable[[Progress], object] = lambda _: None,
    patience: float = PATIENCE,
) -> Copied:
    """Copy what is at `path` below the folder `root` in the pod: a folder's content into the folder `to`, a
    file to the file `to` or, with `into`, into the folder `to`.

    `move` says where a path of the tree belongs below `to`. Raises InvalidJob if there is nothing at `path`.
    """

    def converse(wire: Wire) -> dict[str, Any]:
        return Receiver(wire, str(to), into, move, _reporter(progress)).run()

    try:
        with _translated(to):
            return _copied(_persist(opener, ("send", root, path), converse, progress, patience))
    except Missing:
        raise InvalidJob("path", path, "is not there", hint="check its spelling") from None


def send_tree(
    opener: Opener,
    source: Path,
    root: str,
    *,
    into: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
    patience: float = PATIENCE,
) -> Copied:
    """Copy a file or a folder's content of this machine to `root` in the pod; see `fetch_tree`."""
    if not os.path.lexists(source):
        raise InvalidJob("source", str(source), "is not there", hint="check its spelling")

    def converse(wire: Wire) -> dict[str, Any]:
        return Sender(wire, str(source), on_progress=_reporter(progress)).run()

    words = ("receive", root, *(("--into",) if into else ()))
    with _translated(source):
        return _copied(_persist(opener, words, converse, progress, patience))


def _persist(
    opener: Opener,
    words: Sequence[str],
    converse: Callable[[Wire], T],
    progress: Callable[[Progress], object],
    patience: float,
) -> T:
    """Converse, over as many connections as it takes."""
    moved = time.monotonic()  # when a byte last came or went
    delay = _FIRST_DELAY
    while True:
        talk: _Talk | None = None
        limit = patience
        try:
            with opener(words) as channel:
                talk = _Talk(channel)
                return converse(Wire(talk.receive, talk.send))
        except Unreachable as error:
            trouble: EchelonError = error
        except Refused as error:
            if type(error) is not Refused:  # the pod is not there
                raise
            trouble, limit = error, min(patience, _REFUSED_PATIENCE)
        except Broken as error:
            assert talk is not None
            talk.check_hopeless()
            trouble = Unreachable(f"the connection to the pod broke: {error}", hint="try again")
        if talk is not None and talk.moved > moved:
            moved, delay = talk.moved, _FIRST_DELAY
        if time.monotonic() - moved + delay > limit:
            raise type(trouble)(trouble.message, hint=_GO_ON) from None
        progress(Progress(trouble=trouble.message))
        time.sleep(delay)
        delay = min(2 * delay, _LONGEST_DELAY)


class _Talk:
    """A channel as a wire wants it; what comes beside the protocol is kept for the message."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._words = b""
        self.moved = 0.0

    def receive(self, seconds: float) -> bytes:
        """The next bytes of the protocol."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                got = self._channel.read(timeout=max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                return b""
            if got is None:
                raise Broken("it ended too early")
            stream, data = got
            if stream == 1 and data:
                self.moved = time.monotonic()
                return data
            self._words = (self._words + data)[-_KEPT_WORDS:]

    def send(self, data: bytes) -> None:
        """Write bytes of the protocol."""
        try:
            self._channel.write(data)
        except BrokenPipeError as error:
            raise Broken("it ended too early") from error
        self.moved = time.monotonic()

    def check_hopeless(self) -> None:
        """Raise if the command at the other end failed in a way that another try will not change."""
        code = self._channel.exit_code
        if code in _HOPELESS:
            last = self._words.decode(errors="replace").strip().rpartition("\n")[2]
            raise Unavailable(
                f"files cannot be copied: the agent in the pod ended with code {code}"
                + (f": {last[:300]}" if last else ""),
                hint="the image needs Python 3.8 or newer, called python3",
            )


@contextlib.contextmanager
def _translated(where: object) -> Iterator[None]:
    """What either end cannot do, as an error of ours."""
    try:
        yield
    except (BadTree, Garbled) as error:
        raise StateTrouble(
            f"the copy was refused: {error}", hint="nothing was written outside the target"
        ) from error
    except Trouble as error:
        raise _their_trouble(error) from error
    except OSError as error:
        raise from_os_error(error, where) from error


def _their_trouble(error: Trouble) -> StateTrouble:
    if error.code in ("ENOSPC", "EDQUOT"):
        return StateTrouble(
            f"the volume is full: {error.path} does not fit in the pod",
            hint="free some space or take a larger volume; the same command then goes on",
        )
    if error.code in ("BadTree", "Garbled"):
        return StateTrouble(f"the pod refused the copy: {error}", hint="look at what is there already")
    if error.code in ("EACCES", "EPERM", "EROFS"):
        return StateTrouble(
            f"cannot use {error.path} in the pod: {error}",
            hint="the volume belongs to another user, or may only be read",
        )
    return StateTrouble(f"{error.path} in the pod: {error}", hint="try again")


def _reporter(progress: Callable[[Progress], object]) -> Callable[[int, int, int, int], object]:
    return lambda done, total, files_done, files: progress(
        Progress(done=done, total=total, files_done=files_done, files=files)
    )


def _copied(outcome: dict[str, Any]) -> Copied:
    return Copied(
        target=str(outcome["target"]),
        files=int(outcome["files"]),
        size=int(outcome["bytes"]),
        there=int(outcome["there"]),
        left_out=tuple(LeftOut(path=str(path), why=str(why)) for path, why in outcome["left_out"]),
        changed=tuple(map(str, outcome["changed"])),
    )
