"""Run: the one handle on a run, the same for every engine and in any process."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from echelon.engines.base import Engine, RunDamaged, Saving
from echelon.errors import InvalidJob, ResultsIncomplete, RunTimedOut, StateTrouble
from echelon.model.copy import LeftOut
from echelon.model.event import Event
from echelon.model.log import LogLine
from echelon.model.plan import Plan
from echelon.model.resources import parse_duration
from echelon.model.run import RunRef, opening_status
from echelon.model.status import FINAL, Status, fold
from echelon.tending import Tending, tending

STOP_PATIENCE = 60.0  # seconds that a run may take to end after the order to stop


class Run:
    """A run that exists, wherever it is.

    `str(run)` is its address, which `echelon.attach` takes in any process.
    """

    def __init__(self, ref: RunRef, engine: Engine) -> None:
        self._ref = ref
        self._engine = engine

    def __str__(self) -> str:
        return str(self._ref)

    def __repr__(self) -> str:
        return f"<Run {self._ref}>"

    @property
    def name(self) -> str:
        """The run's name."""
        return self._ref.name

    def status(self) -> Status:
        """How the run stands now."""
        try:
            return self._look()
        except RunDamaged as error:
            reason = f"{error.problem}; {error.hint}"
            return Status(name=self.name, uri=str(self._ref), state="damaged", reason=reason)

    def _look(self) -> Status:
        record = self._engine.read(self._ref)
        while True:
            status = fold(opening_status(record), self._engine.events(self._ref))
            if record.plan is not None:
                return status
            record = self._engine.read(self._ref)
            if record.plan is None:
                return status
            # It was admitted while its events were read: they speak of workers that only the plan names.

    def plan(self) -> Plan | None:
        """What was decided for the run; None while it is queued."""
        return self._engine.read(self._ref).plan

    def wait(
        self,
        timeout: float | str | None = None,
        *,
        take_over: bool = False,
        tell: Callable[[str], object] = lambda _trouble: None,
        collect: Callable[[], object] | None = None,
    ) -> Status:
        """Wait for the end and return the status; RunTimedOut if it is later than `timeout` (90, "5m").

        The run goes on then. A run that this machine submitted is looked after meanwhile, its output is saved
        among its results as it comes, and its results are fetched; one that another machine submitted, only
        with `take_over`. What keeps the output from being saved is told once. Raises ResultsIncomplete if not
        all results could be fetched. `collect` is called instead of `self.collect`, by a command that shows
        it.
        """
        seconds = parse_duration("timeout", timeout) if isinstance(timeout, str) else timeout
        with self.tending(take_over=take_over, saving=Saving(tell=tell)) as tender:
            for event in self._engine.events(self._ref, follow=True, timeout=seconds):
                if event.kind == "finished":
                    tender.finish(event, collect or self.collect)
        status = self._look()
        if status.state == "recorded":
            raise StateTrouble(
                f"run {self.name!r} was recorded and never started",
                hint=f"submit it again, or `echelon rm {self.name}`",
            )
        if status.state not in FINAL:
            raise RunTimedOut(
                f"run {self.name!r} is still {status.state} after {timeout} s",
                hint="it goes on; wait longer",
            )
        return status

    def logs(
        self,
        *,
        rank: int | None = None,
        worker: int | None = None,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
    ) -> Iterator[LogLine]:
        """What the ranks wrote, line by line: of one rank or worker, the last `tail` lines, from the time
        `since` on.

        With `follow` the lines come as they are written, until the run ends.
        """
        self._check_exists(rank, worker)
        ranks = None if rank is None else frozenset({rank})

        def wanted(line: LogLine) -> bool:
            return (worker is None or line.worker == worker) and (since is None or line.at >= since)

        if tail is None:
            return filter(wanted, whole_lines(self._engine.logs(self._ref, ranks=ranks, follow=follow)))
        return self._last_logs(ranks, wanted, tail, follow=follow)

    def _last_logs(
        self,
        ranks: frozenset[int] | None,
        wanted: Callable[[LogLine], bool],
        tail: int,
        *,
        follow: bool,
    ) -> Iterator[LogLine]:
        """The last lines of what is there and, with `follow`, what comes after it."""
        there: Counter[int] = Counter()  # pieces of each worker's output, which come in the same order twice

        def pieces() -> Iterator[LogLine]:
            for piece in self._engine.logs(self._ref, ranks=ranks):
                there[piece.worker] += 1
                yield piece

        yield from deque(filter(wanted, whole_lines(pieces())), maxlen=tail)
        if not follow:
            return

        def new_pieces() -> Iterator[LogLine]:
            for piece in self._engine.logs(self._ref, ranks=ranks, follow=True):
                if there[piece.worker] > 0:
                    there[piece.worker] -= 1
                else:
                    yield piece

        yield from filter(wanted, whole_lines(new_pieces()))

    def _check_exists(self, rank: int | None, worker: int | None) -> None:
        """Raise InvalidJob if there is no such rank or worker: its output would never come."""
        try:
            workers = opening_status(self._engine.read(self._ref)).workers
        except RunDamaged:
            return  # its output may be there all the same
        if not workers:
            return  # still queued: its world is not known yet
        for field, wanted, there in (
            ("worker", worker, [each.worker for each in workers]),
            ("rank", rank, [number for each in workers for number in each.ranks]),
        ):
            if wanted is not None and wanted not in there:
                hint = f"they are numbered 0 to {max(there)}" if len(there) > 1 else "there is only number 0"
                raise InvalidJob(field, wanted, f"is no {field} of run {self.name!r}", hint=hint)

    def raw_logs(self, saving: Saving | None = None) -> Iterator[LogLine]:
        """Every piece of output as it comes, until the end: for a terminal that shows half a line too. With
        `saving`, it is saved among the results too, however slowly it is taken here.
        """
        return self._engine.logs(self._ref, follow=True, saving=saving)

    def events(self) -> Iterator[Event]:
        """What happens, as it happens, until the end."""
        return self._engine.events(self._ref, follow=True)

    def tending(
        self, *, take_over: bool = False, saving: Saving | None = None
    ) -> AbstractContextManager[Tending]:
        """Look after the run inside this context: try to admit it while it is queued, do the upkeep that it
        needs from outside and, with `saving`, save its output. Everything that only looks changes nothing.
        """
        return tending(self._ref, self._engine, take_over=take_over, saving=saving)

    def collect(self, progress: Callable[[int, int], object] | None = None) -> Sequence[LeftOut]:
        """Bring the results of a run that has ended to where they belong, and let its workers go; returns
        what cannot be copied. Raises ResultsIncomplete, and the workers stay, if not all of them came.

        Results belong to the machine that submitted the run: on another one it does nothing."""
        return self._engine.collect(self._ref, progress)

    def get(
        self,
        path: str = ".",
        to: Path | str | None = None,
        *,
        notice: Callable[[LeftOut], object] = lambda _: None,
    ) -> Path:
        """Bring a file or folder of the results (all of them by default) to the folder `to`; returns its
        path. The run's workers keep them.

        Without `to` it comes to where this run's results belong; what is there already stays as it is. On
        the machine that submitted the run, once that is over, all of them are collected then. `notice` gets
        what cannot be copied.
        """
        if to is None:
            for each in self.collect():
                notice(each)
        record = self._engine.read(self._ref)
        target = Path(to) if to is not None else Path(record.results) / Path(path).parent
        return self._engine.fetch(self._ref, path, target, notice)

    def stop(self, *, now: bool = False, wait: bool = True) -> None:
        """End the run: SIGTERM to the ranks and, ten seconds later, SIGKILL; `now` kills at once.

        Returns when it has ended; without `wait`, at once.
        """
        self._engine.stop(self._ref, now=now)
        if wait:
            with suppress(ResultsIncomplete):  # it has ended; `wait` and `get` tell what is missing
                self.wait(STOP_PATIENCE)

    def remove(self) -> None:
        """Forget the run, which must have ended; its name is free again, its results stay."""
        self._engine.remove(self._ref)


def whole_lines(lines: Iterator[LogLine]) -> Iterator[LogLine]:
    """Put lines together that came in pieces."""
    import dataclasses

    begun: dict[tuple[int, int | None, str], list[LogLine]] = {}
    for line in lines:
        key = (line.worker, line.rank, line.stream)
        if line.unfinished:
            begun.setdefault(key, []).append(line)
        elif key in begun:
            yield dataclasses.replace(line, text="".join(each.text for each in [*begun.pop(key), line]))
        else:
            yield line
    for pieces in begun.values():
        yield dataclasses.replace(pieces[-1], text="".join(each.text for each in pieces), unfinished=False)
