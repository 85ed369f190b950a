"""From a run's output, in the pieces that engines give, to how far its ranks have come.

Only the newest lines matter, so a reader keeps them as they are and looks at them when it is asked: a client
that draws five times a second pays for five looks, however much is printed. The lines have the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

from echelon.metrics.bars import ProgressLine, is_place, see
from echelon.metrics.reader import apply
from echelon.metrics.text import SEEN, is_loss, may_measure
from echelon.model.output.log import LogBlock, LogLine
from echelon.model.output.metric_pattern import MetricPattern, parse_metric_patterns
from echelon.model.output.progress import Progress

_NEWEST = 16  # lines of a rank that are looked at
_WINDOW = 60.0  # seconds of which the speed is the mean, where no bar says it
_APART = 1.0  # seconds between two moments that are remembered for it
_SHORTEST = 0.25  # seconds in which something must have happened, for a speed
_FORGOTTEN = 60.0  # seconds after which a count without an end counts more than one that had an end


class ProgressReader:
    """How far each rank has come, by the lines that were read so far."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = parse_metric_patterns(patterns)
        self._ranks: dict[int, _Rank] = {}
        self._begun: dict[tuple[int, int, str], str] = {}

    def read(self, piece: LogLine | LogBlock) -> None:
        """Take a piece of output."""
        line, rest = (piece, "") if isinstance(piece, LogLine) else (piece.first, piece.rest)
        if line.rank is None:
            return
        rank = self._ranks.get(line.rank)
        if rank is None:
            rank = self._ranks[line.rank] = _Rank(line.rank, self._patterns)
        text = line.text
        if not line.progress:  # a bar's state is whole, whatever was begun
            key = (line.worker, line.rank, line.stream)
            text = self._begun.pop(key, "") + text
            if line.unfinished:
                self._begun[key] = text[:SEEN]
                return
        rank.take(line.at, text)
        if rest:
            for each in rest.rsplit("\n", _NEWEST)[-_NEWEST:]:
                rank.take(line.at, each)

    def of(self, rank: int) -> Progress | None:
        """How far a rank has come; None if its output does not tell."""
        found = self._ranks.get(rank)
        return None if found is None else found.progress()

    def lowest(self, ranks: Sequence[int] | None = None) -> Progress | None:
        """How far the lowest rank has come that tells it, of these ranks or of all."""
        for rank in sorted(self._ranks if ranks is None else ranks):
            if (found := self.of(rank)) is not None:
                return found
        return None


class _Moment(NamedTuple):
    """Where a rank stood once."""

    at: float
    amount: float | None  # steps since the beginning, as far as it is known
    done: float | None


class _Rank:
    """What is known of one rank."""

    def __init__(self, rank: int, patterns: Sequence[MetricPattern]) -> None:
        self._rank, self._patterns = rank, patterns
        self._newest: deque[tuple[float, str]] = deque(maxlen=_NEWEST)
        self._epoch_line: tuple[float, str] | None = None
        self._now = ProgressLine()
        self._at = 0.0
        self._counted_at = 0.0  # when it gave a count with its end
        self._counts_all = False  # steps are counted on from epoch to epoch
        self._first_epoch = 1
        self._metrics: tuple[tuple[str, float], ...] = ()
        self._moments: deque[_Moment] = deque()

    def take(self, at: float, text: str) -> None:
        if may_measure(text) or "━" in text or "[" in text:
            if len(self._newest) == _NEWEST and "poch" in (oldest := self._newest[0])[1]:
                self._epoch_line = oldest  # it may be the only line that says it
            self._newest.append((at, text))

    def progress(self) -> Progress | None:
        newest = list(self._newest) if self._epoch_line is None else [self._epoch_line, *self._newest]
        self._epoch_line = None
        self._newest.clear()
        for at, text in newest:
            self._look(at, see(text, apply(self._patterns, text) if self._patterns else None))
        now = self._now
        if not is_place(now) and not self._metrics:
            return None
        done, of = self._done()
        rate = now.rate or self._pace("amount")
        return Progress(
            rank=self._rank,
            at=self._at,
            step=now.step,
            steps=now.steps,
            epoch=now.epoch,
            epochs=now.epochs,
            done=done,
            of=of,
            rate=rate,
            left=self._left(done, of, rate),
            metrics=dict(self._metrics),
        )

    def _look(self, at: float, seen: ProgressLine) -> None:
        if seen.pairs:
            self._metrics = tuple(sorted(seen.pairs, key=lambda pair: not is_loss(pair[0])))
            self._at = at
        now = self._now
        if seen.epochs is None and now.epochs is not None:
            seen = seen._replace(epoch=None)  # it may count them from another number on
        if not is_place(seen):
            return
        counts = seen.step is not None or seen.part is not None
        ends = now.steps is not None and at - self._counted_at < _FORGOTTEN
        if seen.step is not None and seen.steps is None and ends:
            return  # such as `step=5` between two states of a bar
        self._at = at
        if seen.steps is not None:
            self._counted_at = at
        if seen.epoch == 0 and seen.epochs is not None:
            self._first_epoch = 0
        new_epoch = seen.epoch is not None and seen.epoch != now.epoch
        if new_epoch and seen.step is not None and now.step is not None and seen.steps == now.steps:
            self._counts_all = seen.step > now.step
        if counts:
            now = seen._replace(
                epoch=now.epoch if seen.epoch is None else seen.epoch,
                epochs=now.epochs if seen.epochs is None else seen.epochs,
                beside=seen.beside if seen.epoch is not None else now.beside,
            )
        elif seen.beside:
            now = now._replace(epoch=seen.epoch, beside=True)
        elif new_epoch or (seen.pairs and now.steps is None):
            # It begins; or, if the line says how it went, it is over.
            now = seen._replace(part=1.0 if seen.pairs else None)
        self._now = now._replace(pairs=())
        self._remember(at)

    def _done(self) -> tuple[float | None, Literal["run", "epoch"]]:
        """How much is done, and of what."""
        now = self._now
        part: float | None = None
        if now.step is not None and now.steps:
            part = min(1.0, (now.step + (now.part or 0.0)) / now.steps)
        elif now.step is None:
            part = now.part
        if now.epoch is None or now.beside or self._counts_all:
            return part, "run"
        if now.epochs is None:
            return part, "epoch"
        count = now.epochs + 1 - self._first_epoch
        return min(1.0, max(0.0, (now.epoch - self._first_epoch + (part or 0.0)) / max(1, count))), "run"

    def _remember(self, at: float) -> None:
        now = self._now
        amount: float | None = None
        if now.step is not None:
            amount = now.step + (now.part or 0.0)
            if now.epoch is not None and now.steps and not now.beside and not self._counts_all:
                amount += (now.epoch - self._first_epoch) * now.steps
        moment, moments = _Moment(at, amount, self._done()[0]), self._moments
        last = moments[-1] if moments else None
        if last is not None and (at < last.at or _is_before(moment, last)):
            moments.clear()  # it has begun anew
        if len(moments) > 1 and at - moments[-2].at < _APART:
            moments.pop()
        moments.append(moment)
        while len(moments) > 2 and at - moments[1].at >= _WINDOW:
            moments.popleft()

    def _pace(self, what: Literal["amount", "done"]) -> float | None:
        """How much was done in a second, lately."""
        if len(self._moments) < 2:
            return None
        first, last = self._moments[0], self._moments[-1]
        before, now = getattr(first, what), getattr(last, what)
        took = last.at - first.at
        if before is None or now is None or took < _SHORTEST or now <= before:
            return None
        return float((now - before) / took)

    def _left(self, done: float | None, of: str, rate: float | None) -> float | None:
        now = self._now
        if done is None:
            return None
        if done >= 1.0:
            return 0.0
        in_epochs = of == "run" and now.epochs is not None and not (now.beside or self._counts_all)
        if now.left is not None and not (in_epochs and now.steps):
            return now.left
        if now.steps and rate:
            whole = now.steps * ((now.epochs or 0) + 1 - self._first_epoch) if in_epochs else now.steps
            return (1.0 - done) * whole / rate
        pace = self._pace("done")
        return None if pace is None else (1.0 - done) / pace


def _is_before(moment: _Moment, last: _Moment) -> bool:
    pairs = ((moment.amount, last.amount), (moment.done, last.done))
    return any(now is not None and before is not None and now < before for now, before in pairs)
