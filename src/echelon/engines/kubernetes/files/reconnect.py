"""A conversation with an agent in a pod over as many connections as it takes.

Connections through the API server break: it restarts, a proxy times out, a laptop sleeps. A copy can begin
again at any time, so a broken connection only delays it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from echelon.agent.files.wire import Broken, Wire
from echelon.errors import EchelonError, Refused, Unavailable, Unreachable

T = TypeVar("T")
PATIENCE = 300.0  # seconds without a byte after which a connection is no longer made again
_REFUSED_PATIENCE = 20.0  # the same after a refusal by the cluster, which is most often final
FIRST_DELAY, LONGEST_DELAY = 0.5, 10.0
_HOPELESS = (1, 2, 126, 127)  # exit codes: the agent gave up, or there is none
_GO_ON = "what has arrived is kept: the same command goes on from there"
_KEPT_ERRORS = 4000  # bytes that the other end writes beside the protocol


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


Opener = Callable[[Sequence[str]], AbstractContextManager[Channel]]  # arguments after `files` -> the command


def persist(
    opener: Opener,
    arguments: Sequence[str],
    converse: Callable[[Wire], T],
    report: Callable[[str], object],
    patience: float,
) -> T:
    """Converse, over as many connections as it takes; `report` gets the trouble of each that broke.

    `patience` counts from the last byte that came or went.
    """
    began = moved = time.monotonic()  # `moved`: when a byte last came or went
    delay = FIRST_DELAY
    while True:
        current: _Conversation | None = None
        limit = patience
        try:
            with opener(arguments) as channel:
                current = _Conversation(channel)
                return converse(Wire(current.receive, current.send))
        except Unreachable as error:
            trouble: EchelonError = error
        except Refused as error:
            if type(error) is not Refused:  # the pod is not there
                raise
            trouble, limit = error, min(patience, _REFUSED_PATIENCE)
        except Broken as error:
            assert current is not None
            current.check_hopeless()
            trouble = Unreachable(f"the connection to the pod broke: {error}", hint="try again")
        if current is not None and current.moved > moved:
            moved, delay = current.moved, FIRST_DELAY
        if time.monotonic() - moved + delay > limit:
            if began == moved or not isinstance(trouble, Unreachable):
                raise trouble
            raise Unreachable(trouble.message, hint=_GO_ON) from trouble
        report(trouble.message)
        time.sleep(delay)
        delay = min(2 * delay, LONGEST_DELAY)


class _Conversation:
    """A channel as a wire needs it; what comes beside the protocol is kept for the error message."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._errors = b""
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
            self._errors = (self._errors + data)[-_KEPT_ERRORS:]

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
            last = self._errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise Unavailable(
                f"files cannot be copied: the agent in the pod ended with code {code}"
                + (f": {last[:300]}" if last else ""),
                hint="the image needs Python 3.8 or newer, called python3",
            )
