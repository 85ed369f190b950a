"""Jobs to replay: windows of a trace, and a mix of sizes that the trace hardly has.

The trace is Microsoft's Philly (github.com/msr-fiddle/philly-traces, CC-BY-4.0) as a table: a row for each
job, with columns `timestamp` (UTC), `duration` (seconds) and `num_gpus`. It is not part of this project."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count as count_up
from pathlib import Path
from random import Random

DAY = 86400.0
WINDOW = 30 * DAY
BUSY = 100  # jobs a day
ODD_SIZES = (3, 5, 6, 12)


@dataclass(frozen=True, slots=True)
class Job:
    """When it comes, how long it runs, how many GPUs it needs."""

    arrival: float
    duration: float
    gpus: int


def read_trace(path: Path) -> list[Job]:
    """All jobs, the earliest first; times are seconds since then."""
    with path.open(newline="") as file:
        rows = [
            Job(
                datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp(),
                float(row["duration"]),
                int(row["num_gpus"]),
            )
            for row in csv.DictReader(file)
        ]
    first = min(job.arrival for job in rows)
    return sorted(
        (replace(job, arrival=job.arrival - first) for job in rows), key=lambda job: (job.arrival, job.gpus)
    )


def windows(jobs: Sequence[Job], count: int) -> list[list[Job]]:
    """So many windows of thirty days, evenly spaced over the longest stretch of days that are busy: at its
    beginning and at its end the trace has a few jobs a day.
    """
    first, days = _longest_stretch(
        {day for day, number in Counter(map(_day, jobs)).items() if number >= BUSY}
    )
    spare = max(0.0, days * DAY - WINDOW)
    starts = [first * DAY + spare * number / max(1, count - 1) for number in range(count)]
    return [
        [replace(job, arrival=job.arrival - start) for job in jobs if start <= job.arrival < start + WINDOW]
        for start in starts
    ]


def _day(job: Job) -> int:
    return int(job.arrival // DAY)


def _longest_stretch(days: set[int]) -> tuple[int, int]:
    """The first of the most days in a row, and their number."""
    found = []
    for first in sorted(days):
        if first - 1 not in days:
            number = next(number for number in count_up() if first + number not in days)
            found.append((number, first))
    number, first = max(found)
    return first, number


def with_odd_sizes(jobs: Iterable[Job], seed: int = 1) -> list[Job]:
    """The same jobs; those with several GPUs need 3, 5, 6 or 12 of them instead, chosen at random, for a time
    in which they use as much in all.
    """
    random = Random(seed)
    found = []
    for job in jobs:
        gpus = random.choice(ODD_SIZES) if job.gpus > 1 else 1
        found.append(Job(job.arrival, job.duration * job.gpus / gpus, gpus))
    return found


def nodes_for(jobs: Iterable[Job], load: float, gpus_each: int) -> int:
    """How many nodes make such a load of the jobs of a window; never fewer than the largest job needs."""
    every = list(jobs)
    used = sum(job.duration * job.gpus for job in every) / WINDOW
    return max(round(used / load / gpus_each), -(-max(job.gpus for job in every) // gpus_each))
