"""When to look where the ranks of a gang are, and when what was seen means that it is stuck. Pure.

A gang that prints nothing is looked at three times before its time is over. If nothing has changed between
them and ranks wait for each other, it is stuck. With `--stall` a gang that prints is looked at as well, by
its recorders alone: a rank may print while another one waits for ever."""

from __future__ import annotations

from echelon.agent.gang import hang

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Mapping

SAID_AFTER = 600.0  # seconds of silence after which it is said what is seen, without --stall
ANSWERED_WITHIN = 10.0  # seconds for the answers of all workers
_SAME = 3  # looks in a row that saw the same
_BEGIN, _EVERY = 0.5, 0.25  # of the time: when the first look is, and the pause between two
_TRIES = 12  # looks at a gang that prints, after which it has no recorder
_LONGEST = 100_000  # ranks of a worker's answer


class Stillness:
    """What is known of one generation's silence."""

    def __init__(self, stall: float | None) -> None:
        self.limit = SAID_AFTER if stall is None else stall
        self.acts = stall is not None
        self.said: str | None = None  # what was said, while it is so: "stuck" or "quiet"
        self._silent: dict[int, float] = {}  # for how long no rank of a worker has printed
        self._ranks: dict[int, float] = {}  # the same of each rank
        self._number = 0
        self._asked: set[int] = set()  # workers whose answers to the newest look are awaited
        self._asked_at: float | None = None
        self._answers: dict[int, Mapping[str, Any]] = {}  # of those that have answered
        self._looks: dict[int, Mapping[str, Any]] = {}  # all answers to the last look that is over
        self._whole: dict[int, Mapping[str, Any]] = {}  # those to the last look that asked for stacks
        self._state: object = None
        self._since = 0.0  # when this state was seen first
        self._same = 0
        self._look_at: float | None = None  # when the next look will tell, if nothing changes until then
        self._records = True  # whether there may be recorders

    def note(self, worker: int, sample: Mapping[str, Any]) -> None:
        """Take a worker's sample."""
        silent = sample.get("silent")
        if isinstance(silent, (int, float)):
            self._silent[worker] = float(silent)
        for each in sample.get("ranks") or ():
            if isinstance(each.get("rank"), int) and isinstance(each.get("silent"), (int, float)):
                self._ranks[each["rank"]] = float(each["silent"])

    def silence(self, busy: set[int]) -> float:
        """For how long no rank of the workers that are busy has printed."""
        return min((self._silent.get(each, 0.0) for each in busy), default=0.0)

    def next_look(self, busy: set[int], now: float) -> dict[str, object] | None:
        """The order to look at all ranks, if it is time."""
        if self._asked and self._asked_at is not None:
            if now - self._asked_at < ANSWERED_WITHIN and self._asked & busy:
                return None
            self._conclude()
        quiet = self.silence(busy) >= _BEGIN * self.limit
        if not quiet and not (self.acts and self._records and len(self._ranks) > 1):
            self._same, self._state = 0, None
            return None
        due = self._look_at is not None and now >= self._look_at
        if self._asked_at is not None and now - self._asked_at < _EVERY * self.limit and not due:
            return None
        self._look_at = None
        self._number += 1
        self._asked, self._asked_at, self._answers = set(busy), now, {}
        return {"say": "look", "number": self._number, "stacks": quiet}

    def is_looking(self) -> bool:
        """Whether answers to a look are awaited."""
        return bool(self._asked)

    def looked(self, worker: int, number: object, answers: object) -> None:
        """Take a worker's answer."""
        if number != self._number or worker not in self._asked or not isinstance(answers, dict):
            return
        for rank, answer in list(answers.items())[:_LONGEST]:
            if str(rank).isdigit() and isinstance(answer, dict):
                self._answers[int(rank)] = answer
        self._asked.discard(worker)
        if not self._asked:
            self._conclude()

    def _conclude(self) -> None:
        """All have answered that will."""
        self._asked, self._looks = set(), self._answers
        self._records = hang.has_recorder(self._looks) or self._number < _TRIES
        if any(look.get("place") for look in self._looks.values()):
            self._whole = self._looks
        state = hang.state_of(self._looks)
        if self._looks and state == self._state:
            self._same += 1
        else:
            self._state, self._same, self._since = state, 1, self._asked_at or 0.0

    def finding(
        self, busy: set[int], gone: Mapping[int, str], now: float
    ) -> tuple[bool, hang.Finding] | None:
        """What was seen of ranks that stand still for their time, and whether they are stuck; None while they
        may go on.
        """
        if self._asked or self._same < _SAME or not self._looks:
            return None
        silent = self.silence(busy) >= self.limit
        looked = self._asked_at or now  # what has changed since then is not known
        unchanged = looked - self._since >= self.limit
        if not (silent or (unchanged and self.acts)):  # while others print
            return None
        found = hang.verdict(self._seen(), gone)
        if self.is_debugged():
            return (False, found) if silent else None
        if found.kind in (hang.STACKS, hang.ELSEWHERE):
            return (found.kind == hang.STACKS, found) if silent else None
        # The first look was at half of the time: a collective may have ended shortly before.
        since = hang.unchanged_for(self._looks)
        if since is not None and since < self.limit and not unchanged:
            self._look_at = looked + self.limit - since
            return None
        # Of one that is not a rank of ours, as torchrun's, the silence is that of all.
        all_of_them = self.silence(busy)
        waited_for = (self._ranks.get(rank, all_of_them) for rank in found.ranks if rank not in gone)
        return (True, found) if all(seconds >= self.limit for seconds in waited_for) else None

    def is_debugged(self) -> bool:
        """Whether a rank was in a debugger when it was looked at last: then no rank hangs."""
        return hang.is_debugged(self._seen())

    def newest(self, gone: Mapping[int, str]) -> hang.Finding | None:
        """What was seen last, of ranks that are ended because all of them are idle."""
        return hang.verdict(self._seen(), gone) if self._looks else None

    def seen_before(self, rank: object, gone: Mapping[int, str]) -> hang.Finding | None:
        """What was seen twice before a rank failed, if that explains it: it waited for others, until its
        library of collectives gave up.
        """
        return hang.why_given_up(self._seen(), gone, rank) if self._same >= _SAME - 1 else None

    def _seen(self) -> dict[int, dict[str, Any]]:
        """The newest answers, with the places of the look before where that asked for the recorders alone."""
        return {rank: dict(self._whole.get(rank, {}), **look) for rank, look in self._looks.items()}

    def say(self, stuck: bool, found: hang.Finding, busy: set[int], now: float) -> str:
        """The sentence on it; it says that ranks are stuck only where some wait for others."""
        seconds = max(self.silence(busy), now - self._since)
        return "%s for %s: %s" % ("stuck" if stuck else "quiet", lasting(seconds), found.sentence)

    def goes_on(self, busy: set[int]) -> bool:
        """Whether ranks that were said to stand still do something again."""
        return self.said is not None and (self.silence(busy) < _BEGIN * self.limit or self._same == 1)


def lasting(seconds: float) -> str:
    """`45 s`, `10 m`, `2 h 5 m`."""
    if seconds < 120:
        return "%g s" % (round(seconds, 1) if seconds < 10 else round(seconds))
    hours, minutes = divmod(round(seconds / 60), 60)
    return "%d h %d m" % (hours, minutes) if hours else "%d m" % minutes
