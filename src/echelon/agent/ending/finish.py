"""How a worker ends: it holds its results until they are fetched, writes its termination message and exits
with the code that tells the supervisor or the Job controller what to do.

The first reason to leave decides; later ones change nothing."""

from __future__ import annotations

import time

from echelon.agent.files.beside import is_copying
from echelon.agent.gang.member import Member
from echelon.agent.gang.verdict import code_of
from echelon.agent.linger import Linger, try_api_server
from echelon.agent.loop import Loop
from echelon.agent.output import termination
from echelon.agent.output.sink import Sink
from echelon.agent.output.state_line import History
from echelon.agent.task import GAVE_WAY, INTERRUPTED, LEFT_FOR_GOOD, RUN_OVER, TOLD_TO_LEAVE, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.gang.leader import Leader
    from echelon.agent.keep.handover import Handover

LOOK = 1.0  # seconds between two looks for a copy that runs here
API_PERIOD = 5.0  # seconds between two connections to the API server while results are held
REPEAT_UNTIL = 30.0  # seconds by which the end of holding moves before it is stated again
FLUSH = 10.0  # seconds that a slow reader gets to take a worker's output before its end is reported
REPEAT_HELD = 5.0  # seconds between two state lines while results are held
STILL_FETCHED = 30.0  # seconds that a worker whose results are with the keeper waits for who fetches from it
LAST_HANDOVER = 20.0  # seconds that a handover may take when its pod is deleted, which gets 30


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
        self._alone = False  # the leader is gone, and this worker holds its results by itself
        self._manifests: list[dict[str, object]] = []
        self._linger = Linger(task.hold)
        self._told = 0.0  # the last end of holding that was stated
        self.handover = self._prepare_handover() if task.keep else None  # to the run's keeper
        # Whether a leader is connected, which will release this member; and what tells it something.
        self.is_led: Callable[[], bool] = lambda: False
        self.tell_leader: Callable[[dict[str, object]], object] = lambda _message: None
        self._released = self._part_over = self._leaving = self._left = self._terminated = False

    def _prepare_handover(self) -> Handover:
        from echelon.agent.keep.handover import Handover

        def say(reason: str) -> None:
            self._sink.event("unkept", worker=self._worker, reason=reason)

        handover = Handover(self._loop, self._task, self._worker, say)
        handover.on_kept = self.on_kept
        return handover

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
        from echelon.agent.ending.stock import take_stock

        take_stock(self._loop, self._task.kept, self._hold)

    def contact(self) -> None:
        """A client gave an order: the time to linger begins again."""
        self._linger.contact()
        if self.until is not None:
            self._tell_until(REPEAT_UNTIL)

    def attend(self, client: str, seconds: float, told_by_leader: bool = False) -> None:
        """A client fetches from worker after worker, and all of them stay meanwhile. The agent that is
        told of it tells the rest of the gang: the others must know when that agent is lost.
        """
        self._linger.attend(client, seconds, time.monotonic())
        visit: dict[str, object] = {"client": client, "seconds": seconds}
        if self.leader is not None:
            self.leader.send_all("attend", visit)
        elif not told_by_leader:
            self.tell_leader(dict(visit, say="attended"))
        if self.until is not None:
            self._finish_if_free()

    def visits(self) -> dict[str, float]:
        """The clients that fetch from the gang, each with the seconds that it may still take."""
        return self._linger.visits(time.monotonic())

    def held_for(self) -> float | None:
        """The seconds that are left of holding results; None if none are held."""
        return None if self.until is None else max(0.0, min(self._linger.left, self._task.hold))

    def hold_with(self, seconds: float) -> None:
        """A member of an earlier leader has held its results, and does so for as long; what it has told of
        clients that fetch comes by itself.
        """
        if self.until is not None and seconds > self._linger.left:
            self._linger.hold_for(seconds)

    def release(self, client: str = "") -> None:
        """The results were fetched; another client that is still fetching them is waited for."""
        self._released = True
        self.attend(client, 0.0)

    def release_by_leader(self) -> None:
        """The leader, which every client's visit was told to, lets its members go."""
        self._linger.dismiss()
        self._released = True
        if self.until is not None:
            self._finish_if_free()

    def is_copying(self) -> bool:
        """Whether files are copied from this worker, which its leader waits for."""
        return self.until is not None and is_copying()

    def is_giving(self) -> bool:
        """Whether results are on their way to the keeper: this worker's or, as far as is known, another's."""
        own = self.handover is not None and self.handover.moves
        return own or (self.leader is not None and self.leader.is_giving())

    def meet_keeper(self, address: object, port: object) -> None:
        """There is a keeper that takes results."""
        if self.handover is not None:
            self.handover.meet(address, port)

    def on_kept(self) -> None:
        """The keeper has this worker's results."""
        self._sink.event("worker-kept", worker=self._worker)
        self._finish_if_free()

    def _finish_if_free(self) -> None:
        attended = self._linger.is_attended(time.monotonic()) or self._is_busy()
        if (self._released and not attended) or self._may_leave_to_keeper(attended):
            self.finish()

    def _may_leave_to_keeper(self, attended: bool) -> bool:
        """Whether the keeper has all that this worker stays for. Who fetches from it right now gets a while,
        and then goes on with the keeper; the leader stays for its members.
        """
        if self.handover is None or not self.handover.kept:
            return False
        if self.leader is None and not self.is_led():
            return False  # the leader that replaces a lost one learns from its members how the run ended
        if self.leader is not None and self.leader.has_members:
            return False
        from echelon.agent.gang.decisions import REUNION  # a member does not need it before

        if not self._member.ran and self.handover.kept_for < REUNION:
            return False  # members of the leader that this one replaces are on their way
        return not attended or self.handover.kept_for > STILL_FETCHED

    def _is_busy(self) -> bool:
        """Whether files are copied here or, as far as the leader knows, from another worker."""
        return is_copying() or (self.leader is not None and self.leader.is_copying())

    def finish(self) -> None:
        """Leave with the code of the verdict; the leader leaves last."""
        if self._leaving or self.final is None:
            return
        self._leaving = True
        code = self.final
        if self._terminated and self._members_hold():
            self._leave_to_members()
        elif self.leader is not None:
            self.leader.send_all("release")
            self.leader.leave(lambda: self._tell_keeper_and(lambda: self.leave(code)))
        else:
            self.leave(code)

    def _tell_keeper_and(self, then: Callable[[], object], left: bool = True) -> None:
        """The leader's last act: its log goes with its pod, and the keeper's stays."""
        assert self.leader is not None
        self._report_part_over()
        self.leader.keeper.tell(self._history.events(), left=left)
        self.leader.keeper.when_noted(then)

    def _hold(self, found: list[dict[str, object]] | None = None) -> None:
        """Hold the results until they are fetched, if there can be any; else leave."""
        self._manifests = [dict(each, worker=self._worker) for each in found or ()]
        some = self.leader.gang.has_run if self.leader is not None else self._member.ran
        if self._task.hold > 0 and some and not self._released and not self._terminated:
            self._linger.contact()
            if self.leader is not None and self.leader.held_for is not None and not self.visits():
                # What its members hold; a leader that was replaced has nothing of its own.
                self._linger.hold_for(self.leader.held_for)
            self._tell_until(0.0)
            if self._task.repeat_state:
                self._loop.call_later(REPEAT_HELD, self._repeat_while_held)
            self._look()
            self._count()
            self._report_part_over()
            self._log_hold_alone()
            self._begin_handover()
        elif self._terminated and self.handover is not None and not self._released:
            self._report_part_over()
            self._begin_handover()
            self._leave_terminated()
        else:
            self._report_part_over()
            self.finish()

    def _begin_handover(self) -> None:
        if self.handover is not None:
            self.handover.begin(self._manifests, self._member.ran and bool(self._task.kept))

    def hold_alone(self, verdict: dict[str, object] | None) -> None:
        """The leader is gone, and the run is over: this worker holds its results by itself. From now on its
        own log has the verdict, since there is no leader's.
        """
        if self._alone or verdict is None or self._left:
            return
        self._alone = True
        self._history.note(dict(verdict, kind="verdict", at=round(time.time(), 3)))
        self._history.repeat(self._sink)
        if self.until is not None:
            self._log_hold_alone()

    def _log_hold_alone(self) -> None:
        if self._alone and self.until is not None:
            until = round(self.until, 3)
            clock = time.strftime("%H:%M:%S", time.gmtime(until))
            reason = "worker %d holds its results without worker 0, until %s UTC" % (self._worker, clock)
            now = round(time.time(), 3)
            self._history.note({"kind": "holding", "worker": self._worker, "until": until, "at": now})
            self._history.repeat(self._sink)
            self._sink.event("note", worker=self._worker, reason=reason)

    def _members_hold(self) -> bool:
        """Whether other workers hold results that are lost when this one, as their leader, ends the run."""
        leader = self.leader
        return leader is not None and leader.has_members and leader.gang.has_run and self._task.hold > 0

    def _leave_to_members(self) -> None:
        """Leave before the members, which hold their results on: with a code that ends none of their pods."""
        code = self.final = INTERRUPTED if self.final else 0
        self._tell_keeper_and(lambda: self.leave(code), left=False)

    def _tell_until(self, least: float) -> None:
        """State until when results are held, if that has moved by so many seconds."""
        until = time.time() + self._linger.left
        moved = self.until is None or until - self._told > least
        self.until = until
        if moved:
            self._told = until
            if self.leader is not None:
                self._sink.event("holding", until=round(until, 3))
            elif self._part_over:
                self._log_hold_alone()

    def _look(self) -> None:
        """See whether a copy runs here, or the results may be given up."""
        if self._is_busy() or self.is_led() or self.is_giving():
            self._linger.contact()
        self._finish_if_free()
        self._loop.call_later(min(LOOK, self._task.hold / 4), self._look)

    def _count(self) -> None:
        """Count the time to linger, from one connection to the API server to the next."""
        period = min(API_PERIOD, max(0.1, self._task.hold / 4))

        def counted(reachable: bool) -> None:
            busy = self._is_busy() or self.is_led() or self.is_giving()
            self._linger.pass_time(time.monotonic(), busy, reachable)
            if self._linger.over:
                self.finish()
            else:
                self._loop.call_later(period, self._count)

        try_api_server(self._loop, period, counted)

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
        return code_of(verdict, for_good=self._terminated and self._task.leaves_for_good(self._worker))

    def on_sigterm(self) -> None:
        """The kubelet or the supervisor ends this worker; while the run lasts, another may replace it."""
        self._terminated = True
        if not self._in_pod:
            self.leave_after_ranks(INTERRUPTED)
        elif self.final is not None:
            if self.final == RUN_OVER and self.leader is not None and self.leader.gang.verdict is not None:
                self.final = self.code_of(self.leader.gang.verdict)
            self._leave_terminated()
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

    def _leave_terminated(self) -> None:
        """The kubelet ends this worker after the run's end: leave, unless results go to the keeper now."""
        deadline = time.monotonic() + LAST_HANDOVER

        def look() -> None:
            if self._hands_over() and time.monotonic() < deadline:
                self._loop.call_later(0.05, look)
            else:
                self._leave_at_last()

        look()

    def _hands_over(self) -> bool:
        """Whether results of this worker, or of members that it leads, may soon be with the keeper."""
        if self.handover is None or self._released or self._left:
            return False
        leader = self.leader
        from_members = leader is not None and leader.keeper.connected and self._members_hold()
        return self.handover.active or from_members

    def _leave_at_last(self) -> None:
        if self._left or self.final is None:
            return
        if not self._released and self._members_hold():
            self._leave_to_members()
            return
        if self.leader is None:
            self.leave(self.final)
            return
        code = self.final
        self.leader.send_all("release")
        self._tell_keeper_and(lambda: self.leave(code))

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
