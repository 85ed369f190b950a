"""What the processes below this one use, from /proc: processor time and memory, of each rank and of the rest.

A look reads the processes of this worker alone, and those that are new on the machine: one that is not below
this process never will be. Where there is no /proc, nothing is known."""

from __future__ import annotations

import os

from echelon.agent.ranks.processes import all_processes, stat_of

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Mapping

FORGET = 50  # looks after which all processes are looked at anew: a number may have been used again
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Tree:
    """The processes of one rank: their number, processor seconds so far, and bytes of memory. `waited` are
    seconds for which they could have run, and others had the processors.
    """

    __slots__ = ("memory", "processes", "seconds", "shared", "waited")

    def __init__(self) -> None:
        self.processes = 0
        self.seconds = 0.0
        self.waited = 0.0
        self.memory = 0
        self.shared = 0  # of one process: what most of them have in common, such as libraries

    @property
    def resident(self) -> int:
        """What each has for itself, and what they share counted once."""
        return self.memory + self.shared


class Looks:
    """Looks at the processes below `root`, one time after the other."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._foreign: set[int] = set()
        self._count = 0

    def look(self, ranks: Mapping[int, int], but: frozenset[int] = frozenset()) -> dict[int | None, Tree]:
        """What each rank uses, `ranks` being the process of each by its id; None has what is below none of
        them. `but` are processes that are left out.
        """
        if self._count % FORGET == 0:
            self._foreign.clear()
        self._count += 1
        known: dict[int, tuple[float, int]] = {}
        children: dict[int, list[int]] = {}
        for pid in all_processes():
            if pid not in self._foreign:
                found = _read_stat(pid)
                if found is not None:
                    known[pid] = found
                    children.setdefault(found[1], []).append(pid)
        trees: dict[int | None, Tree] = {}
        unseen: list[tuple[int, int | None]] = [(self._root, None)]
        own = {self._root}
        while unseen:
            parent, above = unseen.pop()
            for pid in children.get(parent, ()):
                own.add(pid)
                if pid in but:
                    continue
                rank = ranks.get(pid, above)
                unseen.append((pid, rank))
                _add(trees.setdefault(rank, Tree()), pid, known[pid][0])
        self._foreign.update(known.keys() - own)
        return trees


def _add(tree: Tree, pid: int, seconds: float) -> None:
    tree.processes += 1
    tree.seconds += seconds
    try:
        with open("/proc/%d/schedstat" % pid, "rb") as file:  # of its first thread
            tree.waited += int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        pass  # a kernel that does not count it
    try:
        with open("/proc/%d/statm" % pid, "rb") as file:
            fields = file.read().split()
        resident, shared = int(fields[1]) * _PAGE, int(fields[2]) * _PAGE
    except (OSError, ValueError, IndexError):
        return  # it has ended
    tree.memory += max(0, resident - shared)
    tree.shared = max(tree.shared, shared)


def _read_stat(pid: int) -> tuple[float, int] | None:
    """The processor seconds of a process, those of children that it has waited for included, and its parent;
    None if it has ended.
    """
    fields = stat_of(pid)
    try:
        return sum(int(field) for field in fields[11:15]) / _TICKS, int(fields[1])
    except (ValueError, IndexError):
        return None
