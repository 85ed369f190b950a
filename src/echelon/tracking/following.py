"""Which tracker a run's metrics go to, and that only one process of this machine forwards them at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from echelon.engines import durable
from echelon.engines.base import Engine
from echelon.errors import EchelonError, Unavailable
from echelon.model.run import Record, RunRef
from echelon.model.status import Status
from echelon.model.tracking import Tracker
from echelon.observation.observing import written
from echelon.state_home import state_home
from echelon.tracking.facts import facts_of
from echelon.tracking.forwarding import Forwarding, Outcome, Source
from echelon.tracking.sink import Sink

Tell = Callable[[str], object]


class Elsewhere(Unavailable):
    """Another process of this machine forwards the metrics."""


class Following:
    """Forwards the metrics of a run inside a context, if this process is the one to do it."""

    def __init__(
        self, engine: Engine, ref: RunRef, tracker: Tracker, source: Source, tell: Tell = lambda _: None
    ) -> None:
        self._engine, self._ref, self._tracker = engine, ref, tracker
        self._source, self._tell = source, tell
        self._turn: Turn | None = None
        self._forwarding: Forwarding | None = None

    def begin(self) -> None:
        """Start. Raises what keeps this process from it: that another one forwards these metrics, too."""
        record = self._engine.read(self._ref)
        sink = sink_of(self._tracker, record, os.environ)
        self._turn = Turn(f"{facts_of(record).id}-{self._tracker}")
        if not self._turn.take():
            hint = f"`echelon wait {self._ref.name}` waits for its end"
            raise Elsewhere("another command of this machine forwards the metrics of this run", hint=hint)
        self._forwarding = Forwarding(
            sink, lambda: facts_of(self._engine.read(self._ref)), self._source, self._read_late, self._tell
        )
        self._forwarding.begin()

    def finish_all(self, status: Status | None) -> None:
        """Send what is left, however long it takes, and how the run ended. Raises Unavailable."""
        assert self._forwarding is not None
        outcome = self._forwarding.finish(status, slow=None)
        if text := describe(outcome):
            raise Unavailable(text, hint="the same command continues where it has ended")

    def leave(self) -> None:
        """Forward no more."""
        if self._forwarding is not None:
            self._forwarding.leave()
        if self._turn is not None:
            self._turn.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _read_late(self) -> Sequence[object]:
        """Files for TensorBoard that came with the results; on this machine they were read as they grew."""
        return written(self._engine.read(self._ref)) if self._engine.traits.remote else ()


class Stays(Following):
    """The same for a command that stays with a run which may name a tracker: what goes wrong with that is
    told, and changes nothing for the command.
    """

    def __init__(
        self, engine: Engine, record: Record, source: Source, tell: Tell, *, take_over: bool = False
    ) -> None:
        tracking = record.job.tracking
        super().__init__(engine, record.ref, tracking.to if tracking is not None else "mlflow", source, tell)
        # Of another machine's run nothing is changed, and nothing said about it.
        self._is_ours = tracking is not None and (bool(record.results) or take_over)

    def __enter__(self) -> Self:
        if self._is_ours:
            try:
                self.begin()
            except Elsewhere:
                pass
            except (EchelonError, OSError) as error:
                self._tell(f"metrics are not forwarded: {error}; {self._later()}")
        return self

    def end(self, status: Status) -> None:
        """Send what is left, and say what could not be sent."""
        if self._forwarding is None:
            return
        outcome = self._forwarding.finish(status)
        if text := describe(outcome):
            self._tell(f"{text}{f'; {self._later()}' if outcome.trouble else ''}")

    def _later(self) -> str:
        return f"`echelon metrics {self._ref.name} --track {self._tracker}` sends them later"


def describe(outcome: Outcome) -> str:
    """What was not sent, and why; nothing if all of it was."""
    texts = []
    if outcome.trouble:
        texts.append(f"not all metrics were sent: {outcome.trouble}")
    if outcome.rejected:
        texts.append(f"{outcome.rejected} values were rejected: {outcome.why_rejected}")
    return "; ".join(texts)


def sink_of(tracker: Tracker, record: Record, environment: Mapping[str, str]) -> Sink:
    """The tracker, as this process's environment has it. Raises an EchelonError."""
    if tracker == "mlflow":
        from echelon.tracking.mlflow import MLflow, server_of

        return MLflow(server_of(environment))
    if not record.results:
        hint = "`echelon get` there fetches them; --track mlflow needs none"
        raise Unavailable("the results of this run belong to another machine", hint=hint)
    from echelon.tracking.tensorboard import EventFolder

    return EventFolder(Path(record.results))


class Turn:
    """A lock that one process of this machine has at a time; it ends with the process."""

    def __init__(self, name: str) -> None:
        self._path = state_home() / "tracking" / f"{name}.lock"
        self._descriptor = -1

    def take(self) -> bool:
        """Whether we have it now."""
        durable.make_folder(self._path.parent)
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            if os.fstat(descriptor).st_nlink:
                self._descriptor = descriptor
                return True
            os.close(descriptor)  # who had it has removed the file meanwhile

    def end(self) -> None:
        """Let others have it."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1
