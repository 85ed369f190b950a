"""What ranks leave behind when they have ended: the training below a shell or a launcher, data loaders,
daemons. Each gets SIGTERM once, while its output is still read, and what is left of the time of the stop.

A shell ends at SIGTERM at once, and does not pass it on: its commands come to the agent, which adopts
orphans. Whether a process has got the signal already cannot be seen. One whose parent died of it has not. One
whose parent handled it may have, and a second signal may spoil what it saves: it gets one only when it is
about to be killed anyway."""

from __future__ import annotations

import os
import signal
import time

from echelon.agent import stopping
from echelon.agent.ranks.ladder import Ladder
from echelon.agent.ranks.processes import catches, parents_below

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Collection, Mapping

GRACE = 2.0  # seconds for what ends by itself when another process has ended
LATE = 2.0  # seconds before SIGKILL at which those are told that may have been told by their parents


class Leftovers:
    """The processes below this one that are neither ranks nor other processes of the agent's own."""

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder
        self._seen: set[int] = set()
        self._in_doubt: set[int] = set()
        self._passed_on = False  # since the last look a process has ended that handled SIGTERM
        self._saving = float("-inf")  # when one that catches SIGTERM was seen last

    def forget(self) -> None:
        """Other ranks start."""
        self._seen, self._in_doubt, self._passed_on = set(), set(), False
        self._saving = float("-inf")

    def ended(self, pid: int, code: int) -> None:
        """A process has ended that may leave others."""
        if pid in self._ladder.terminated and code != -signal.SIGTERM:
            self._passed_on = True

    def find(self, known: set[int]) -> dict[int, int]:
        """Those that are there, each with its parent; `known` are the agent's own processes."""
        return parents_below(os.getpid(), known)

    def tell(self, parents: Mapping[int, int]) -> None:
        """Send SIGTERM to those whose turn it is."""
        ladder, own, now = self._ladder, os.getpid(), time.monotonic()
        catching = {pid for pid in parents if catches(pid, signal.SIGTERM)}
        new = {pid for pid, parent in parents.items() if parent == own} - self._seen
        self._seen |= new
        if self._passed_on:
            self._in_doubt |= new & catching
        self._passed_on = False
        if catching:
            self._saving = now
        elif now - self._saving < GRACE:
            return  # such as `tee`, which ends by itself when it has read what was written to it
        held = set(ladder.terminated)
        if now < ladder.deadline - LATE:
            held |= self._in_doubt
        if ladder.sent == stopping.INTERRUPT:
            held |= ladder.interrupted
        for pid in next_to_tell(parents, own, catching, held):
            ladder.tell(pid)


def next_to_tell(
    parents: Mapping[int, int], root: int, catching: Collection[int], held: Collection[int]
) -> list[int]:
    """Which of the processes below `root` are to get SIGTERM, without those in `held`: the orphans, since a
    launcher passes it on to what is below. One that would only die of it, such as `tee` in a pipeline, waits
    until none is left that catches it, or what those write while they save would go nowhere.
    """
    above = set()  # those that catch it, and their ancestors
    for pid in catching:
        each = pid
        while each in parents and each not in above:
            above.add(each)
            each = parents[each]
    orphans = (pid for pid, parent in parents.items() if parent == root and pid not in held)
    return [pid for pid in orphans if not above or pid in above]
