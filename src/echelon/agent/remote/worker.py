"""The parts of a worker whose launcher starts ranks everywhere: its socket for the launcher's ranks, the
commands that it runs for the launcher, and on the leader the remote shell."""

from __future__ import annotations

from echelon.agent.gang.leader import Leader
from echelon.agent.gang.member import Member
from echelon.agent.loop import Loop
from echelon.agent.ranks import sockets
from echelon.agent.ranks.launched import LaunchedRanks
from echelon.agent.remote.commands import Commands
from echelon.agent.remote.hosted import HostedRanks
from echelon.agent.remote.requests import Requests
from echelon.agent.task import Place, Task


class RemoteWorker:
    """One worker's side of the remote shell. OSError if its sockets cannot be made."""

    def __init__(self, loop: Loop, task: Task, place: Place, member: Member, leader: Leader | None) -> None:
        self._requests: Requests | None = None
        ranks = member.ranks
        assert isinstance(ranks, LaunchedRanks)
        self._hosted = HostedRanks(loop, task, place, ranks)
        commands = Commands(loop, task, ranks)
        commands.send = lambda message: member.send(message)  # noqa: PLW0108 - it is set later
        member.on_command = commands.obey
        if leader is not None:
            self._requests = Requests(loop, task, leader)
        # On every worker: a daemon of Open MPI 4 ends at once where the remote shell it is told of is not.
        sockets.write_programs(task)

    def close(self) -> None:
        """Close the sockets."""
        self._hosted.close()
        if self._requests is not None:
            self._requests.close()
