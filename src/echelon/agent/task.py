"""The task: what the client tells the agents of a run, as one JSON file that is the same for all of them.

An agent's own number comes on its command line, or from the environment of its pod. The agent of a pod is
shipped when the run is recorded and the task is written when it starts, perhaps by another version of
echelon: an agent reads the schemas up to its own, and refuses a newer one, of which it would overlook a part.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Collection, Iterable, Iterator

SCHEMA = 3  # 1: no variables and files of a launch; 2: no rendezvous, no ranks that a launcher starts
VERSION = "0.1.0"  # the package's, which the agent cannot import

START_RANK = "{start_rank}"  # a word of a launcher's command: what stands before the command of its ranks

# An agent's exit codes, by which the supervisor or the Job controller knows what to do next. A code below is
# the agent's own end, not a rank's.
RUN_OVER = 193  # the run failed or was stopped, for good: start nothing again
INTERRUPTED = 194  # the agent was told to leave (SIGTERM) while the run went on: start another in its place
# Seconds beyond the grace in which a worker that is told to leave, in a pod, may give its checkpoints to the
# run's keeper. Its pod has them, and some more for the agent itself.
GIVING = 100.0
TOLD_TO_LEAVE = "its agent was told to leave (SIGTERM)"
RANK_FAILED = 196  # the run failed through a rank of this worker, for good; its leader leaves with RUN_OVER
NO_LEADER = 195  # the leader is gone and no restart is left: the run is over without a verdict
GAVE_WAY = 197  # the gang was not whole, and leaves its GPUs to other runs: start all again, later
LEFT_FOR_GOOD = 198  # as INTERRUPTED, but no restart is left: start none in its place. RUN_OVER would fail a
# Job that was suspended, and whose workers begin anew when it goes on.


class TaskRefused(ValueError):
    """The task is written for another version of the agent."""


class Place:
    """Where one worker stands in a generation: its number, its role and its ranks.

    `worker` is the number of its seat, which stays; `member` counts those that are there."""

    __slots__ = ("essential", "first_rank", "group", "index", "member", "procs", "role", "worker")

    def __init__(
        self,
        worker: int,
        member: int,
        group: int,
        role: str,
        index: int,
        first_rank: int,
        procs: int,
        essential: bool,
    ) -> None:
        self.worker = worker
        self.member = member
        self.group = group
        self.role = role
        self.index = index
        self.first_rank = first_rank
        self.procs = procs
        self.essential = essential


class Task:
    """A run as its agents see it."""

    def __init__(self, raw: dict[str, Any]) -> None:
        _check_schema(raw)
        self.run: str = raw["run"]
        self.groups: list[dict[str, Any]] = raw["groups"]
        self.env: dict[str, str] = raw.get("env", {})
        self.cwd: str = raw["cwd"]
        self.output: str = raw["output"]
        self.logs: str = raw["logs"]
        self.reports: str = raw["reports"]
        self.secret_file: str = raw["secret"]
        self.leader: tuple[str, int] = (raw["leader"]["host"], int(raw["leader"]["port"]))
        # The leader's pod as the name server of a cluster knows it, below the domain of the namespace.
        self.leader_pod: str | None = raw.get("leader_pod")
        self.restarts: int = raw.get("restarts", 0)
        self.earlier: int = raw.get("earlier", 0)  # starts of the run before it was resumed
        self.timeout: float | None = raw.get("timeout")
        # Seconds after which a gang is stuck whose ranks neither print nor compute.
        self.stall: float | None = raw.get("stall")
        self.grace: float = raw.get("grace", 10.0)
        self.join_timeout: float = raw.get("join_timeout", 60.0)
        self.heartbeat: float = raw.get("heartbeat", 1.0)
        self.lost_after: float = raw.get("lost_after", 10.0)
        # Seconds at least that a gang waits to be whole before it gives way to other runs; 0: it does not.
        self.give_way: float = raw.get("give_way") or 0.0
        # Whether the pod of a worker whose rank failed may fail, too: a controller may end the run by that.
        self.show_failure: bool = raw.get("show_failure", True)
        # Whether a worker that ended as it should not gets another pod; one whose pod is deleted always does.
        self.replaced: bool = raw.get("replaced", True)
        self.interactive: bool = raw.get("interactive", False)
        self.hidden: list[str] = raw.get("hidden", [])  # variables that are written to no file
        # The code that was shipped: its digest, its target, and a path or the paths of its parts.
        self.bundle: dict[str, Any] | None = raw.get("bundle")
        # packages, requirements (a path or None), wheel_parts (paths of pip's own wheel, or None)
        self.pip: dict[str, Any] | None = raw.get("pip")
        # What only an agent in a pod has, which has no supervisor:
        self.hold: float = raw.get("hold") or 0.0  # seconds that results are kept for the client to fetch
        self.control: str | None = raw.get("control")  # path of the socket on which it takes orders
        self.termination: str | None = raw.get("termination")  # path of the termination message
        self.repeat_state: bool = raw.get("repeat_state", False)  # its log is rotated: repeat the state
        self.kept: list[str] = raw.get("kept", [])  # folders with results that are fetched from its pod
        # The keeper, if the run has one: for how many seconds it holds results, how many bytes it takes,
        # where they are in its pod, and its port (0: any).
        self.keep: float = raw.get("keep") or 0.0
        self.keep_size: int = raw.get("keep_size") or 0
        self.keep_folder: str = raw.get("keep_folder") or ""
        self.keeper_port: int = raw.get("keeper_port") or 0
        # The folder whose entries are given to the keeper while ranks run.
        self.checkpoints: str = raw.get("checkpoints") or ""
        self.fresh: bool = raw.get("fresh", False)  # its results must not be mixed with what is there
        self.places: list[Place] = list(_places(self.groups))
        # The fewest workers with which the run continues; seconds after a start in which none are added.
        self.least: int = raw.get("least") or len(self.places)
        self.settle: float = raw.get("settle") or 120.0
        self.elastic = self.least < len(self.places)

    def of(self, workers: Collection[int]) -> Task:
        """The same run with these of its workers alone: members and ranks are counted in their order."""
        if len(workers) == len(self.places):
            return self
        made = Task.__new__(Task)
        made.__dict__.update(self.__dict__)
        made.places = list(_numbered(self.places[worker] for worker in sorted(workers)))
        return made

    @property
    def spares(self) -> bool:
        """Whether the run continues without counting a restart when a worker is told to leave. One of fixed
        size that may not be restarted ends then.
        """
        return self.elastic or self.restarts > 0

    def secret(self) -> bytes:
        """Read the run's own secret."""
        with open(self.secret_file, "rb") as file:
            return file.read().strip()

    def may_fail_alone(self, worker: int) -> bool:
        """Whether a worker may leave with a code that fails it, and not its Job. Another Job than the
        leader's would fail by that, before the leader has left.
        """
        return self.show_failure and self.places[worker].group == 0

    def leaves_for_good(self, worker: int) -> bool:
        """Whether a worker that is told to leave needs no other in its place: the run is over."""
        return not self.spares and self.may_fail_alone(worker)

    def ranks(self) -> int:
        """How many ranks the run has."""
        return sum(place.procs for place in self.places)


def read_task(path: str) -> Task:
    """Read the task file."""
    with open(path, "rb") as file:
        return Task(json.load(file))


def _check_schema(raw: dict[str, Any]) -> None:
    schema = raw.get("schema")
    if type(schema) is int and 1 <= schema <= SCHEMA:
        return
    raise TaskRefused(
        "it has schema %r, written by echelon %s; this agent, of echelon %s, reads schemas up to %d."
        " Submit the run again with one version of echelon."
        % (schema, raw.get("version", "of unknown version"), VERSION, SCHEMA)
    )


def _places(groups: list[dict[str, Any]]) -> Iterator[Place]:
    seats = (
        Place(0, 0, number, group["role"], 0, 0, group["procs"], group.get("essential", True))
        for number, group in enumerate(groups)
        for _ in range(group["workers"])
    )
    for place in _numbered(seats):
        place.worker = place.member
        yield place


def _numbered(places: Iterable[Place]) -> Iterator[Place]:
    """The same seats, each with its number among them, among those of its role, and with its first rank."""
    rank = 0
    seen: dict[str, int] = {}
    for member, seat in enumerate(places):
        index = seen.get(seat.role, 0)
        yield Place(seat.worker, member, seat.group, seat.role, index, rank, seat.procs, seat.essential)
        seen[seat.role] = index + 1
        rank += seat.procs


def write_atomically(path: str, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never half of it."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
