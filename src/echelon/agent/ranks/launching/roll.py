"""What the ranks of one generation know of each other: addresses, ports, and who is on which machine. Pure.

The leader sends a worker only what the launch templates name (`Asked`). PyTorch's name rank 0 and the own
machine, so that a start is a short message for each of ten thousand workers; TensorFlow's name every rank,
and every worker gets the whole list."""

from __future__ import annotations

import json
import re

from echelon.agent.task import Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

PLACEHOLDER = re.compile(
    r"\{(rank|ranks|local_rank|worker|workers|index|error_file|address:\d+|port:\d+|endpoint:\d+|members:\w+|file:[\w.-]+"
    r"|hosts(?::\w+)?|machine:\d+|rank_here:\d+|ranks_here:\d+|cross_rank:(?:workers:)?\d+|cross_size:(?:workers:)?\d+"
    r"|rendezvous|nodes(?::\w+)?|ssh|interface)\}"
)
LOCAL_HOST, WORKER_HOST = "localhost", "worker-%d"  # how a launcher calls the workers
_LOOPBACK = "127.0.0.1"  # of workers that are processes of one machine


class Asked:
    """What the launches of a run ask about its ranks."""

    def __init__(self, task: Task) -> None:
        self._task = task
        ranks: set[int] = set()
        counts: set[int] = set()
        crossed: set[int] = set()
        self._all = False  # every address and port is named
        for group in task.groups:
            launch = group.get("launch", {})
            for text in (*launch.get("wiring", {}).values(), *launch.get("files", {}).values()):
                for found in PLACEHOLDER.findall(text):
                    kind, _, which = found.partition(":")
                    if kind in ("address", "port", "endpoint"):
                        ranks.add(int(which))
                    elif kind in ("machine", "rank_here", "ranks_here"):
                        counts.add(int(which))
                    elif kind in ("cross_rank", "cross_size") and which.isdigit():
                        crossed.add(int(which))
                    elif kind in ("members", "hosts", "nodes"):
                        self._all = True
        self._counts = sorted(counts)
        self._crossed = sorted(crossed)
        self._workers = [
            place.member
            for place in task.places
            if any(place.first_rank <= rank < place.first_rank + place.procs for rank in ranks)
        ]

    def shared(self, addresses: list[str], ports: list[list[int]]) -> dict[str, object]:
        """What every worker is told: of all workers, or of those that the launches name."""
        if self._all:
            return {"addresses": addresses, "ports": ports}
        return {
            "addresses": {str(worker): addresses[worker] for worker in self._workers},
            "ports": {str(worker): ports[worker] for worker in self._workers},
        }

    def own(self, addresses: list[str]) -> list[dict[str, list[Any]]]:
        """What each worker is told beside that: its `seats` and `crossings` for every number of ranks that
        the launches name; nothing if they name none.
        """
        if not (self._counts or self._crossed):
            return []
        told: list[dict[str, list[Any]]] = [{} for _ in addresses]
        for count in self._counts:
            for own, seat in zip(told, seats(self._task, addresses, count)):
                own[str(count)] = seat
        for count in self._crossed:
            for own, crossing in zip(told, crossings(self._task, addresses, count)):
                own["cross:%d" % count] = crossing
        return told


class Roll:
    """The gang of one generation, as one worker knows it.

    `addresses` and `ports` are lists for all members, or name some of them by number; `own` has what only
    this one is told. `task` is that of the generation."""

    def __init__(
        self,
        task: Task,
        addresses: list[str] | dict[str, str],
        ports: list[list[int]] | dict[str, list[int]],
        own: dict[str, list[Any]] | None = None,
    ) -> None:
        self.task = task
        self._own = own
        self._all = addresses if isinstance(addresses, list) else []
        self.addresses: dict[int, str] = {}
        self.ports: dict[int, int] = {}
        self._by_role: dict[str, list[str]] = {}
        self._hosts: list[tuple[str, str]] = []  # each worker's role and line
        self._slots: dict[str, int] = {}  # by host, as a launcher calls it
        ports_of = dict(_numbered(ports))
        for worker, address in _numbered(addresses):
            place, own_ports = task.places[worker], ports_of[worker]
            if place.procs and place.role != "launcher":
                host = LOCAL_HOST if worker == 0 or address == _LOOPBACK else WORKER_HOST % worker
                self._slots[host] = self._slots.get(host, 0) + place.procs
            if place.procs:
                self._hosts.append((place.role, "%s slots=%d\n" % (address, place.procs)))
            for local in range(place.procs):
                rank = place.first_rank + local
                self.addresses[rank] = address
                if local < len(own_ports):
                    self.ports[rank] = own_ports[local]
                    self._by_role.setdefault(place.role, []).append(join(address, own_ports[local]))

    def where(self, rank: int, kind: str) -> str:
        """The address of a rank, its port, or both (`endpoint`)."""
        if kind == "address":
            return self.addresses[rank]
        port = self.ports[rank]
        return str(port) if kind == "port" else join(self.addresses[rank], port)

    def members(self, role: str) -> str:
        """All ranks of a role, as a JSON list of address:port."""
        return json.dumps(self._by_role.get(role, []))

    def seat(self, worker: int, count: int) -> list[int]:
        """One of the `seats`."""
        if self._own is not None:
            return self._own[str(count)]
        return seats(self.task, self._all, count)[worker]

    def crossing(self, worker: int, local: int, which: str) -> list[int]:
        """The cross rank and size of a worker's rank: `which` is how many ranks count, over machines or, with
        "workers:" before it, over workers.
        """
        over, _, number = which.rpartition(":")
        count = int(number)
        if over:
            workers = [str(place.member) for place in self.task.places]
            return crossings(self.task, workers, count)[worker][local]
        if self._own is not None:
            return self._own["cross:%d" % count][local]  # type: ignore[no-any-return]
        return crossings(self.task, self._all, count)[worker][local]

    def hosts(self, role: str) -> str:
        """A line for each worker with ranks, of one role or of all (""): what mpirun calls a hostfile."""
        return "".join(line for of, line in self._hosts if role in ("", of))

    def nodes(self, form: str) -> str:
        """A line for each machine that a launcher starts ranks on, by the name under which the remote shell
        knows it: Open MPI's form, Hydra's, or a script that prints them (`discover`). Workers that are
        processes of one machine are one line.
        """
        if form == "discover":
            return "#!/bin/sh\n" + "".join("echo %s:%d\n" % each for each in self._slots.items())
        line = "%s:%d\n" if form == "hydra" else "%s slots=%d\n"
        return "".join(line % each for each in self._slots.items())


def seats(task: Task, addresses: list[str], count: int) -> list[list[int]]:
    """Where each worker is among the first `count` ranks: the number of its machine, how many ranks of other
    workers are before it there, and how many ranks are there in all. Workers of one machine share its
    address, and every pod has its own.
    """
    machines: dict[str, int] = {}
    filled: dict[str, int] = {}
    before = []
    for place, address in zip(task.places, addresses):
        before.append(filled.get(address, 0))
        ranks = min(place.procs, count - place.first_rank)
        if ranks > 0:
            machines.setdefault(address, len(machines))
            filled[address] = before[-1] + ranks
    return [
        [machines.get(address, -1), ahead, filled.get(address, 0)]
        for address, ahead in zip(addresses, before)
    ]


def crossings(task: Task, hosts: list[str], count: int) -> list[list[list[int]]]:
    """For each of the first `count` ranks, worker by worker: which it is among the ranks that have the same
    number on their hosts, and how many those are. Horovod calls that its cross rank and size. `hosts` has
    the host of every worker.
    """
    where: list[tuple[str, int, int]] = []  # of each worker: its host, and its first and last number there
    filled: dict[str, int] = {}
    for place, host in zip(task.places, hosts):
        before = filled.get(host, 0)
        filled[host] = before + max(0, min(place.procs, count - place.first_rank))
        where.append((host, before, filled[host]))
    sizes = [0] * max(filled.values(), default=0)
    numbers: dict[str, list[int]] = {}
    for host, ranks in filled.items():  # in the order in which they were first seen
        numbers[host] = sizes[:ranks]
        for number in range(ranks):
            sizes[number] += 1
    return [
        [[numbers[host][number], sizes[number]] for number in range(first, last)]
        for host, first, last in where
    ]


def join(address: str, port: int) -> str:
    """address:port, with the brackets that an IPv6 address needs."""
    return "[%s]:%d" % (address, port) if ":" in address else "%s:%d" % (address, port)


def _numbered(known: list[Any] | dict[str, Any]) -> list[tuple[int, Any]]:
    if isinstance(known, list):
        return list(enumerate(known))
    return [(int(worker), value) for worker, value in known.items()]
