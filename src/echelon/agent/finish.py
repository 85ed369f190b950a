"""How a worker ends: it holds its results until they are fetched, writes its termination message and exits
with the code that tells the supervisor or the Job controller what to do.

The first reason to leave decides; later ones change nothing."""

from __future__ import annotations

import time

from echelon.agent.gang.member import Member
from echelon.agent.loop import Loop
from echelon.agent.output import termination
from echelon.agent.output.sink import Sink
from echelon.agent.output.state_line import History
from echelon.agent.task import INTERRUPTED, TOLD_TO_LEAVE, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.gang.leader import Leader

FLUSH = 10.0  # seconds that a slow reader gets to take a worker's output before its end is reported
SLACK = 15.0  # seconds that a member holds its results longer than the leader, which releases it
REPEAT_HELD = 5.0  # seconds between two state lines while results are held


class Shutdown:
    """From the last rank's end to `on_gone()`. `leader` is set where this worker leads."""

    def __init__(
        self, loop: Loop, task: Task, worker: int, member: Member, sink: Sink, history: History, in_pod: bool
    ) -> None:
        self.code = 0
        self.final: int | None = None  # the exit code, once the run is over
        self.until: float | None = None  # the end of holding results
        self.leader: Leader | None = None
        self.on_gone: Callable[[], object] = lambda: None
        self._loop = loop
        self._task = task
        self._worker = worker
        self._member = member
        self._sink = sink
        self._history = history
        self._in_pod = in_pod
        self._manifests: list[dict[str, object]] = []
        self._released = self._part_over = self._leaving = self._left = self._terminated = False

    # After the run's end

    def end_part(self) -> None:
        """Every rank here has ended; once their output is written and it is known what they leave, this
        worker's part is over.
        """
        self._sink.when_empty(self._take_stock, FLUSH)

    def _take_stock(self) -> None:
        """Find out what this worker holds. An agent whose ranks never ran, such as a lost worker's
        replacement, states nothing: it would overrule what the worker stated before.
        """
        if not (self._task.kept and self._member.ran):
            self._hold()
            return
        from echelon.agent.stock import take_stock

        def stated(found: list[dict[str, object]]) -> None:
            self._manifests = [dict(each, worker=self._worker) for each in found]
            self._hold()

        take_stock(self._loop, self._task.kept, stated)

    def release(self) -> None:
        """The results were fetched."""
        self._released = True
        if self.until is not None:
            self.finish()

    def finish(self) -> None:
        """Leave with the code of the verdict; the leader leaves last."""
        if self._leaving or self.final is None:
            return
        self._leaving = True
        code = self.final
        if self.leader is not None:
            self.leader.send_all("release")
            self.leader.leave(lambda: self.leave(code))
        else:
            self.leave(code)

    def _hold(self) -> None:
        """Hold the results until they are fetched, if there can be any; else leave."""
        some = self.leader.gang.has_run if self.leader is not None else self._member.ran
        if self._task.hold > 0 and some and not self._released and not self._terminated:
            self.until = time.time() + self._task.hold
            if self.leader is not None:
                self._sink.event("holding", until=round(self.until, 3))
            if self._task.repeat_state:
                self._loop.call_later(REPEAT_HELD, self._repeat_while_held)
            slack = SLACK if self.leader is None else 0.0
            self._loop.call_later(self._task.hold + slack, self.finish)
            self._report_part_over()
        else:
            self._report_part_over()
            self.finish()

    def _repeat_while_held(self) -> None:
        """Repeat the state line, since a log may be rotated after its last line. Members, which have no
        events of the run, do it too: in an empty log a reader could not see that lines are missing.
        """
        self._history.repeat(self._sink)
        self._loop.call_later(REPEAT_HELD, self._repeat_while_held)

    def _report_part_over(self, code: int | None = None) -> None:
        if self._in_pod and not self._part_over:
            self._part_over = True
            ended: dict[str, object] = {"exit_code": self.final if code is None else code}
            if self._manifests:
                ended["manifests"] = self._manifests
            self._sink.event("worker-ended", worker=self._worker, **ended)

    # At any time

    def on_sigterm(self) -> None:
        """The kubelet or the supervisor ends this worker; while the run lasts, another may replace it."""
        self._terminated = True
        if not self._in_pod:
            self.leave_after_ranks(INTERRUPTED)
        elif self.final is not None:
            if self.leader is not None:
                self.leader.send_all("release")
            self.leave(self.final)
        elif self.leader is not None:
            if not self._member.leaving:
                self._member.leaving = True
                self.leader.lose_own(TOLD_TO_LEAVE)
                self._member.stop_ranks(self._leave_when_settled)
        else:
            self._member.send({"say": "bye", "reason": TOLD_TO_LEAVE})
            self.leave_after_ranks(INTERRUPTED, TOLD_TO_LEAVE)

    def leave_after_ranks(self, code: int, reason: str = "") -> None:
        """Stop the ranks, then leave."""
        if not self._member.leaving:
            self._member.leaving = True
            self._member.stop_ranks(lambda: self.leave(code, reason))

    def leave(self, code: int, reason: str = "") -> None:
        """Leave at once: with the code of the verdict if there is one, else with `code`."""
        if self._left:
            return
        self._left = True
        self.code = code if self.final is None else self.final
        if self._in_pod:
            self._report_part_over(self.code)
            if self._task.repeat_state and self.until is not None:
                self._history.repeat(self._sink)
            if reason and self.final is None:
                termination.write(self._task.termination, {"reason": reason})
        self.on_gone()

    def _leave_when_settled(self) -> None:
        """Wait for the gang, which may reach its verdict without this worker; then leave with its code."""
        assert self.leader is not None
        if self.final is not None:
            return
        if self.leader.gang.phase == "stopping":
            self._loop.call_later(0.02, self._leave_when_settled)
        else:
            self.leave(INTERRUPTED, TOLD_TO_LEAVE)
