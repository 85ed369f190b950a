"""How the leader of a gang bears a thousand agents: all join, one is lost and comes back, all start again.

The leader is the real agent in a process of its own; the others are simulated (`measure/simulated.py`). Times are
taken where an agent would notice: in the simulating process, whose own work is part of them. The leader's time on
the processor is its alone.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields

from measure.agents import RunningAgent, ask_to_stop, leading_agent
from measure.figures import align, number
from measure.processes import memory_of, peak_of, processor_time_of
from measure.rounds import PATIENCE, Workspace, workspace
from measure.simulated import Members

SIZES = (10, 100, 1000)
ROUNDS = 3
STEADY = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What one gang took. Times in ms, memory in MB, shares in per cent of one processor."""

    form: float
    notice: float
    stop: float
    rejoin: float
    restart: float
    end: float
    memory_formed: float
    memory_peak: float
    processor_form: float
    processor_steady: float
    processor_restart: float
    redials: float


_WORDS = {
    "form": "all join and start, ms",
    "notice": "a loss until the first stops, ms",
    "stop": "a loss until the last stops, ms",
    "rejoin": "return of the lost one until all start, ms",
    "restart": "loss until all start again, ms",
    "end": "a word to stop until the leader is gone, ms",
    "memory_formed": "leader's memory (RSS) once formed, MB",
    "memory_peak": "leader's memory at its peak, MB",
    "processor_form": "leader's processor time to form, ms",
    "processor_restart": "leader's processor time to restart, ms",
    "processor_steady": "leader's share of a processor while all train, %",
    "redials": "calls that the leader did not take at first",
}


def main() -> None:
    rounds: dict[int, list[Round]] = {size: [] for size in SIZES}
    with workspace() as place:
        for _ in range(ROUNDS):
            for size in SIZES:
                rounds[size].append(_measure(place, size))
    best = {
        size: {
            field.name: (min(found), statistics.median(found))
            for field in fields(Round)
            if (found := [getattr(each, field.name) for each in rounds[size]])
        }
        for size in SIZES
    }
    print(f"A gang of real leader and simulated agents ({ROUNDS} rounds; best, median in brackets)")
    rows = [["", *(f"{size:,} agents" for size in SIZES), f"{SIZES[-1]:,} against {SIZES[-2]:,}"]]
    for name, words in _WORDS.items():
        cells = [f"{number(best[size][name][0])} ({number(best[size][name][1])})" for size in SIZES]
        below = best[SIZES[-2]][name][0]
        rows.append([words, *cells, f"{best[SIZES[-1]][name][0] / below:.3g}x" if below else ""])
    print("\n".join(align(rows)), end="\n\n")


def _measure(place: Workspace, size: int) -> Round:
    """One gang of `size` agents beside its leader, from its forming to its end."""
    # The leader is started before our own limit is raised: it must see to its own.
    with (
        leading_agent(place, ["sleep", "120"], workers=size + 1, restarts=1) as leader,
        _descriptors(size + 100),
    ):
        _wait_until_it_listens(leader)
        members = Members(leader.address, leader.secret, size)
        try:
            return _live(leader, members)
        finally:
            members.close()


def _live(leader: RunningAgent, members: Members) -> Round:
    pid = leader.process.pid
    everybody = members.members
    processor, began = processor_time_of(pid), time.monotonic()
    for member in everybody:
        members.dial(member)
    formed = members.until(lambda: all(member.last_started == 0 for member in everybody))
    processor_formed = processor_time_of(pid)
    memory = memory_of(pid).resident

    rested, before_rest = time.monotonic(), processor_time_of(pid)
    members.rest(STEADY)
    share = (processor_time_of(pid) - before_rest) / (time.monotonic() - rested)

    lost, *others = everybody
    before_loss, gone = processor_time_of(pid), time.monotonic()
    members.hang_up(lost)
    noticed = members.until(lambda: any(member.stopped == 0 for member in others))
    stopped = members.until(lambda: all(member.stopped == 0 for member in others))
    lost.last_started = -1  # whoever takes its place knows nothing of what was
    back = time.monotonic()
    members.dial(lost)
    again = members.until(lambda: all(member.last_started == 1 for member in everybody))
    processor_again = processor_time_of(pid)
    peak = peak_of(pid)

    asked = time.monotonic()
    ask_to_stop(leader)
    members.until(lambda: all(member.finished for member in everybody))
    leader.process.wait(PATIENCE)
    ended = time.monotonic()
    return Round(
        form=(formed - began) * 1000,
        notice=(noticed - gone) * 1000,
        stop=(stopped - gone) * 1000,
        rejoin=(again - back) * 1000,
        restart=(again - gone) * 1000,
        end=(ended - asked) * 1000,
        memory_formed=memory,
        memory_peak=peak,
        processor_form=(processor_formed - processor) * 1000,
        processor_steady=share * 100,
        processor_restart=(processor_again - before_loss) * 1000,
        redials=members.redials,
    )


def _wait_until_it_listens(leader: RunningAgent) -> None:
    """The interpreter's own start is not the gang's: go on when the leader greets a first caller."""
    with socket.create_connection(leader.address, timeout=PATIENCE) as caller:
        assert caller.recv(1)


@contextlib.contextmanager
def _descriptors(count: int) -> Iterator[None]:
    """Let this process open so many files, where a shell's usual limit does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        sys.exit(f"this needs {count} open files, and the system allows {hard}: raise it with ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


if __name__ == "__main__":
    main()
