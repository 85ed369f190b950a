"""How the leader of a gang bears ten thousand agents: all join, one is lost and comes back, all start again.

The leader is the real agent in a process of its own; the others are simulated (`measure/simulated.py`). Times
are taken where an agent would notice: in the simulating process, whose own work is part of them. The leader's
time on the processor is its alone.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from measure.agents import RunningAgent, ask_to_stop, leading_agent
from measure.figures import align, number
from measure.processes import memory_of, peak_of, processor_time_of
from measure.rounds import PATIENCE, Workspace, workspace
from measure.simulated import Members

SIZES = (10, 100, 1000, 10_000)
ROUNDS = 3
STEADY = 3.0
SPARE_FILES = 100
FAR = 0.2  # seconds that an answer takes on a slow network, or by an agent that is busy while it starts

Measured = dict[str, float]  # what was measured, in words -> how much


def main() -> None:
    sizes = [size for size in SIZES if _fits(size)]
    rounds: dict[int, list[Measured]] = {size: [] for size in sizes}
    with workspace() as place:
        for _ in range(ROUNDS):
            for size in sizes:
                near = _with_gang(place, size, 0.0, _live)
                rounds[size].append(near | _with_gang(place, size, FAR, _form_far))
    print(f"A gang of one real leader and simulated agents ({ROUNDS} rounds: best, and median in brackets)")
    print("\n".join(align(_rows(rounds))), end="\n\n")


def _rows(rounds: dict[int, list[Measured]]) -> list[list[str]]:
    sizes = sorted(rounds)
    growth = list(pairwise(sizes[1:]))
    titles = (f"{larger:,} against {smaller:,}" for smaller, larger in growth)
    rows = [["", *(f"{size:,} agents" for size in sizes), *titles]]
    for words in rounds[sizes[0]][0]:
        samples = {size: [measured[words] for measured in rounds[size]] for size in sizes}
        best = {size: min(found) for size, found in samples.items()}
        cells = [f"{number(best[size])} ({number(statistics.median(samples[size]))})" for size in sizes]
        ratios = (
            f"{best[larger] / best[smaller]:.3g}x" if best[smaller] else "" for smaller, larger in growth
        )
        rows.append([words, *cells, *ratios])
    return rows


def _with_gang(
    place: Workspace, size: int, answer_after: float, measure: Callable[[RunningAgent, Members], Measured]
) -> Measured:
    """Start a leader, and let `size` agents that have not called yet be measured with it."""
    # The leader is started before our own limit is raised: it must see to its own.
    with (
        leading_agent(place, ["sleep", "120"], workers=size + 1, restarts=1) as leader,
        _descriptors(size + SPARE_FILES),
    ):
        _wait_until_it_listens(leader)
        members = Members(leader.address, leader.secret, size, answer_after=answer_after)
        try:
            return measure(leader, members)
        finally:
            members.close()


def _live(leader: RunningAgent, members: Members) -> Measured:
    """From the forming of a gang to its end."""
    pid = leader.process.pid
    everybody = len(members.members)
    processor, began = processor_time_of(pid), time.monotonic()
    members.dial_all()
    formed = members.until(lambda: members.started[0] == everybody)
    processor_formed = processor_time_of(pid)
    memory_formed = memory_of(pid).resident

    rested, processor_rested = time.monotonic(), processor_time_of(pid)
    members.rest(STEADY)
    share = (processor_time_of(pid) - processor_rested) / (time.monotonic() - rested)

    lost = members.members[0]
    processor_lost, gone = processor_time_of(pid), time.monotonic()
    members.hang_up(lost)
    noticed = members.until(lambda: members.stopped[0] > 0)
    stopped = members.until(lambda: members.stopped[0] == everybody - 1)
    lost.last_started = -1  # whoever takes its place knows nothing of what was
    back = time.monotonic()
    members.dial(lost)
    again = members.until(lambda: members.started[1] == everybody)
    processor_again = processor_time_of(pid)
    peak = peak_of(pid)

    asked = time.monotonic()
    ask_to_stop(leader)
    members.until(lambda: members.finished == everybody)
    leader.process.wait(PATIENCE)
    ended = time.monotonic()
    return {
        "all join and start, ms": (formed - began) * 1000,
        "one is lost: until the first is told to stop, ms": (noticed - gone) * 1000,
        "... until the last is told, ms": (stopped - gone) * 1000,
        "... its return until all start, ms": (again - back) * 1000,
        "... its loss until all start, ms": (again - gone) * 1000,
        "a word to stop until the leader is gone, ms": (ended - asked) * 1000,
        "leader's memory (RSS) once formed, MB": memory_formed,
        "leader's memory at its peak, MB": peak,
        "leader's processor time to form, ms": (processor_formed - processor) * 1000,
        "leader's processor time to restart, ms": (processor_again - processor_lost) * 1000,
        "leader's share of a processor while all train, %": share * 100,
    }


def _form_far(_leader: RunningAgent, members: Members) -> Measured:
    """The forming alone, with agents that are slow to answer."""
    began = time.monotonic()
    members.dial_all()
    formed = members.until(lambda: members.started[0] == len(members.members))
    return {
        f"all join when each answers after {FAR:g} s, ms": (formed - began) * 1000,
        "... calls that the leader broke off": members.redials,
    }


def _wait_until_it_listens(leader: RunningAgent) -> None:
    """The interpreter's own start is not the gang's: go on when the leader greets a first caller."""
    with socket.create_connection(leader.address, timeout=PATIENCE) as caller:
        assert caller.recv(1)


def _fits(size: int) -> bool:
    """Whether the system lets a process open a file for each agent."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    fits = hard == resource.RLIM_INFINITY or hard >= size + SPARE_FILES
    if not fits:
        print(
            f"{size:,} agents are left out: a process may open {hard:,} files (ulimit -Hn)", file=sys.stderr
        )
    return fits


@contextlib.contextmanager
def _descriptors(count: int) -> Iterator[None]:
    """Let this process open so many files, where a shell's usual limit does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


if __name__ == "__main__":
    main()
