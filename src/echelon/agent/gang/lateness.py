"""Which rank of a gang the others wait for, while all of them go on. Pure.

torch's flight recorder tells when each rank has called a collective. A collective ends when the last rank has
called it, so that the time of the others until then is lost. From time to time all ranks are asked at the
same moment, since a recorder keeps only the last few hundred calls.

Where a rank's GPU is behind, its calls are late as far as its script waits for the GPU in each step."""

from __future__ import annotations

from collections import deque

from echelon.agent.gang.hang import groups_of

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Mapping

EVERY = 60.0  # seconds between two questions: one costs a rank, and its agent, about 20 ms
AT_FIRST = 5.0  # the same until there are as many answers as count, or for some minutes
_FIRST = 60  # questions
_MOST_TIMES = 40_000  # that are compared at once, in a fraction of a second
ANSWERED_WITHIN = 5.0  # seconds for the answers of all workers
FEWEST = 30  # collectives that a rank has called with others, before anything is said of it
_LOOKS = 3  # answers, the same: for a moment any rank may be late
_KEPT = 6  # answers of all ranks that count
_DELAYS = 20  # samples of a worker by which its clock is compared


class Tally:
    """Of the collectives that all ranks of a group have called: the `span` of time from the first to the
    last, and by rank how many it has called, how often it came `last`, for how many seconds the others then
    waited (`waits`), and the sum of its `late` seconds, after half of the ranks had come.
    """

    __slots__ = ("called", "last", "late", "span", "waits")

    def __init__(self) -> None:
        self.span = 0.0
        self.called: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.waits: dict[int, float] = {}
        self.late: dict[int, float] = {}


def tally(looks: Mapping[int, Mapping[str, Any]], ahead: Mapping[int, float], seen: dict[str, int]) -> Tally:
    """Compare what ranks have told (`recorder.read_times`). `ahead` are the seconds by which a rank's clock
    is ahead, `seen` the number of the newest collective of each group that was told before, and is kept up:
    what came before the first question is not counted, since ranks begin at different times.
    """
    found = Tally()
    waits: list[tuple[float, float, int]] = []
    groups = groups_of(looks)
    most = max(FEWEST, _MOST_TIMES // max(1, sum(len(group.known) for group in groups)))
    for group in groups:
        if len(group.known) < 2 or set(group.known) != set(group.members):
            continue  # who has not answered may be the one that is late
        called = {rank: _times(one, ahead.get(rank, 0.0)) for rank, one in group.known.items()}
        last = min(max(times) for times in called.values())
        first = max(min(times) for times in called.values())
        first = max(first, seen.get(group.name, last) + 1, last - most + 1)
        seen[group.name] = last
        for number in range(first, last + 1):
            order = sorted((times[number], rank) for rank, times in called.items())
            half = order[(len(order) - 1) // 2][0]
            at, rank = order[-1]
            found.last[rank] = found.last.get(rank, 0) + 1
            for time, each in order:
                found.called[each] = found.called.get(each, 0) + 1
                found.late[each] = found.late.get(each, 0.0) + time - half
            waits.append((half, at, rank))
    if waits:
        waits.sort()
        end = waits[0][0]
        found.span = max(at for _, at, _ in waits) - end
        for half, at, rank in waits:  # each moment counts once: a rank may wait in several at a time
            if at > end:
                found.waits[rank] = found.waits.get(rank, 0.0) + at - max(half, end)
                end = at
    return found


def _times(one: Mapping[str, Any], ahead: float) -> dict[int, float]:
    """When a rank called each collective that it tells of, in seconds."""
    found, at = {}, 0
    for number, step in enumerate(one["times"], one["first"]):
        at += step
        found[number] = at / 1e6 - ahead
    return found


class Lateness:
    """What is known of one generation's ranks, from question to question."""

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}  # the worker of each
        self._clocks: dict[int, str] = {}  # of each worker: workers on one machine have the same
        self._delays: dict[int, deque[float]] = {}
        self._number = 0
        self._asked: set[int] = set()  # workers whose answers are awaited
        self._asked_at: float | None = None
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._seen: dict[str, int] = {}
        self._tallies: deque[Tally] = deque(maxlen=_KEPT)

    def note(self, worker: int, sample: Mapping[str, Any], now: float) -> None:
        """Take a worker's sample, with its ranks and the time of its clock."""
        for each in sample.get("ranks") or ():
            if isinstance(each.get("rank"), int):
                self._ranks[each["rank"]] = worker
        self._clocks[worker] = str(sample.get("clock") or "")
        if isinstance(sample.get("at"), (int, float)):
            self._delays.setdefault(worker, deque(maxlen=_DELAYS)).append(now - sample["at"])

    def next_question(self, busy: set[int], now: float) -> dict[str, object] | None:
        """The order to tell when ranks called their collectives, if it is time."""
        if len(self._ranks) < 2 or not busy <= set(self._delays) or self.is_asking(now):
            return None
        begins = self._number < _FIRST and sum(bool(each.called) for each in self._tallies) < _LOOKS
        every = AT_FIRST if begins else EVERY
        if self._asked_at is not None and now - self._asked_at < every:
            return None
        self._number += 1
        self._asked, self._asked_at, self._answers = set(busy), now, {}
        return {"say": "time", "number": self._number}

    def is_asking(self, now: float) -> bool:
        """Whether answers are awaited: ranks are asked one thing at a time."""
        return bool(self._asked) and now - (self._asked_at or 0.0) < ANSWERED_WITHIN

    def told(self, worker: int, number: object, answers: object) -> None:
        """Take a worker's answer; once all have come, they are compared."""
        if number != self._number or worker not in self._asked or not isinstance(answers, dict):
            return
        for rank, answer in answers.items():
            if str(rank).isdigit() and isinstance(answer, dict):
                self._answers[int(rank)] = answer
        self._asked.discard(worker)
        if not self._asked:
            self._tallies.append(tally(self._answers, self._ahead(), self._seen))

    def _ahead(self) -> dict[int, float]:
        """By how many seconds the clock of each rank's machine is ahead, as far as those samples tell it that
        came with the least delay.
        """
        if self._has_one_clock():
            return {}
        least: dict[str, float] = {}
        for worker, delays in self._delays.items():
            clock = self._clocks[worker]
            least[clock] = min(least.get(clock, delays[0]), *delays)
        return {rank: -least[self._clocks[worker]] for rank, worker in self._ranks.items()}

    def _has_one_clock(self) -> bool:
        return len(set(self._clocks.values())) < 2

    def add_to(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """The sample with how late its ranks come, as far as that is known."""
        ranks = [dict(each, late=self._of(each.get("rank"))) for each in sample.get("ranks") or ()]
        return dict(sample, ranks=ranks)

    def _of(self, rank: Any) -> dict[str, Any] | None:
        known = [each for each in self._tallies if each.called.get(rank)]
        called = sum(each.called[rank] for each in known)
        if called < FEWEST or len(known) < _LOOKS:
            return None
        shares = sorted(each.waits.get(rank, 0.0) / max(each.span, 1e-6) for each in known)
        return {
            "collectives": called,
            "last": round(sum(each.last.get(rank, 0) for each in known) / called, 4),
            "mean": round(sum(each.late[rank] for each in known) / called, 6),
            "waits": round(shares[(len(shares) - 1) // 2], 4),  # as in most answers
            "same_clock": self._has_one_clock(),
        }
