"""What the ranks of a run in a cluster use: the leader's agent has the newest samples of all workers in a
file, which a command in its pod prints. One command serves a follower for as long as it looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from echelon.engines.decoding import decode
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.execute import Exec
from echelon.engines.kubernetes.follow.view import look
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import workers
from echelon.errors import Denied, EchelonError, UnknownRun, Unreachable
from echelon.model.engine.sample import Samples
from echelon.model.run import RunRef

_ANSWER = 20.0  # seconds within which the command answers
_LOOK = 0.5  # seconds between two looks whether the follower has left
_ENDING = 5.0  # seconds that a pod may count as running after its container has ended
_AGAIN = 3.0  # seconds until a leader is looked for again
_LONGEST = 32 << 20  # bytes of all samples of a run


class PodSampling:
    """The samples of a namespace's runs."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def newest(self, ref: RunRef) -> Samples:
        """Ask the leader's pod once; nothing if it does not run. It counts as running for a moment after its
        container has ended, which is then waited for.
        """
        deadline = time.monotonic() + _ENDING
        while True:
            try:
                return next(self._printed(ref, threading.Event()), Samples())
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK)

    def follow(self, ref: RunRef, left: threading.Event) -> Iterator[Samples]:
        """Have the leader's pod print them as they change; a leader that is replaced is looked for again.
        Raises Denied without the right to `pods/exec`.
        """
        while not left.is_set():
            try:
                yield from self._printed(ref, left, "follow")
            except Denied:
                raise
            except EchelonError:
                pass  # the connection broke, or the pod has just ended
            try:
                if dialects.end_of(look(self._connect(), ref).jobs) is not None:
                    return
            except UnknownRun:
                return
            left.wait(_AGAIN)

    def _printed(self, ref: RunRef, left: threading.Event, *more: str) -> Iterator[Samples]:
        api = self._connect()
        view = look(api, ref)
        leaders = [pod for pod in workers.leader_pods(view.pods) if workers.is_running(pod)]
        if not leaders:
            return
        command = names.agent_command(view.stored.run.job.python, "samples", names.SAMPLES, *more)
        container = workers.container_name(leaders[-1])
        with api.exec(leaders[-1].metadata.name, command, container=container) as running:
            for line in _lines(running, left):
                if not line:
                    continue
                try:
                    yield decode(line, Samples)
                except (ValueError, msgspec.MsgspecError):
                    continue  # an agent of another version, or a rank that wrote there


def _lines(running: Exec, left: threading.Event) -> Iterator[bytes]:
    """The lines that the command prints, until it ends, the follower has left, or it is silent for long."""
    rest = b""
    silent = 0.0
    while not left.is_set():
        try:
            piece = running.read(timeout=_LOOK)
        except TimeoutError:
            silent += _LOOK
            if silent > 10 * _ANSWER:
                return
            continue
        if piece is None:
            return
        silent = 0.0
        channel, data = piece
        if channel == 1 and len(rest) < _LONGEST:
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
