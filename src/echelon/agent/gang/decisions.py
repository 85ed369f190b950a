"""What the leader of a gang decides: pure, without sockets, clocks or processes.

`leader.py` passes on what it receives (`joined`, `ready`, `failed`, ...) with the time, and afterwards
carries out what is in `outbox` and `events`, until there is a `verdict`. A generation is one start of all
ranks; its number is the number of restarts so far. It goes through::

    gathering -> preparing -> running -> stopping -> gathering (a restart) or over
"""

from __future__ import annotations

from echelon.agent.gang.verdict import (
    LEFT,
    LOST,
    OUTCOMES,
    cause_of_absence,
    cause_of_loss,
    find_cause,
    make_verdict,
)

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from echelon.agent.task import Task

REUNION = 20.0  # seconds that members which hold results have to come to a leader that was replaced
MOST_SPARED = 100  # restarts of a run that do not count, so that it ends in a cluster that evicts without end
SETTLE = 1.0  # seconds to wait for the real cause when the first failure looks like a consequence of another


class Gang:
    """The state of the gang, and every decision about it."""

    def __init__(self, task: Task, now: float) -> None:
        self._task = task
        self._workers = len(task.places)
        self._essential = {place.worker for place in task.places if place.essential}
        self.phase = "gathering"
        self.generation = 0
        self.last_started = -1
        self.spared = 0  # restarts so far that do not count: a worker was told to leave, nothing had failed
        self.outbox: list[tuple[int | None, dict[str, object]]] = []  # None is every worker
        self.events: list[dict[str, object]] = []
        self.verdict: dict[str, object] | None = None
        self.has_run = False  # ranks were started, under this or an earlier leader: there may be results
        self._joined: set[int] = set()
        self._addresses: dict[int, str] = {}
        self._ports: dict[int, list[int]] = {}
        self._busy: set[int] = set()  # workers whose ranks run, or may run
        self._done: set[int] = set()
        self._ends: list[dict[str, object]] = []  # of this generation, in the order of arrival
        self._lost: list[tuple[int, str, str]] = []  # worker, reason, kind
        self._outcome: str | None = None  # set when the run must end after stopping
        self._reason: str | None = None
        self._final_cause: dict[str, object] | None = None  # a cause that no restart would remove
        self._hopeless = False  # no restart is left for the gang that is gathering
        self._at_once = False  # ranks get no time to save
        self._last_cause: dict[str, object] | None = None
        self._deadline: float | None = now + task.join_timeout
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
        if worker in self._joined:
            self.lost(worker, "it was replaced", now)
        self._joined.add(worker)
        self._addresses[worker] = address
        self.last_started = max(self.last_started, last_started)
        self.spared = max(self.spared, spared)
        if elapsed is not None:
            self.has_run = True
            self._count_from(now - elapsed)
        if self.phase != "gathering":
            return
        hopeless, all_there = self._is_hopeless(), len(self._joined) == self._workers
        if hopeless and (all_there or not (self._task.hold or self._task.restarts)):
            self._give_up_hope()
        elif hopeless and not self._hopeless:
            # Only a replaced leader can learn this now. Others may know which restarts do not count. And
            # members that hold results know the verdict: if this leader left before they have come, they
            # would be lost, since its exit code ends all pods of the run.
            self._hopeless, self._deadline = True, now + REUNION
        elif self._hopeless and not hopeless:
            self._hopeless, self._deadline = False, now + self._task.join_timeout
        if all_there and not hopeless:
            self._prepare(now)

    def set_address(self, worker: int, address: str) -> None:
        """Set or correct the address of a worker."""
        self._addresses[worker] = address

    def ready(self, worker: int, generation: int, ports: list[int], now: float) -> None:
        """A worker has reserved the requested ports."""
        if self.phase != "preparing" or generation != self.generation:
            return
        self._ports[worker] = ports
        if len(self._ports) == self._workers:
            self._start(now)

    def failed(self, worker: int, generation: int, end: dict[str, object], now: float) -> None:
        """A rank failed."""
        if generation != self.generation or self.phase not in ("running", "stopping"):
            return
        if self.phase == "stopping":
            # Sent before the order to stop arrived there: it may be the unknown cause, or one more
            # consequence.
            self._ends.append(end)
            return
        if self._essential <= self._done and worker not in self._essential:
            return  # a parameter server that fails when its workers have ended
        self._ends.append(end)
        if end["consequence"]:
            self._deadline = min(self._deadline or now + SETTLE, now + SETTLE)
        else:
            self._stop(now)

    def done(self, worker: int, generation: int, now: float) -> None:
        """All ranks of a worker succeeded."""
        if generation != self.generation or self.phase != "running":
            return
        self._done.add(worker)
        self._busy.discard(worker)
        # A parameter server may have failed because the workers have ended.
        ends = [end for end in self._ends if end["worker"] in self._essential or not end["consequence"]]
        if self._essential <= self._done and not ends:
            self._outcome = "succeeded"
            self._stop(now)

    def stopped(self, worker: int, generation: int, now: float) -> None:
        """No process of the worker's ranks is left."""
        if generation != self.generation:
            return
        self._busy.discard(worker)
        if self.phase == "stopping" and not self._busy:
            self._stopped_all(now)

    def unfit(self, cause: dict[str, object], now: float) -> None:
        """A worker cannot get what its ranks need, such as the code; no restart would change that."""
        if self.phase == "over" or self._outcome is not None:
            return
        self._outcome, self._final_cause = "failed", cause
        self.events.append({"kind": "failed", "cause": cause})
        self._stop(now)

    def adopt(self, verdict: object) -> None:
        """Take over the verdict of an earlier leader, which a worker knows."""
        if isinstance(verdict, dict) and verdict.get("outcome") in OUTCOMES and self.phase != "over":
            self.phase = "over"
            self.has_run = True
            self.verdict = verdict
            self._order_finish()

    def lost(self, worker: int, reason: str, now: float, kind: str = LOST) -> None:
        """A worker is not there any more; `kind` is that of the cause that it may become."""
        if worker not in self._joined:
            return
        self._joined.discard(worker)
        self._busy.discard(worker)
        if self.phase == "over":
            return
        if self.phase == "gathering":
            self.events.append({"kind": "worker-lost", "worker": worker, "reason": reason})
            return
        needed = not (self._essential <= self._done or worker in self._done)
        if self.phase in ("preparing", "running") and needed:
            self._lost.append((worker, reason, kind))
            self.events.append({"kind": "worker-lost", "worker": worker, "reason": reason})
            self._stop(now)
        elif self.phase == "stopping" and not self._busy:
            self._stopped_all(now)

    def stop_requested(self, outcome: str, reason: str, now: float, at_once: bool = False) -> None:
        """End the run on request; `at_once` also cuts short a stop that is under way."""
        if self.phase == "over":
            return
        if self._outcome is None:
            self._outcome, self._reason = outcome, reason
            self.events.append({"kind": "stopping", "reason": reason})
        if at_once and not self._at_once:
            self._at_once = True
            if self.phase == "stopping":
                self._order_busy_to_stop(now)
        self._stop(now)

    # Time

    def next_deadline(self) -> float | None:
        """When to call `tick`, if nothing happens before."""
        times = [time for time in (self._deadline, self._run_deadline) if time is not None]
        return min(times) if times and self.phase != "over" else None

    def postpone(self, seconds: float) -> None:
        """Wait so much longer for the workers: the leader stood still, and they perhaps too."""
        if self._deadline is not None:
            self._deadline += seconds

    def tick(self, now: float) -> None:
        """Act on deadlines that have passed."""
        if self._run_deadline is not None and now >= self._run_deadline:
            self._run_deadline = None
            self.stop_requested(
                "timed-out", "the time limit of %g s has passed" % (self._task.timeout or 0), now
            )
        if self._deadline is None or now < self._deadline:
            return
        self._deadline = None
        if self._hopeless and self.phase == "gathering":
            self._give_up_hope()
        elif self.phase in ("gathering", "preparing"):
            self._give_up_waiting()
        elif self.phase == "running":
            self._stop(now)
        elif self.phase == "stopping":
            for worker in sorted(self._busy):  # its grace period is over, and it has not stopped
                self._joined.discard(worker)
                self.outbox.append((worker, {"say": "leave"}))
            self._busy.clear()
            self._stopped_all(now)

    # Decisions

    def _count_from(self, began: float) -> None:
        """Count the time limit from the earliest known start: it does not restart with a new leader."""
        if self._began is None or began < self._began:
            self._began = began
            if self._task.timeout is not None:
                self._run_deadline = began + self._task.timeout

    def _prepare(self, now: float) -> None:
        self.generation = self.last_started + 1
        self.phase = "preparing"
        if self.generation > 0:
            # A replaced leader has not seen what went wrong; it knows that its own worker was lost.
            cause = self._last_cause or cause_of_loss(self._lost, "its agent had to be replaced")
            self.events.append(
                {"kind": "restarting", "restart": self.generation, "spared": self.spared, "cause": cause}
            )
        self._ports.clear()
        self._done.clear()
        self._ends.clear()
        self._lost.clear()
        self._deadline = now + self._task.join_timeout
        self.outbox.append((None, {"say": "prepare", "generation": self.generation}))

    def _start(self, now: float) -> None:
        self.phase = "running"
        self.last_started = self.generation
        self.has_run = True
        self._busy = set(self._joined)
        self._deadline = None
        if self._began is None:
            self._count_from(now)
        assert self._began is not None
        order = range(self._workers)
        start = {
            "say": "start",
            "generation": self.generation,
            "addresses": [self._addresses[worker] for worker in order],
            "ports": [self._ports[worker] for worker in order],
            "elapsed": now - self._began,
            "spared": self.spared,
        }
        self.outbox.append((None, start))

    def _stop(self, now: float) -> None:
        if self.phase in ("stopping", "over"):
            return
        was_running = self.phase == "running"
        self.phase = "stopping"
        self._busy &= self._joined
        if was_running and self._busy:
            self._order_busy_to_stop(now)
        else:
            self._busy.clear()
            self._stopped_all(now)

    def _order_busy_to_stop(self, now: float) -> None:
        self._deadline = now + (0.0 if self._at_once else self._task.grace) + 5.0
        for worker in sorted(self._busy):
            self.outbox.append((worker, {"say": "stop", "generation": self.generation, "now": self._at_once}))

    def _stopped_all(self, now: float) -> None:
        if self._outcome is not None:
            self._conclude(self._outcome, self._final_cause)
            return
        cause = find_cause(self._ends, self._lost)
        self.events.append({"kind": "failed", "cause": cause})
        if self._is_spared(cause):
            self.spared += 1
            self.outbox.append(
                (None, {"say": "spared", "count": self.spared})
            )  # for a leader that replaces us
        elif self._counted(self.generation) >= self._task.restarts:
            self._conclude("failed", cause)
            return
        # A generation that failed before its start counts too, or a worker that keeps dying would be waited
        # for without end.
        self.last_started = max(self.last_started, self.generation)
        self._last_cause = cause
        self.phase = "gathering"
        self._deadline = now + self._task.join_timeout
        if len(self._joined) == self._workers:
            self._prepare(now)

    def _is_spared(self, cause: dict[str, object]) -> bool:
        """Whether the restart after this cause does not count: the kubelet told a worker to leave, as when
        its pod is evicted or preempted or its node is drained. A run without restarts is never restarted.
        """
        return cause.get("kind") == LEFT and self._task.restarts > 0 and self.spared < MOST_SPARED

    def _is_hopeless(self) -> bool:
        """Whether no restart is left for the gang that is gathering, as far as is known by now."""
        return self._counted(self.last_started) >= self._task.restarts

    def _counted(self, generation: int) -> int:
        """How many of the restarts up to a generation count."""
        return generation - (min(self.spared, MOST_SPARED) if self._task.restarts else 0)

    def _give_up_hope(self) -> None:
        reason = "its agent had to be replaced, and no restart is left"
        self._conclude("failed", cause_of_loss(self._lost, reason))

    def _give_up_waiting(self) -> None:
        if self.phase == "gathering":
            missing = sorted(set(range(self._workers)) - self._joined)
            verb = "never arrived" if self.last_started < 0 else "did not come back"
        else:
            missing = sorted(self._joined - set(self._ports))
            verb = "did not get ready"
        cause = cause_of_absence(missing, verb, self._task.join_timeout)
        self.events.append({"kind": "failed", "cause": cause})
        self._conclude("failed", cause)

    def _conclude(self, outcome: str, cause: dict[str, object] | None) -> None:
        self.phase = "over"
        self.verdict = make_verdict(outcome, self._reason, cause)
        self._order_finish()

    def _order_finish(self) -> None:
        self.outbox.append((None, {"say": "finish", "verdict": self.verdict}))
