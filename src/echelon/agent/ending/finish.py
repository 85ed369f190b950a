"""How a worker ends: it keeps its results until the run's keeper has them, or for a time in which clients
fetch them (`hold.py`), writes its termination message and exits with the code that tells the supervisor or
the Job controller what to do.

The first reason to leave decides; later ones change nothing."""

from __future__ import annotations

import time

from echelon.agent import stopping
from echelon.agent.ending.statements import Statements
from echelon.agent.files.beside import is_copying
from echelon.agent.gang.member import Member
from echelon.agent.gang.verdict import code_of
from echelon.agent.hold import Hold, may_leave
from echelon.agent.loop import Loop, Timer
from echelon.agent.output import termination
from echelon.agent.output.sink import Sink
from echelon.agent.output.state_line import History
from echelon.agent.task import (
    GAVE_WAY,
    GIVING,
    INTERRUPTED,
    LEFT_FOR_GOOD,
    RUN_OVER,
    TOLD_TO_LEAVE,
    Task,
)

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.gang.leader import Leader
    from echelon.agent.keep.handover import Handover

LOOK, SOON = 1.0, 0.05  # seconds between two looks at whether it may leave; once it was told to
FLUSH = 10.0  # seconds that a slow reader gets to take a worker's output before its end is reported
LAST_HANDOVER = 20.0  # seconds that a handover may take when its pod is deleted, which gets more
ANSWER = 1.0  # seconds in which the leader answers a worker that was told to leave


class Shutdown:
    """From the last rank's end to `on_gone()`. `leader` is set where this worker leads."""

    def __init__(
        self, loop: Loop, task: Task, worker: int, member: Member, sink: Sink, history: History, in_pod: bool
    ) -> None:
        self.code = 0
        self.final: int | None = None  # the exit code, once the run is over
        self.succeeded = False  # the run has
        self.leader: Leader | None = None
        self.on_gone: Callable[[], object] = lambda: None
        # Whether a leader is connected, which knows how the run ended.
        self.is_led: Callable[[], bool] = lambda: False
        self._loop = loop
        self._task = task
        self._worker = worker
        self._member = member
        self._sink = sink
        self._history = history
        self._in_pod = in_pod
        self._hold = Hold(task.hold, time.monotonic())
        self._holds = False  # it has results, and keeps them
        self._says = Statements(loop, worker, sink, history)
        self._manifests: list[dict[str, object]] = []
        self._timer: Timer | None = None  # of the next look at whether it may leave
        self._part_over = self._leaving = self._departing = self._left = False
        self._told = False  # to leave (SIGTERM)
        self._give_until = 0.0  # until then checkpoints are given, once it was told
        self._handover: Handover | None = None  # to the run's keeper
        if task.keep:
            from echelon.agent.keep.handover import Handover

            self._handover = Handover(loop, task, worker, sink, self.look)

    # What clients, the leader and the keeper say

    def renew(self, client: str = "", seconds: float = 0.0) -> None:
        """A client gave an order: the time begins anew, and lasts while that client fetches."""
        self._hold.renew(time.monotonic(), client, seconds)
        if self.until is not None:
            self._says.say_hold(self.until, leads=self.leader is not None)

    def release(self, client: str = "") -> None:
        """A client has the results of all workers; the leader, if it is told, tells the others."""
        self._hold.release(client)
        if self.leader is not None:
            self.leader.send_all("release", {"client": client})
        self.look()

    def meet_keeper(self, address: object, port: object) -> None:
        """There is a keeper that takes results."""
        if self._handover is not None:
            self._handover.meet(address, port)

    def hold_alone(self, verdict: dict[str, object] | None) -> None:
        """The leader is gone, and the run is over: this worker holds its results by itself."""
        if verdict is not None and not self._left:
            self._says.take_over(verdict)

    # After the run's end

    @property
    def until(self) -> float | None:
        """The end of holding results; None if none are held."""
        return time.time() + self._hold.until - time.monotonic() if self._holds else None

    def end_part(self) -> None:
        """Every rank here has ended; once their output is written and it is known what they leave, this
        worker's part is over.
        """
        if self._member.checkpoints is not None:
            self._member.checkpoints.close()
        self._sink.when_empty(self._take_stock, FLUSH)

    def _take_stock(self) -> None:
        """Find out what this worker holds. An agent whose ranks never ran, such as a lost worker's
        replacement, states nothing: it would overrule what the worker stated before.
        """
        if not (self._task.kept and self._member.ran):
            self._end_part([])
            return
        from echelon.agent.ending.stock import take_stock

        take_stock(self._loop, self._task.kept, self._end_part)

    def _end_part(self, found: list[dict[str, object]]) -> None:
        """Keep the results, if there can be any, and give them to the keeper."""
        self._manifests = [dict(each, worker=self._worker) for each in found]
        self._holds = self._task.hold > 0 and self._has_run() and not self._hold.released
        if self._told:
            self._loop.call_later(LAST_HANDOVER, self._finish)
        elif self._holds:
            self.renew()
            if self._task.repeat_state:
                self._says.begin_repeating()
        self._report_part_over()
        if self._holds and self._handover is not None:
            has_results = self._member.ran and bool(self._task.kept)
            self._handover.begin(self._manifests, has_results=has_results, succeeded=self.succeeded)
        self.look()

    def _has_run(self) -> bool:
        return self.leader.gang.has_run if self.leader is not None else self._member.ran

    def look(self) -> None:
        """Leave, if this worker may, or look again."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._part_over:
            return
        now = time.monotonic()
        busy = self._holds and (is_copying() or (self._handover is not None and self._handover.moves))
        if busy:
            self._hold.renew(now)
        if self._may_leave(now, busy):
            self._finish()
            return
        pause = SOON if self._told else LOOK
        self._timer = self._loop.call_later(min(pause, self._task.hold / 4 or LOOK), self.look)

    def _may_leave(self, now: float, busy: bool) -> bool:
        if self._told:
            return not self._hands_over()
        return may_leave(
            over=not self._holds or self._hold.is_over(now),
            busy=busy,
            kept=self._handover is not None and self._handover.kept,
            leads=self.leader is not None,
            has_members=self.leader is not None and self.leader.has_members,
            is_led=self.is_led(),
        )

    def _hands_over(self) -> bool:
        """Whether results of this worker, or of members that it leads, may soon be with the keeper."""
        if self._handover is None or self._hold.released:
            return False
        leader = self.leader
        from_members = leader is not None and leader.keeper.connected and self._members_hold()
        return self._handover.active or from_members

    def _members_hold(self) -> bool:
        """Whether other workers hold results that are lost when this one, as their leader, ends the run."""
        leader = self.leader
        has_run = leader is not None and leader.has_members and leader.gang.has_run
        return has_run and self._task.hold > 0 and not self._hold.released

    def _finish(self) -> None:
        """Leave with the code of the verdict. A leader that is told to leave while its members hold results
        leaves with one that ends none of their pods. Its last act is to tell the keeper: its log goes with
        its pod, and the keeper's stays.
        """
        if self._leaving or self.final is None:
            return
        self._leaving = True
        left = not self._members_hold()
        if not left:
            self.final = INTERRUPTED if self.final else 0
        code = self.final
        self._report_part_over()
        if self.leader is None:
            self.leave(code)
        else:
            self.leader.keeper.tell(self._history.events(), left=left)
            self.leader.keeper.when_noted(lambda: self.leave(code))

    def _report_part_over(self, code: int | None = None) -> None:
        if self._in_pod and not self._part_over:
            self._part_over = True
            self._says.end_part(self.final if code is None else code, self._manifests)

    # At any time

    def code_of(self, verdict: dict[str, object]) -> int:
        """The exit code of the leader by a verdict, as far as is known by now."""
        for_good = self._told and self._task.leaves_for_good(self._worker)
        return code_of(verdict, for_good=for_good)

    def on_sigterm(self) -> None:
        """The kubelet or the supervisor ends this worker; while the run lasts, another may replace it. The
        leader, in whichever process, has all ranks told at once.
        """
        first, self._told = not self._told, True
        if self.final is not None and not self._in_pod:
            self.leave_after_ranks(INTERRUPTED)
        elif self.final is not None:
            if self.final == RUN_OVER and self.leader is not None and self.leader.gang.verdict is not None:
                self.final = self.code_of(self.leader.gang.verdict)
            self._loop.call_later(0.0 if self._handover is None else LAST_HANDOVER, self._finish)
            self.look()
        elif first:
            self._member.leaving = True
            self._give_until = time.monotonic() + self._task.grace + GIVING
            if self.leader is not None:
                self.leader.lose_own(TOLD_TO_LEAVE)
                self._loop.call_later(0, lambda: self._stop_own(self._leave_when_settled))
            else:
                self._take_leave()

    def _take_leave(self) -> None:
        """Tell the leader, which orders all ranks to be stopped, those of this worker too; without an answer
        they are stopped here.
        """
        for_good = self._member.needed and self._task.leaves_for_good(self._worker)
        code = LEFT_FOR_GOOD if for_good else INTERRUPTED
        self._member.when_ordered_to_stop = lambda: self.leave_after_ranks(code, TOLD_TO_LEAVE)
        self._member.send({"say": "bye", "reason": TOLD_TO_LEAVE})
        waits = self._member.busy and self.is_led()
        self._loop.call_later(ANSWER if waits else 0.0, self._member.when_ordered_to_stop)

    def leave_after_ranks(self, code: int, reason: str = "") -> None:
        """Stop the ranks, if the leader has not, then leave."""
        if not self._departing:
            self._departing = self._member.leaving = True
            self._stop_own(lambda: self._give_last(lambda: self.leave(code, reason)))

    def _stop_own(self, then: Callable[[], object]) -> None:
        self._member.stop_ranks(then, notice=stopping.leave(self._worker) if self._told else None)

    def _give_last(self, then: Callable[[], object]) -> None:
        """Have the checkpoints given that ranks have written until their end; its pod may go."""
        if self._member.checkpoints is None:
            then()
        else:
            left = self._give_until - time.monotonic() if self._told else LAST_HANDOVER
            self._member.checkpoints.finish(then, left)

    def leave(self, code: int, reason: str = "") -> None:
        """Leave at once: with the code of the verdict if there is one, else with `code`."""
        if self._left:
            return
        self._left = True
        self.code = code if self.final is None else self.final
        if self._in_pod:
            if self.code != GAVE_WAY:  # its part has not begun
                self._report_part_over(self.code)
            if self._task.repeat_state and self._holds:
                self._says.repeat()
            if reason and self.final is None:
                termination.write(self._task.termination, {"reason": reason})
        self.on_gone()

    def _leave_when_settled(self) -> None:
        """Wait for the gang, which may reach its verdict without this worker; then leave with its code."""
        assert self.leader is not None
        if self.final is not None:
            return
        if self.leader.gang.phase in ("stopping", "ending"):
            self._loop.call_later(0.02, self._leave_when_settled)
        else:
            self._give_last(self._leave_when_safe)

    def _leave_when_safe(self) -> None:
        """Leave when it is known which checkpoints are safe: the next leader has only the keeper's word."""
        assert self.leader is not None
        checkpointing = self.leader.checkpointing
        if self.final is not None:
            return
        if checkpointing is None or checkpointing.is_settled() or time.monotonic() >= self._give_until:
            self.leave(INTERRUPTED, TOLD_TO_LEAVE)
        else:
            self._loop.call_later(0.05, self._leave_when_safe)
