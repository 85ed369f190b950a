"""What the leader of a gang decides: pure, without sockets, clocks or processes.

`leader.py` passes on what it receives (`joined`, `ready`, `failed`, ...) with the time, and afterwards
carries out what is in `outbox` and `events`, until there is a `verdict`. A generation is one start of all
ranks; its number is the number of restarts so far. It goes through::

    gathering -> preparing -> running -> stopping -> gathering (a restart) or over

It has the workers that are there: at least the task's `least`, and all of them in a run of fixed size. When
one of those leaves, the generation ends and the others start again at once; those that come are taken in
later, `settle` seconds after the last start at the earliest.

Between stopping and over the end of a run may wait, in the phase `ending`, until what its ranks have left is
given. A gang that was never whole may leave instead (`giving_way.py`): gathering -> leaving.
"""

from __future__ import annotations

from echelon.agent import stopping
from echelon.agent.gang import giving_way
from echelon.agent.gang.generation import Generation, is_final, is_spared, none_left
from echelon.agent.gang.verdict import (
    LEFT,
    LOST,
    OUTCOMES,
    cause_of_absence,
    cause_of_loss,
    make_verdict,
    ranks_left,
)

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Collection

    from echelon.agent.task import Task

REUNION = 20.0  # seconds that members which hold results have to come to a leader that was replaced
MOST_ASKED = 8  # workers whose ranks are asked for their stacks before they are stopped
MOST_MISSING = 40  # sentences on output that could not be written down, which a verdict has
SETTLE = 1.0  # seconds to wait for the real cause when the first failure looks like a consequence of another
TOGETHER = 2.0  # seconds for the other workers to come, once enough are there


class Gang:
    """The state of the gang, and every decision about it. With `patience` it gives way if it is not whole
    after so many seconds.
    """

    def __init__(self, task: Task, now: float, patience: float | None = None) -> None:
        self._task = task
        self._most, self._least = len(task.places), task.least
        self.phase = "gathering"
        self.generation = 0
        self.last_started = -1
        self.spared = 0  # restarts so far that do not count: a worker was told to leave, nothing had failed
        self.outbox: list[tuple[int | None, dict[str, object]]] = []  # None is every worker
        self.events: list[dict[str, object]] = []
        self.verdict: dict[str, object] | None = None
        self.has_run = False  # ranks were started, under this or an earlier leader: there may be results
        # A start waits for `proceed`, and so does an end that is no success: there may be something to give,
        # or to get, before.
        self.waits = False
        self._start_waits = False
        self._end: tuple[str, dict[str, object] | None] = ("failed", None)  # the one that waits
        self._joined: set[int] = set()
        self._newcomers: set[int] = set()  # of these, those that are not part of the generation
        self._prepare_at: float | None = None  # when those that are there are prepared, if no others come
        self._started_at = now  # the newest generation
        self._told_members: frozenset[int] | None = None  # the members that were told last
        self._leaving: dict[int, str] = {}  # workers that were told to leave, and whose ranks have notice
        self.addresses: dict[int, str] = {}
        self._missing: list[str] = []  # what lacks lines that ranks have printed
        self._busy: set[int] = set()  # workers whose ranks run, or may run
        self._current = Generation(task)  # since the last preparation
        self._outcome: str | None = None  # set when the run must end after stopping
        self._reason: str | None = None
        self._final_cause: dict[str, object] | None = None  # a cause that no restart would remove
        self._hopeless = False  # no restart is left for the gang that is gathering
        self._signal: str | None = None  # the hardest that the ranks were ordered to be stopped with
        self._killed_at = now  # when those that are being stopped get SIGKILL
        self._leave_by = float("inf")  # when the ranks of workers that were told to leave must have ended
        self._last_cause: dict[str, object] | None = None
        self._deadline: float | None = now + task.join_timeout
        self._patience = patience
        self._gives_way_at = None if patience is None else now + patience
        self._began: float | None = None  # when the first generation started, under this or an earlier leader
        self._run_deadline: float | None = None

    # Messages of the workers

    def joined(
        self,
        worker: int,
        address: str,
        last_started: int,
        now: float,
        elapsed: float | None = None,
        spared: int = 0,
    ) -> None:
        """A worker has joined.

        `last_started` is the last generation it knows of, `spared` how many restarts it knows not to count,
        `elapsed` how long ago the first one started, if it knows; a replaced leader learns it this way.
        """
        if worker in self._joined or worker in self._leaving:
            self.lost(worker, "it was replaced", now)
        self._joined.add(worker)
        self.addresses[worker] = address
        self.last_started = max(self.last_started, last_started)
        self.spared = max(self.spared, spared)
        if elapsed is not None:
            self.has_run = True
            self._count_from(now - elapsed)
        if self.phase != "gathering":
            if worker not in self._current.members:
                self._newcomers.add(worker)
            return
        hopeless = none_left(self.last_started, self.spared, self._task)  # as far as is known by now
        all_there = len(self._joined) == self._most
        if hopeless and (all_there or not (self._task.hold or self._task.restarts)):
            self._give_up_hope()
        elif hopeless and not self._hopeless:
            # Only a replaced leader can learn this now. Others may know which restarts do not count. And
            # members that hold results know the verdict: if this leader left before they have come, they
            # would be lost, since its exit code ends all pods of the run.
            self._hopeless, self._deadline = True, now + REUNION
        elif self._hopeless and not hopeless:
            self._hopeless, self._deadline = False, now + self._task.join_timeout
        if not hopeless:
            self._prepare_if_enough(now, TOGETHER)

    @property
    def held(self) -> bool:
        """Whether a start or an end waits for `proceed`."""
        return self.ends or self._start_waits

    @property
    def ends(self) -> bool:
        """Whether the end of the run waits for `proceed`: what ranks have left may be given before."""
        return self.phase == "ending"

    def proceed(self, now: float) -> None:
        """The start that waits may go on, or the end that does."""
        if self.ends:
            self._close(*self._end)
        elif self._start_waits and self.phase == "gathering":
            self._begin(now)

    def carries(self, now: float) -> None:
        """A worker gets its checkpoints back, which may take longer than anything else before a start."""
        if self.phase == "preparing":
            self._deadline = now + self._task.join_timeout

    def set_address(self, worker: int, address: str) -> None:
        """Set or correct the address of a worker."""
        self.addresses[worker] = address

    def ready(self, worker: int, generation: int, ports: list[int], now: float) -> None:
        """A worker has reserved the requested ports."""
        if self.phase != "preparing" or generation != self.generation or worker not in self._current.members:
            return
        self._current.ports[worker] = ports
        if len(self._current.ports) == len(self._current.members):
            self._start(now)

    def failed(self, worker: int, generation: int, end: dict[str, object], now: float) -> None:
        """A rank failed."""
        if generation != self.generation or self.phase not in ("running", "stopping"):
            return
        if self.phase == "stopping":
            # Sent before the order to stop arrived there: it may be the unknown cause, or one more
            # consequence.
            self._current.add_end(end)
            return
        if self._current.does_not_matter(worker, end):
            return
        self._current.add_end(end)
        if end["consequence"]:
            self._deadline = min(self._deadline or now + SETTLE, now + SETTLE)
        else:
            self._stop(now)

    def done(self, worker: int, generation: int, now: float) -> None:
        """All ranks of a worker succeeded."""
        if generation != self.generation or self.phase != "running":
            return
        self._current.done.add(worker)
        self._busy.discard(worker)
        if self._current.has_succeeded():
            self._outcome = "succeeded"
            self._stop(now)

    def ended_well(self, generation: object, rank: object, seconds: object, now: float) -> None:
        """One rank ended with 0; others, of its worker or of another, may wait for it."""
        known = isinstance(rank, int) and isinstance(seconds, (int, float))
        if known and generation == self.generation and self.phase == "running":
            self._current.well[rank] = seconds  # type: ignore[index,assignment]
            if rank == 0 and self._current.has_chief:
                self._current.ends.clear()  # consequences only, or the ranks would have been stopped
                self._deadline = now + self._task.grace

    def sampled(self, worker: int, sample: dict[str, Any], now: float) -> None:
        """A worker's sample: its ranks may have been silent for long enough to be looked at."""
        if self.phase != "running":
            return
        self._current.stillness.note(worker, sample)
        self._current.lateness.note(worker, sample, now)
        self.quiet(worker, sample.get("idle"), now)
        self._watch(now)

    def looked(self, worker: int, generation: object, number: object, ranks: object, now: float) -> None:
        """What a worker has seen of its ranks."""
        if generation == self.generation and self.phase == "running":
            self._current.stillness.looked(worker, number, ranks)
            self._watch(now)

    def timed(self, worker: int, generation: object, number: object, ranks: object, now: float) -> None:
        """When a worker's ranks called their last collectives."""
        if generation == self.generation and self.phase == "running":
            self._current.lateness.told(worker, number, ranks)
            self._watch(now)

    def with_lateness(self, sample: dict[str, Any]) -> dict[str, Any]:
        """A worker's sample, with how late its ranks come to collectives."""
        return self._current.lateness.add_to(sample)

    def _watch(self, now: float) -> None:
        """Say what was seen of ranks that stand still, or end them; look again when it is time."""
        current = self._current
        stillness = current.stillness
        if self.phase != "running":
            return
        if stillness.goes_on(self._busy):
            stillness.said = None
            self.events.append({"kind": "moving"})
        found = stillness.finding(self._busy, current.gone(), now)
        if found is not None and stillness.said != ("stuck" if found[0] else "quiet"):
            stuck, finding = found
            sentence = stillness.say(stuck, finding, self._busy, now)
            if stuck and stillness.acts:
                current.stuck, current.hang = True, finding
                current.said = sentence
                reason = "%s (--stall): its ranks are ended" % sentence
                self.events.append({"kind": "note", "reason": reason})
                self._stop(now)
                return
            stillness.said = "stuck" if stuck else "quiet"
            event: dict[str, object] = {"kind": "still", "reason": sentence, "places": finding.lines}
            self.events.append(dict(event, trouble=stillness.said))
        if current.lateness.is_asking(now):
            return  # ranks are asked one thing at a time
        order = stillness.next_look(self._busy, now)
        if order is None and not stillness.is_looking():
            order = current.lateness.next_question(self._busy, now)
        if order is not None:
            order["generation"] = self.generation
            self.outbox.extend((worker, order) for worker in sorted(self._busy))

    def quiet(self, worker: int, seconds: object, now: float) -> None:
        """The running ranks of a worker have neither printed nor computed for so many seconds. If that is so
        of all workers for long enough, the gang is stuck.
        """
        limit = self._task.stall
        if limit is None or self.phase != "running" or not isinstance(seconds, (int, float)):
            return
        self._current.quiet[worker] = seconds
        if self._current.is_quiet(self._busy, limit) and not self._current.stillness.is_debugged():
            self._current.stuck = True
            self._current.hang = self._current.stillness.newest(self._current.gone())
            reason = "no rank has printed or computed for %g s (--stall): its ranks are ended" % limit
            self.events.append({"kind": "note", "reason": reason})
            self._stop(now)

    def stopped(
        self,
        worker: int,
        generation: int,
        now: float,
        places: object = None,
        killed: object = None,
        looks: object = None,
    ) -> None:
        """No process of the worker's ranks is left; `places` are where those were that were asked, `killed`
        the ranks that needed SIGKILL, each with the seconds after which it came, `looks` what was seen of
        ranks, or they have left, when a library of collectives gave up.
        """
        if generation != self.generation:
            return
        self._current.note_places(places)
        self._current.note_looks(looks)
        self._current.note_killed(killed)
        self._busy.discard(worker)
        self._say_left(worker)
        if self.phase == "stopping" and not self._busy:
            self._stopped_all(now)

    def unfit(self, cause: dict[str, object], now: float) -> None:
        """A worker cannot get what its ranks need, such as the code; no restart would change that."""
        if self.phase in ("ending", "over") or self._outcome is not None:
            return
        self._outcome, self._final_cause = "failed", cause
        self.events.append({"kind": "failed", "cause": cause})
        self._stop(now)

    def adopt(self, verdict: object) -> None:
        """Take over the verdict of an earlier leader, which a worker knows."""
        if isinstance(verdict, dict) and verdict.get("outcome") in OUTCOMES and self.phase != "over":
            self.phase, self._start_waits = "over", False
            self.has_run = True
            self.verdict = verdict
            self._order_finish()

    def lacking(self, note: dict[str, object]) -> dict[str, object]:
        """A worker's note on output that it could not write down, as the run's log has it; the verdict says
        it, too. Of a full disk one warning is enough, however many ranks find it so.
        """
        worker, what, reason = note.get("worker") or 0, note.get("missing"), note.get("reason")
        is_first = not self._missing
        told = ["worker %s: %s" % (worker, each) for each in (what if isinstance(what, list) else ())]
        self._missing += [each for each in told if each not in self._missing]
        said = "worker %s: %s" % (worker, reason) if is_first and reason else None
        return {"worker": worker, "reason": said, "missing": told}

    def leaves(self, worker: int, reason: str, now: float) -> None:
        """A worker was told to leave. While ranks run all of them get notice, its own too: at one moment, and
        with one deadline. It is waited for until its ranks have ended, and takes part in no other generation.
        """
        if worker not in self._busy or self.phase not in ("running", "stopping"):
            self.lost(worker, reason, now, LEFT)
            return
        if worker in self._leaving:
            return
        self._joined.discard(worker)
        self._leaving[worker] = reason
        grace = self._task.grace
        self._leave_by = min(self._leave_by, now + grace)  # however much an order to stop gives
        if self.phase == "stopping":
            if stopping.is_harder(stopping.TERMINATE, self._signal) or self._killed_at > now + grace:
                self._signal = stopping.TERMINATE
                self._order_busy_to_stop(now, stopping.TERMINATE, grace)
        elif self._current.needs(worker):
            self.events.append({"kind": "notice", "worker": worker, "reason": reason, "grace": grace})
            self._current.lost.append((worker, reason, LEFT))
            self._stop(now)
        else:
            order = {"say": "stop", "generation": self.generation, "signal": stopping.TERMINATE}
            self.outbox.append((worker, dict(order, within=grace, notice=stopping.leave(worker))))

    def _say_left(self, worker: int) -> None:
        reason = self._leaving.pop(worker, None)
        if reason is not None and self.phase != "over":
            self.events.append({"kind": "worker-lost", "worker": worker, "reason": reason})

    def lost(self, worker: int, reason: str, now: float, kind: str = LOST) -> None:
        """A worker is not there any more; `kind` is that of the cause that it may become."""
        if worker in self._leaving:
            self._busy.discard(worker)
            self._say_left(worker)
            if self.phase == "stopping" and not self._busy:
                self._stopped_all(now)
            return
        if worker not in self._joined:
            return
        self._joined.discard(worker)
        self._newcomers.discard(worker)
        self._busy.discard(worker)
        if self.phase == "over":
            return
        if self.phase == "gathering":
            self.events.append({"kind": "worker-lost", "worker": worker, "reason": reason})
            if len(self._joined) < self._least:
                self._wait_for_more(now)
            return
        if self.phase in ("preparing", "running") and self._current.needs(worker):
            self._current.lost.append((worker, reason, kind))
            self.events.append({"kind": "worker-lost", "worker": worker, "reason": reason})
            self._stop(now)
        elif self.phase == "stopping" and not self._busy:
            self._stopped_all(now)

    def stop_requested(
        self,
        outcome: str,
        reason: str,
        now: float,
        signal: str = stopping.TERMINATE,
        grace: float | None = None,
    ) -> None:
        """End the run on request, its ranks with `signal`, and with harder ones after `grace` seconds each
        (the task's, if None). Of a stop that is under way a harder signal cuts the time short, and the same
        one with a grace sets it anew.
        """
        if self.phase == "over":
            return
        if self.ends:  # its ranks have ended
            if signal == stopping.KILL:
                self._close(*self._end)
            return
        if self._outcome is None:
            self._outcome, self._reason = outcome, reason
            self.events.append({"kind": "stopping", "reason": reason})
        if self.phase != "stopping":
            self._stop(now, signal, grace)
        elif stopping.is_harder(signal, self._signal) or (grace is not None and signal == self._signal):
            self._signal = signal
            self._order_busy_to_stop(now, signal, grace)

    # Time

    def next_deadline(self) -> float | None:
        """When to call `tick`, if nothing happens before."""
        known = (self._deadline, self._run_deadline, self._gives_way_at, self._prepare_at, self._grows_at())
        times = [time for time in known if time is not None]
        return min(times) if times and self.phase != "over" else None

    def postpone(self, seconds: float) -> None:
        """Wait so much longer for the workers: the leader stood still, and they perhaps too."""
        if self._deadline is not None:
            self._deadline += seconds
        if self._gives_way_at is not None:
            self._gives_way_at += seconds

    def tick(self, now: float) -> None:
        """Act on deadlines that have passed."""
        if self._run_deadline is not None and now >= self._run_deadline:
            self._run_deadline = None
            self.stop_requested(
                "timed-out", "the time limit of %g s has passed" % (self._task.timeout or 0), now
            )
        if self._gives_way_at is not None and now >= self._gives_way_at:
            self._gives_way_at = None
            self._give_way()
        if self._prepare_at is not None and now >= self._prepare_at:
            self._prepare(now)
        grows_at = self._grows_at()
        if grows_at is not None and now >= grows_at:
            self._grow(now)
        if self._deadline is None or now < self._deadline:
            return
        self._deadline = None
        if self._hopeless and self.phase == "gathering":
            self._give_up_hope()
        elif self.phase == "preparing" and self._task.elastic:
            self._go_on_without_the_slow(now)
        elif self.phase == "gathering" and self._task.elastic and self.has_run:
            self._wait_for_more(now)
        elif self.phase in ("gathering", "preparing"):
            self._give_up_waiting()
        elif self.phase == "running":
            self._outcome = "succeeded" if self._current.chief_ended() else None
            self._stop(now)
        elif self.phase == "stopping":
            for worker in sorted(self._busy):  # its grace period is over, and it has not stopped
                self._joined.discard(worker)
                self._say_left(worker)
                self.outbox.append((worker, {"say": "leave"}))
            self._busy.clear()
            self._stopped_all(now)

    # Decisions

    def _give_way(self) -> None:
        """Leave, all together, if the gang was never whole. Nothing has run, and nothing has failed."""
        if self.phase != "gathering" or self.last_started >= 0 or self.has_run or self._start_waits:
            return
        self.phase, self._deadline = "leaving", None
        missing = sorted(set(range(self._most)) - self._joined)
        reason = giving_way.why(missing, self._patience or 0.0)
        self.events.append({"kind": "gave-way", "reason": reason})
        self.outbox.append((None, {"say": "give-way", "reason": reason}))

    def _count_from(self, began: float) -> None:
        """Count the time limit from the earliest known start: it does not restart with a new leader."""
        if self._began is None or began < self._began:
            self._began = began
            if self._task.timeout is not None:
                self._run_deadline = began + self._task.timeout

    def _prepare_if_enough(self, now: float, pause: float) -> None:
        """Prepare those that are there: at once if these are all, or, if they are enough, after a pause in
        which others may come.
        """
        if len(self._joined) == self._most or (pause == 0.0 and len(self._joined) >= self._least):
            self._prepare(now)
        elif len(self._joined) >= self._least and self._prepare_at is None:
            self._prepare_at = now + pause

    def _wait_for_more(self, now: float) -> None:
        """Fewer than the run needs are there. One that may be smaller waits for as long as it takes."""
        self._prepare_at, self._start_waits = None, False
        if not (self._task.elastic and self.has_run):
            self._deadline = self._deadline or now + self._task.join_timeout
        else:
            self._deadline = None
            there = len(self._joined)
            reason = "it waits for workers: %d %s there, and it needs %d" % (
                there,
                "is" if there == 1 else "are",
                self._least,
            )
            self.events.append({"kind": "waiting", "reason": reason})

    def _grows_at(self) -> float | None:
        """When those that have joined since the last start are taken in."""
        if self.phase != "running" or not self._newcomers or not self._current.may_grow():
            return None
        return self._started_at + self._task.settle

    def _grow(self, now: float) -> None:
        """Start again with those that have joined; all ranks get notice before."""
        self._current.grown = _who(self._newcomers, "joined")
        reason = self._current.grown
        self.events.append({"kind": "resizing", "reason": reason, "grace": self._task.grace})
        self._stop(now)

    def _go_on_without_the_slow(self, now: float) -> None:
        """Send those away that do not get ready; others may come in their place."""
        for worker in sorted(self._current.members - set(self._current.ports)):
            reason = "it did not get ready within %g s" % self._task.join_timeout
            self._joined.discard(worker)
            self._current.lost.append((worker, reason, LOST))
            self.events.append({"kind": "worker-lost", "worker": worker, "reason": reason})
            self.outbox.append((worker, {"say": "leave"}))
        self._stop(now)

    def _prepare(self, now: float) -> None:
        self._prepare_at = None
        if self.waits:
            self._start_waits, self._deadline = True, None
        else:
            self._begin(now)

    def _begin(self, now: float) -> None:
        self._start_waits, self._leave_by = False, float("inf")
        self.generation = self.last_started + 1
        self.phase, self._gives_way_at = "preparing", None
        if self.generation > 0:
            # A replaced leader has not seen what went wrong; it knows that its own worker was lost.
            cause = self._last_cause or cause_of_loss(self._current.lost, "its agent had to be replaced")
            self.events.append(
                {"kind": "restarting", "restart": self.generation, "spared": self.spared, "cause": cause}
            )
        self._current = Generation(self._task.of(self._joined))
        self._newcomers.clear()
        self._deadline = now + self._task.join_timeout
        order: dict[str, object] = {"say": "prepare", "generation": self.generation}
        if self._task.elastic:
            order["members"] = sorted(self._current.members)
            self._tell_members()
        self.outbox.append((None, order))

    def _tell_members(self) -> None:
        """Say who takes part from now on, and what has changed."""
        members, before = self._current.members, self._told_members
        if members == before:
            return
        changes = [] if before is None else [(members - before, "joined"), (before - members, "left")]
        reason = "; ".join(_who(who, how) for who, how in changes if who)
        event = {"kind": "resized", "restart": self.generation, "workers": sorted(members)}
        self.events.append(dict(event, reason=reason) if reason else event)
        self._told_members = members

    def _start(self, now: float) -> None:
        self.phase = "running"
        self.last_started = self.generation
        self.has_run = True
        self._busy = set(self._current.members)
        self._deadline, self._started_at = None, now
        if self._began is None:
            self._count_from(now)
        assert self._began is not None
        start = {
            "say": "start",
            "generation": self.generation,
            "elapsed": now - self._began,
            "spared": self.spared,
        }
        self.outbox.extend(self._current.start_orders(start, self.addresses))

    def _stop(self, now: float, signal: str = stopping.TERMINATE, grace: float | None = None) -> None:
        if self.phase in ("stopping", "over"):
            return
        self._signal = signal
        was_running = self.phase == "running"
        self.phase = "stopping"
        self._busy &= self._joined.union(self._leaving)
        if was_running and self._busy:
            current = self._current
            current.running = ranks_left(current.task.places, self._busy, current.well, current.ends)
            # Others may have waited for the ranks of a failed generation that ended well.
            asked = self._outcome == "timed-out" or (self._outcome is None and bool(current.well))
            stacks = "all" if current.stuck else "look" if current.gave_up() else "python" if asked else ""
            self._order_busy_to_stop(now, signal, grace, stacks)
        else:
            self._busy.clear()
            self._stopped_all(now)

    def _order_busy_to_stop(self, now: float, signal: str, grace: float | None, stacks: str = "") -> None:
        within = stopping.time_left(signal, self._task.grace if grace is None else grace)
        within = min(within, max(0.0, self._leave_by - now))
        self._killed_at = now + within
        self._deadline = self._killed_at + (10.0 if stacks in ("all", "look") else 5.0)
        order: dict[str, object] = {"say": "stop", "generation": self.generation, "signal": signal}
        order.update(within=within, notice=self._notice())
        for number, worker in enumerate(sorted(self._busy)):
            asked = stacks == "look" or (stacks and number < MOST_ASKED)
            self.outbox.append((worker, dict(order, stacks=stacks) if asked else order))

    def _notice(self) -> dict[str, object]:
        """Why the ranks are told to end."""
        if self._outcome == "stopped":
            return stopping.notice(stopping.STOP, self._reason)
        if self._outcome == "timed-out":
            return stopping.notice(stopping.TIMEOUT, None)
        if self._outcome == "succeeded":
            return stopping.notice(stopping.DONE, None)
        if self._current.grown is not None:
            return stopping.notice(stopping.RESIZE, self._current.grown)
        if self._current.ends_by_notice:
            return stopping.leave(self._current.lost[0][0])
        return stopping.notice(stopping.FAILURE, self._current.who_failed())

    def _stopped_all(self, now: float) -> None:
        peers = self._current.peers()
        if self._outcome is not None:
            if self._outcome == "timed-out" and peers:
                self._reason = "%s; %s" % (self._reason, peers)
            self._conclude(self._outcome, self._final_cause)
            return
        cause = self._current.cause()
        spared = is_spared(cause, self.spared, self._task)
        if not (spared and self._task.elastic):
            self.events.append({"kind": "failed", "cause": cause})
        if spared:
            self.spared += 1
            # For a leader that replaces us.
            self.outbox.append((None, {"say": "spared", "count": self.spared}))
        elif none_left(self.generation, self.spared, self._task) or is_final(cause, self._task):
            self._conclude("failed", cause)
            return
        # A generation that failed before its start counts too, or a worker that keeps dying would be waited
        # for without end.
        self.last_started = max(self.last_started, self.generation)
        self._last_cause = cause
        self.phase, self._deadline = "gathering", None
        if len(self._joined) < self._least:
            self._wait_for_more(now)
        else:
            self._prepare_if_enough(now, 0.0)

    def _give_up_hope(self) -> None:
        reason = "its agent had to be replaced, and no restart is left"
        self._conclude("failed", cause_of_loss(self._current.lost, reason))

    def _give_up_waiting(self) -> None:
        if self.phase == "gathering":
            missing = sorted(set(range(self._most)) - self._joined)
            verb = "never arrived" if self.last_started < 0 else "did not come back"
        else:
            missing = sorted(self._current.members - set(self._current.ports))
            verb = "did not get ready"
        cause = cause_of_absence(missing, verb, self._task.join_timeout)
        self.events.append({"kind": "failed", "cause": cause})
        self._conclude("failed", cause)

    def _conclude(self, outcome: str, cause: dict[str, object] | None) -> None:
        if self.waits and self.has_run and outcome != "succeeded":
            self._end, self.phase, self._deadline = (outcome, cause), "ending", None
        else:
            self._close(outcome, cause)

    def _close(self, outcome: str, cause: dict[str, object] | None) -> None:
        self.phase, self._start_waits = "over", False
        if self._reason and self._current.killed:
            from echelon.agent.ranks.report import describe_killed  # `later.py`

            self._reason = "%s; %s" % (self._reason, describe_killed(self._current.killed))
        self.verdict = make_verdict(outcome, self._reason, cause)
        if self._missing:
            more = len(self._missing) - MOST_MISSING
            others = ["the output of %d more" % more] if more > 0 else []
            self.verdict["missing"] = [*self._missing[:MOST_MISSING], *others]
        self._order_finish()

    def _order_finish(self) -> None:
        self.outbox.append((None, {"say": "finish", "verdict": self.verdict}))


def _who(workers: Collection[int], how: str) -> str:
    """Which workers have joined, or have left."""
    names = ", ".join(map(str, sorted(workers)))
    return "worker%s %s %s %s" % ("s" * (len(workers) > 1), names, "have" if len(workers) > 1 else "has", how)
