"""How the leader of a gang bears a thousand agents: all join, one is lost and comes back, all start again.

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

from measure.agents import RunningAgent, ask_to_stop, leading_agent
from measure.figures import align, number
from measure.processes import memory_of, peak_of, processor_time_of
from measure.rounds import PATIENCE, Workspace, workspace
from measure.simulated import Members

SIZES = (10, 100, 1000)
ROUNDS = 3
STEADY = 3.0
FAR = 0.2  # seconds that an answer takes on a slow network, or by an agent that is busy while it starts

Measured = dict[str, float]  # what was measured, in words -> how much


def main() -> None:
    rounds: dict[int, list[Measured]] = {size: [] for size in SIZES}
    with workspace() as place:
        for _ in range(ROUNDS):
            for size in SIZES:
                near = _with_gang(place, size, 0.0, _live)
                rounds[size].append(near | _with_gang(place, size, FAR, _form_far))
    print(f"A gang of one real leader and simulated agents ({ROUNDS} rounds: best, and median in brackets)")
    print("\n".join(align(_rows(rounds))), end="\n\n")


def _rows(rounds: dict[int, list[Measured]]) -> list[list[str]]:
    rows = [["", *(f"{size:,} agents" for size in SIZES), f"{SIZES[-1]:,} against {SIZES[-2]:,}"]]
    for words in rounds[SIZES[0]][0]:
        samples = {size: [measured[words] for measured in rounds[size]] for size in SIZES}
        cells = [f"{number(min(found))} ({number(statistics.median(found))})" for found in samples.values()]
        before, largest = min(samples[SIZES[-2]]), min(samples[SIZES[-1]])
        rows.append([words, *cells, f"{largest / before:.3g}x" if before else ""])
    return rows


def _with_gang(
    place: Workspace, size: int, answer_after: float, measure: Callable[[RunningAgent, Members], Measured]
) -> Measured:
    """Start a leader, and let `size` agents that have not called yet be measured with it."""
    # The leader is started before our own limit is raised: it must see to its own.
    with (
        leading_agent(place, ["sleep", "120"], workers=size + 1, restarts=1) as leader,
        _descriptors(size + 100),
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
    everybody = members.members
    processor, began = processor_time_of(pid), time.monotonic()
    for member in everybody:
        members.dial(member)
    formed = members.until(lambda: all(member.last_started == 0 for member in everybody))
    processor_formed = processor_time_of(pid)
    memory_formed = memory_of(pid).resident

    rested, processor_rested = time.monotonic(), processor_time_of(pid)
    members.rest(STEADY)
    share = (processor_time_of(pid) - processor_rested) / (time.monotonic() - rested)

    lost, *others = everybody
    processor_lost, gone = processor_time_of(pid), time.monotonic()
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
    for member in members.members:
        members.dial(member)
    formed = members.until(lambda: all(member.last_started == 0 for member in members.members))
    return {
        f"all join when each answers after {FAR:g} s, ms": (formed - began) * 1000,
        "... calls that the leader broke off": members.redials,
    }


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
