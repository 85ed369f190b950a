"""One generation of a gang: who takes part in it, what has happened since it was prepared, and whether
another may follow. Pure.

Of a run whose number of workers may change, a generation has those that were there when it was prepared. Its
`task` counts them and their ranks from 0; all else goes by the numbers of their seats, which stay."""

from __future__ import annotations

from echelon.agent.gang import hang
from echelon.agent.gang.stillness import Stillness
from echelon.agent.gang.verdict import (
    LEFT,
    LOST,
    RESIZED,
    after_early_ends,
    cause_of_growth,
    cause_of_stall,
    describe_peers,
    find_cause,
)
from echelon.agent.ranks.launching.launch import essential_workers
from echelon.agent.ranks.launching.roll import Asked
from echelon.agent.stopping import seconds_in

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

    from echelon.agent.gang.hang import Finding
    from echelon.agent.gang.lateness import Lateness
    from echelon.agent.task import Task

MOST_SPARED = 100  # restarts of a run that do not count, so that it ends in a cluster that evicts without end


class Generation:
    """Which workers are done, how ranks have ended, and what was lost. `task` is that of its members."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.members = frozenset(place.worker for place in task.places)
        self.grown: str | None = None  # it ends since others have joined: who
        self._stall = task.stall
        self._essential = essential_workers(task)
        # The end of rank 0, the chief, is the run's; the others get `grace` to end by themselves.
        self.has_chief = any(group["launch"].get("until") == "first" for group in task.groups)
        self.ports: dict[int, list[int]] = {}
        self.done: set[int] = set()
        self.ends: list[dict[str, object]] = []  # of ranks that failed, in the order of arrival
        self.well: dict[int, float] = {}  # ranks that ended well, and after how many seconds
        self.lost: list[tuple[int, str, str]] = []  # worker, reason, kind
        self.quiet: dict[int, float] = {}  # for how long the ranks of each worker did nothing
        self.stuck = False  # none of them did for too long, or some wait for others
        self.stillness = Stillness(task.stall)
        self._lateness: Lateness | None = None
        self.hang: Finding | None = None  # what was seen of ranks that were stuck
        self.said: str | None = None  # and the sentence on it
        self.running: list[int] = []  # ranks that ran when they were stopped
        self._places: dict[str, str] = {}  # where those were that were asked
        self._looks: dict[int, dict[str, Any]] = {}  # what was seen of ranks when a collective was given up
        self.killed: dict[str, float] = {}  # ranks that needed SIGKILL, and after how many seconds

    @property
    def ends_by_notice(self) -> bool:
        """Whether it ends since a worker was told to leave, or others have joined: nothing that a rank does
        then is a failure.
        """
        return self.grown is not None or (bool(self.lost) and self.lost[0][2] == LEFT)

    def add_end(self, end: dict[str, object]) -> None:
        """A rank has failed. Those that lose a peer may fail in any way; where the run continues without it,
        that decides nothing.
        """
        follows = self.ends_by_notice or (self.task.elastic and bool(self.lost))
        self.ends.append(dict(end, consequence=True) if follows else end)

    def who_failed(self) -> str | None:
        """Which rank or worker, as far as is known when the others are told to end."""
        if self.lost:
            return "worker %d" % self.lost[0][0]
        rank = self.ends[-1]["rank"] if self.ends else None
        return None if rank is None else "rank %s" % rank

    @property
    def lateness(self) -> Lateness:
        """How late the ranks come to collectives; it is asked for when samples come."""
        if self._lateness is None:
            from echelon.agent.gang.lateness import Lateness  # what only running ranks need

            self._lateness = Lateness()
        return self._lateness

    def start_orders(
        self, start: dict[str, object], known: dict[int, str]
    ) -> list[tuple[int | None, dict[str, object]]]:
        """The order to start, to all workers or to each its own, once all have their ports; `known` has the
        address of each.
        """
        order, asked = sorted(self.members), Asked(self.task)
        addresses = [known[worker] for worker in order]
        start = dict(start, **asked.shared(addresses, [self.ports[worker] for worker in order]))
        own = asked.own(addresses)
        return [(worker, dict(start, own=each)) for worker, each in zip(order, own)] or [(None, start)]

    def may_grow(self) -> bool:
        """Whether others may be added: not once a part of it has ended well, which would begin anew."""
        return not (self.done or self.well)

    def chief_ended(self) -> bool:
        """Whether the rank has ended well whose end is the run's."""
        return self.has_chief and 0 in self.well

    def needs(self, worker: int) -> bool:
        """Whether the loss of this worker ends the generation."""
        is_over = self._essential <= self.done or worker in self.done or self.chief_ended()
        return worker in self.members and not is_over

    def does_not_matter(self, worker: int, end: dict[str, object]) -> bool:
        """Whether a rank's failure changes nothing: a parameter server's when its workers have ended, or one
        that is due to the end of the chief.
        """
        if self._essential <= self.done and worker not in self._essential:
            return True
        return self.chief_ended() and bool(end["consequence"])

    def has_succeeded(self) -> bool:
        """Whether all have that must. A parameter server may have failed because the workers have ended."""
        ends = [end for end in self.ends if end["worker"] in self._essential or not end["consequence"]]
        return self._essential <= self.done and not ends

    def is_quiet(self, busy: set[int], limit: float) -> bool:
        """Whether the ranks of all workers that are busy have done nothing for so long."""
        return bool(busy) and all(self.quiet.get(each, 0.0) >= limit for each in busy)

    def note_places(self, places: object) -> None:
        """Where ranks were that a worker has asked."""
        if isinstance(places, dict):
            self._places.update({rank: str(place) for rank, place in places.items() if str(rank).isdigit()})

    def note_looks(self, looks: object) -> None:
        """What a worker has seen of its ranks before they were stopped, or they have left."""
        for rank, look in looks.items() if isinstance(looks, dict) else ():
            if str(rank).isdigit() and isinstance(look, dict):
                self._looks[int(rank)] = look

    def gave_up(self) -> bool:
        """Whether a rank's library of collectives has given up, so that others may have kept it waiting."""
        return any(end.get("gave_up") for end in self.ends)

    def _waited_for(self, rank: object) -> Finding | None:
        """Who kept a rank waiting that has failed, if that is why it did."""
        found = self.stillness.seen_before(rank, self.gone())
        if found is None and any(end.get("gave_up") and end["rank"] == rank for end in self.ends):
            found = hang.why_given_up(self._looks, self.gone(), rank)
        return found

    def note_killed(self, killed: object) -> None:
        """Ranks of a worker that needed SIGKILL."""
        for rank, after in killed.items() if isinstance(killed, dict) else ():
            seconds = seconds_in(after)
            if str(rank).isdigit() and seconds is not None:
                self.killed[rank] = seconds

    def peers(self) -> str:
        """What the other ranks did meanwhile."""
        return describe_peers(self.well, self.running, self._places)

    def gone(self) -> dict[int, str]:
        """Ranks that have ended while others ran."""
        return dict.fromkeys(self.well, "had exited 0")

    def cause(self) -> dict[str, object]:
        """Why it failed."""
        if self.stuck:
            seen = self.hang if self.hang is not None and self.hang.kind in hang.WAITS else None
            cause = cause_of_stall(self._stall or 0.0, self.ends, self.said, seen)
        elif self.grown is not None and not self.lost:
            return cause_of_growth(self.grown)
        else:
            cause = find_cause(self.ends, self.lost)
            waited = self._waited_for(cause.get("rank"))
            if waited is not None and not self.lost:
                cause["summary"] = "%s; then %s" % (waited.sentence, cause["summary"])
                cause["peers"] = "; ".join(waited.lines)
            elif self.well and self.ends and not self.lost and all(end["consequence"] for end in self.ends):
                cause["summary"] = after_early_ends(cause["summary"], self.well)
        peers = cause.get("peers") or self.peers()
        if peers and (self.well or self.stuck):
            cause["peers"] = peers
        return cause


def is_spared(cause: dict[str, object], spared: int, task: Task) -> bool:
    """Whether the restart after this cause does not count: the kubelet told a worker to leave, as when
    its pod is evicted or preempted or its node is drained. A run of fixed size without restarts is never
    restarted. Where the number of workers may change, no change of it counts.
    """
    if task.elastic:
        return cause.get("kind") in (LEFT, LOST, RESIZED)
    return cause.get("kind") == LEFT and task.spares and spared < MOST_SPARED


def is_final(cause: dict[str, object], task: Task) -> bool:
    """Whether a worker was lost that would be waited for in vain."""
    return cause.get("kind") == LOST and not (task.replaced or task.elastic)


def none_left(generation: int, spared: int, task: Task) -> bool:
    """Whether no restart is left after a generation; `spared` of those up to it do not count."""
    spared = spared if task.elastic else min(spared, MOST_SPARED)
    return generation - (spared if task.spares else 0) >= task.restarts
