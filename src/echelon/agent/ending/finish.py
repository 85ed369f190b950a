"""How a worker ends: it keeps its results until the run's keeper has them, or for a time in which clients
fetch them (`hold.py`), writes its termination message and exits with the code that tells the supervisor or
the Job controller what to do.

The first reason to leave decides; later ones change nothing."""

from __future__ import annotations

import time

from echelon.agent.files.beside import is_copying
from echelon.agent.gang.member import Member
from echelon.agent.gang.verdict import code_of
from echelon.agent.hold import Hold, may_leave
from echelon.agent.loop import Loop, Timer
from echelon.agent.output import termination
from echelon.agent.output.sink import Sink
from echelon.agent.output.state_line import History
from echelon.agent.task import GAVE_WAY, INTERRUPTED, LEFT_FOR_GOOD, RUN_OVER, TOLD_TO_LEAVE, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.gang.leader import Leader
    from echelon.agent.keep.handover import Handover

LOOK, SOON = 1.0, 0.05  # seconds between two looks at whether it may leave; once it was told to
REPEAT_UNTIL = 30.0  # seconds by which the end of holding moves before it is stated again
FLUSH = 10.0  # seconds that a slow reader gets to take a worker's output before its end is reported
REPEAT_HELD = 5.0  # seconds between two state lines while results are held
LAST_HANDOVER = 20.0  # seconds that a handover may take when its pod is deleted, which gets 30


class Shutdown:
    """From the last rank's end to `on_gone()`. `leader` is set where this worker leads."""

    def __init__(
        self, loop: Loop, task: Task, worker: int, member: Member, sink: Sink, history: History, in_pod: bool
    ) -> None:
        self.code = 0
        self.final: int | None = None  # the exit code, once the run is over
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
        self._stated = 0.0  # the end of holding, as it was stated last
        self._alone = False  # the leader is gone, and this worker holds its results by itself
        self._manifests: list[dict[str, object]] = []
        self._timer: Timer | None = None  # of the next look at whether it may leave
        self._leave_by: float | None = None  # it was told to leave (SIGTERM), and may hand over until then
        self._part_over = self._leaving = self._left = False
        self._handover = self._prepare_handover() if task.keep else None  # to the run's keeper

    def _prepare_handover(self) -> Handover:
        from echelon.agent.keep.handover import Handover

        def say(reason: str) -> None:
            self._sink.event("unkept", worker=self._worker, reason=reason)

        handover = Handover(self._loop, self._task, self._worker, say)
        handover.on_kept = self._on_kept
        return handover

    # What clients, the leader and the keeper say

    def renew(self, client: str = "", seconds: float = 0.0) -> None:
        """A client gave an order: the time begins anew, and lasts while that client fetches."""
        self._hold.renew(time.monotonic(), client, seconds)
        if self._holds:
            self._state_end(REPEAT_UNTIL)

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

    def _on_kept(self) -> None:
        self._sink.event("worker-kept", worker=self._worker)
        self.look()

    # After the run's end

    @property
    def until(self) -> float | None:
        """The end of holding results; None if none are held."""
        return time.time() + self._hold.until - time.monotonic() if self._holds else None

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
            self._end_part([])
            return
        from echelon.agent.ending.stock import take_stock

        take_stock(self._loop, self._task.kept, self._end_part)

    def _end_part(self, found: list[dict[str, object]]) -> None:
        """Keep the results, if there can be any, and give them to the keeper."""
        self._manifests = [dict(each, worker=self._worker) for each in found]
        self._holds = self._task.hold > 0 and self._has_run() and not self._hold.released
        if self._leave_by is not None:
            self._leave_by = time.monotonic() + LAST_HANDOVER
        elif self._holds:
            self._hold.renew(time.monotonic())
            self._state_end(0.0)
            if self._task.repeat_state:
                self._loop.call_later(REPEAT_HELD, self._repeat_while_held)
        self._report_part_over()
        self._log_hold_alone()
        if self._holds and self._handover is not None:
            self._handover.begin(self._manifests, self._member.ran and bool(self._task.kept))
        self.look()

    def _has_run(self) -> bool:
        return self.leader.gang.has_run if self.leader is not None else self._member.ran

    def look(self) -> None:
        """Leave, if this worker may, or look again."""
        if self._timer is not None:
            self._timer.cancel()
        if self._leave_by is None and not self._part_over:
            return
        now = time.monotonic()
        busy = self._holds and (is_copying() or self._gives())
        if busy:
            self._hold.renew(now)
        if self._may_leave(now, busy):
            self._finish()
            return
        pause = LOOK if self._leave_by is None else SOON
        self._timer = self._loop.call_later(min(pause, self._task.hold / 4 or LOOK), self.look)

    def _may_leave(self, now: float, busy: bool) -> bool:
        if self._leave_by is not None:
            return now > self._leave_by or not self._hands_over()
        return may_leave(
            over=not self._holds or self._hold.is_over(now),
            busy=busy,
            kept=self._is_kept(),
            leads=self.leader is not None,
            has_members=self.leader is not None and self.leader.has_members,
            is_led=self.is_led(),
        )

    def _is_kept(self) -> bool:
        """Whether the keeper has what this worker made. To one that made nothing, as a leader that replaces
        another, members that did are on their way.
        """
        handover = self._handover
        if handover is None or not handover.kept or self._member.ran:
            return handover is not None and handover.kept
        from echelon.agent.gang.decisions import REUNION  # a member does not need it before

        return handover.kept_for > REUNION

    def _gives(self) -> bool:
        return self._handover is not None and self._handover.moves

    def _hands_over(self) -> bool:
        """Whether results of this worker, or of members that it leads, may soon be with the keeper."""
        if self._handover is None or self._hold.released:
            return False
        leader = self.leader
        from_members = leader is not None and leader.keeper.connected and self._members_hold()
        return not self._part_over or self._handover.active or from_members

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

    # What it says of the results that it holds

    def hold_alone(self, verdict: dict[str, object] | None) -> None:
        """The leader is gone, and the run is over: this worker holds its results by itself. From now on its
        own log has the verdict, since there is no leader's.
        """
        if self._alone or verdict is None or self._left:
            return
        self._alone = True
        self._history.note(dict(verdict, kind="verdict", at=round(time.time(), 3)))
        self._history.repeat(self._sink)
        self._log_hold_alone()

    def _log_hold_alone(self) -> None:
        until = self.until
        if self._alone and until is not None:
            clock = time.strftime("%H:%M:%S", time.gmtime(until))
            reason = "worker %d holds its results without worker 0, until %s UTC" % (self._worker, clock)
            now = round(time.time(), 3)
            event = {"kind": "holding", "worker": self._worker, "until": round(until, 3), "at": now}
            self._history.note(event)
            self._history.repeat(self._sink)
            self._sink.event("note", worker=self._worker, reason=reason)

    def _state_end(self, least: float) -> None:
        """State until when results are held, if that has moved by so many seconds."""
        until = self.until
        assert until is not None
        if until - self._stated > least:
            self._stated = until
            if self.leader is not None:
                self._sink.event("holding", until=round(until, 3))
            elif self._part_over:
                self._log_hold_alone()

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

    def code_of(self, verdict: dict[str, object]) -> int:
        """The exit code of the leader by a verdict, as far as is known by now."""
        for_good = self._leave_by is not None and self._task.leaves_for_good(self._worker)
        return code_of(verdict, for_good=for_good)

    def on_sigterm(self) -> None:
        """The kubelet or the supervisor ends this worker; while the run lasts, another may replace it."""
        self._leave_by = time.monotonic() + LAST_HANDOVER
        if not self._in_pod:
            self.leave_after_ranks(INTERRUPTED)
        elif self.final is not None:
            if self.final == RUN_OVER and self.leader is not None and self.leader.gang.verdict is not None:
                self.final = self.code_of(self.leader.gang.verdict)
            self.look()
        elif self.leader is not None:
            if not self._member.leaving:
                self._member.leaving = True
                self.leader.lose_own(TOLD_TO_LEAVE)
                # The kubelet's time begins now, however much an order to stop gave.
                self._member.stop_ranks(self._leave_when_settled, within=self._task.grace)
        else:
            self._member.send({"say": "bye", "reason": TOLD_TO_LEAVE})
            for_good = self._member.needed and self._task.leaves_for_good(self._worker)
            code = LEFT_FOR_GOOD if for_good else INTERRUPTED
            self.leave_after_ranks(code, TOLD_TO_LEAVE, within=self._task.grace)

    def leave_after_ranks(self, code: int, reason: str = "", within: float | None = None) -> None:
        """Stop the ranks, `within` so many seconds if that is said, then leave."""
        if not self._member.leaving:
            self._member.leaving = True
            self._member.stop_ranks(lambda: self.leave(code, reason), within=within)

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
