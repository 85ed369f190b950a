"""The ranks of a worker whose launch is a launcher's (mpirun): it starts on worker 0 alone, and ranks are
taken in as it starts them, on any worker."""

from __future__ import annotations

from functools import partial

from echelon.agent.ranks import shell
from echelon.agent.ranks.launching import launch
from echelon.agent.ranks.leftovers import GRACE
from echelon.agent.ranks.rank import Rank, open_log
from echelon.agent.ranks.ranks import Ranks

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.ranks.child import Output
    from echelon.agent.ranks.launching.roll import Roll


class LaunchedRanks(Ranks):
    """Beside what it starts itself, if that is the launcher: what the launcher starts here."""

    @property
    def stopping(self) -> bool:
        """Whether all are being ended, so that one that ends is no failure."""
        return self._stopping

    def environment_of(self, number: int | None) -> dict[str, str] | None:
        """What a rank that the launcher starts here finds, or, without its number, any process; None while
        none may start.
        """
        if self._stopping or self._env is None:
            return None
        if number is None:
            return self._env
        looks = launch.looks_of(self._task, number, self._generation)
        return {**self._env, "ECHELON_RANK": str(number), launch.LOOKS: looks}

    def host(self, number: int, make: Callable[..., Output]) -> bool:
        """Take in a rank that the launcher has started; `make(loop, on_data, on_end)` reads from it. False if
        the generation is over.
        """
        env = self.environment_of(number)
        if env is None:
            return False
        rank = Rank(number)
        rank.looks = env.get(launch.LOOKS, "")
        self._all.append(rank)
        shell.keep(self._task, number, env)
        log = open_log(rank, self._task.logs, self._sink, self._generation)
        rank.connect(self._sink, log, not self._task.interactive)
        rank.child = make(self._loop, partial(self._on_data, rank), partial(self._ended, rank))
        self._ranks[rank.child.pid] = rank
        if len(self._hosted()) == self._place.procs:
            self._announce()
        return True

    def command_ended(self, pid: int) -> None:
        """A process has ended that ran here for a launcher."""
        self.commands.discard(pid)
        if self._stopping:
            self._settle_if_over()

    def _check_launcher(self, path: str, roll: Roll) -> None:
        if self._generation or roll.nodes("").count("\n") < 2:
            return
        from echelon.agent.ranks import mpi_version

        name = mpi_version.name_of(mpi_version.ask(path) or "")
        trouble = mpi_version.trouble_of(name)
        if trouble:
            self._sink.event("note", reason="%s %s" % (name, trouble))

    def _launcher_ended_well(self) -> None:
        self._loop.call_later(GRACE, partial(self._leave_behind, self._all))

    def _leave_behind(self, started: list[Rank]) -> None:
        """Ranks that have not ended with their launcher are no part of the run."""
        if self._stopping or started is not self._all:
            return
        for rank in self._hosted():
            if rank.code is None and rank.child is not None:
                self._ranks.pop(rank.child.pid, None)
                rank.child.close()
                rank.close_streams()
                rank.code = 0
        self._settle_if_over()

    def _hosted(self) -> list[Rank]:
        return [rank for rank in self._all if not rank.launcher]
