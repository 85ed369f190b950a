"""Jobs replayed on a cluster of equal nodes: who waits for how long under which policy. Pure.

A policy chooses nodes for one job on what is free now; the order says which jobs are asked. Nodes are kept in
the classes that `echelon.placement` searches, so that a decision does not need a look at all nodes."""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from echelon.placement.shares import Index, Part

from .trace import Job

Given = Sequence[tuple[str, int]]  # nodes with what each gives
Order = Literal[
    "whoever fits",  # the oldest of those that fit now: a large job may be overtaken for ever
    "strict",  # the oldest of all, and nobody else
    "backfill",  # as strict, but those may overtake that end, by their limits, before the oldest could start
]
_LOOKED_AT = 100  # jobs that may overtake, the oldest first
_REFRESH = 600.0  # seconds after which it is computed again when the oldest could start


class Nodes:
    """What is free on each node, by name and by class."""

    def __init__(self, free: Iterable[tuple[str, int]]) -> None:
        self.free = dict(free)
        self.total = sum(self.free.values())
        self.part = Part((), "")
        self.index = Index(levels=((self.part,),))
        self._classes = self.part.classes
        for name in sorted(self.free):
            self._classes.setdefault((self.free[name],) * 2, []).append(name)
        self._classes.pop((0, 0), None)

    def by_free(self) -> list[tuple[int, list[str]]]:
        """How many are free, and on which nodes; the most first."""
        return sorted(((free, names) for (free, _), names in self._classes.items()), reverse=True)

    def take(self, given: Given) -> None:
        """GPUs are used from now on."""
        for name, share in given:
            self._move(name, -share)

    def release(self, given: Given) -> None:
        """They are free again."""
        for name, share in given:
            self._move(name, share)

    def _move(self, name: str, change: int) -> None:
        before = self.free[name]
        after = self.free[name] = before + change
        self.total += change
        if before:
            names = self._classes[before, before]
            del names[bisect_right(names, name) - 1]
            if not names:
                del self._classes[before, before]
        if after:
            insort(self._classes.setdefault((after, after), []), name)


Policy = Callable[[Nodes, int], Given | None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one job fared: seconds in the queue, and on how many nodes it ran."""

    job: Job
    waited: float
    nodes: int


def replay(
    jobs: Sequence[Job],
    nodes: int,
    policy: Policy,
    *,
    gpus_each: int = 8,
    order: Order = "whoever fits",
    limit: float = 2.0,
) -> list[Outcome]:
    """Run all jobs, in the order of their arrival. A job's time limit is `limit` times its duration."""
    width = len(str(nodes))
    there = Nodes((f"n{each:0{width}}", gpus_each) for each in range(nodes))
    run = _Replay(there, policy, limit, declares=order == "backfill")
    decide = {"whoever fits": run.start_fitting, "strict": run.start_oldest, "backfill": run.backfill}[order]
    coming = deque(jobs)
    while coming or run.running:
        now = min(
            coming[0].arrival if coming else float("inf"), run.running[0][0] if run.running else float("inf")
        )
        run.end_until(now)
        while coming and coming[0].arrival <= now:
            run.enter(coming.popleft())
        decide(now)
    return run.outcomes


class _Replay:
    """The state of a replay."""

    def __init__(self, nodes: Nodes, policy: Policy, limit: float, *, declares: bool) -> None:
        self.nodes = nodes
        self.policy = policy
        self.limit = limit
        self._declares = declares  # time limits
        self.running: list[tuple[float, int, Given]] = []  # a heap: its end, a number, where it runs
        self.outcomes: list[Outcome] = []
        self._queues: dict[int, deque[tuple[int, Job]]] = {}  # by size, the oldest first, with its number
        self._limits: list[
            tuple[float, int, Given]
        ] = []  # the same jobs, sorted by the ends that they declare
        self._declared: dict[int, float] = {}  # the same ends, by the jobs' numbers
        self._came = 0
        self._head = (0, 0.0, 0.0)  # the job that others may not delay, when that was computed, its start

    def enter(self, job: Job) -> None:
        self._came += 1
        self._queues.setdefault(job.gpus, deque()).append((self._came, job))

    def end_until(self, now: float) -> None:
        while self.running and self.running[0][0] <= now:
            _, number, given = heapq.heappop(self.running)
            self.nodes.release(given)
            if self._declares:
                at = (self._declared.pop(number), number)
                del self._limits[bisect_right(self._limits, at, key=lambda each: each[:2]) - 1]

    def start_fitting(self, now: float) -> None:
        """The oldest that fits, until none does; what has not fitted does not once another has started."""
        heads = [(queue[0][0], size) for size, queue in self._queues.items() if queue]
        heapq.heapify(heads)
        while heads:
            _, size = heapq.heappop(heads)
            if self._start_head(size, now) and self._queues[size]:
                heapq.heappush(heads, (self._queues[size][0][0], size))

    def start_oldest(self, now: float) -> int | None:
        """The oldest, while it fits; returns the size of the one that does not."""
        while any(self._queues.values()):
            size = min((queue[0][0], size) for size, queue in self._queues.items() if queue)[1]
            if not self._start_head(size, now):
                return size
        return None

    def backfill(self, now: float) -> None:
        """The oldest while it fits; then those that end, by their limits, before it could start."""
        blocked = self.start_oldest(now)
        if blocked is None or not self.nodes.total:
            return
        waiting = heapq.merge(*(list(queue)[:_LOOKED_AT] for queue in self._queues.values()))
        oldest = self._queues[blocked][0][0]
        if oldest != self._head[0] or now >= self._head[1] + _REFRESH:
            self._head = oldest, now, self._when_it_fits(blocked)
        shadow = self._head[2]
        refused = {blocked}
        for number, (_, (came, job)) in enumerate(zip(range(_LOOKED_AT), waiting, strict=False)):
            if number == 0 or job.gpus in refused:
                continue
            if now + job.duration * self.limit > shadow:
                continue
            given = self._choose(job.gpus)
            if given is None:
                refused.add(job.gpus)
                continue
            self._queues[job.gpus].remove((came, job))
            self._start(job, came, given, now)

    def _when_it_fits(self, size: int) -> float:
        """When, by the limits of what runs, a job of that size could start."""

        def fits(ended: int) -> bool:
            free = dict(self.nodes.free)
            for _, _, given in self._limits[:ended]:
                for name, share in given:
                    free[name] += share
            return self.policy(Nodes(free.items()), size) is not None

        low, high = 0, len(self._limits)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle + 1, high)
        return self._limits[low - 1][0] if low else 0.0

    def _choose(self, size: int) -> Given | None:
        if size > self.nodes.total:
            return None
        return self.policy(self.nodes, size)

    def _start_head(self, size: int, now: float) -> bool:
        came, job = self._queues[size][0]
        given = self._choose(size)
        if given is None:
            return False
        self._queues[size].popleft()
        self._start(job, came, given, now)
        return True

    def _start(self, job: Job, came: int, given: Given, now: float) -> None:
        self.nodes.take(given)
        heapq.heappush(self.running, (now + job.duration, came, given))
        self.outcomes.append(Outcome(job, now - job.arrival, len(given)))
        if self._declares:
            end = now + job.duration * self.limit
            self._declared[came] = end
            insort(self._limits, (end, came, given))
