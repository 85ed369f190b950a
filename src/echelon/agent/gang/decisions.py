"""What the leader of a gang decides: pure, without sockets, clocks or processes.

`leader.py` tells it what it hears (`joined`, `ready`, `failed`, ...) and what time it is, and carries out
what is in `outbox` and `events` afterwards, until there is a `verdict`. A generation is one start of all
ranks; its number is the number of restarts so far. It goes through::

    gathering -> preparing -> running -> stopping -> gathering (a restart) or over
"""

from __future__ import annotations

from echelon.agent.gang.verdict import (
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
        self.outbox: list[tuple[int | None, dict[str, object]]] = []  # None is everybody
        self.events: list[dict[str, object]] = []
        self.verdict: dict[str, object] | None = None
        self.has_run = False  # ranks were started, under whichever leader: there may be results
        self._joined: set[int] = set()
        self._addresses: dict[int, str] = {}
        self._ports: dict[int, list[int]] = {}
        self._busy: set[int] = set()  # workers whose ranks run, or may run
        self._done: set[int] = set()
        self._ends: list[dict[str, object]] = []  # of this generation, in the order they were heard of
        self._lost: list[tuple[int, str, str]] = []  # worker, reason, kind
        self._outcome: str | None = None  # set when the run must end after stopping
        self._reason: str | None = None
        self._final_cause: dict[str, object] | None = None  # that no restart would mend
        self._at_once = False  # ranks get no time to save
        self._last_cause: dict[str, object] | None = None
        self._deadline: float | None = now + task.join_timeout
        self._began: float | None = None  # when the first generation started, under whichever leader
        self._run_deadline: float | None = None

    # What is heard

    def joined(
        self, worker: int, address: str, last_started: int, now: float, elapsed: float | None = None
    ) -> None:
        """A worker is there.

        `last_started` is the last generation it knows of, `elapsed` how long ago the first one started, if it
        knows; a leader that came back learns it so.
        """
        if worker in self._joined:
            self.lost(worker, "it was replaced", now)
        self._joined.add(worker)
        self._addresses[worker] = address
        self.last_started = max(self.last_started, last_started)
        if elapsed is not None:
            self.has_run = True
            self._count_from(now - elapsed)
        if self.phase != "gathering":
            return
        if self.last_started >= self._task.restarts:
            # Only a leader that took another's place can learn this now: nobody needs to be waited for.
            words = "its agent had to be replaced, and no restart is left"
            self._conclude("failed", cause_of_loss(self._lost, words))
        elif len(self._joined) == self._workers:
            self._prepare(now)

    def set_address(self, worker: int, address: str) -> None:
        """The address of a worker has become known, or known better."""
        self._addresses[worker] = address

    def ready(self, worker: int, generation: int, ports: list[int], now: float) -> None:
        """A worker has found the free ports it was asked for."""
        if self.phase != "preparing" or generation != self.generation:
            return
        self._ports[worker] = ports
        if len(self._ports) == self._workers:
            self._start(now)

    def failed(self, worker: int, generation: int, end: dict[str, object], now: float) -> None:
        """A rank ended as it should not."""
        if generation != self.generation or self.phase not in ("running", "stopping"):
            return
        if self.phase == "stopping":
            # Said before the word to stop arrived there: it may be the cause we did not know, or one more
            # consequence.
            self._ends.append(end)
            return
        if self._essential <= self._done and worker not in self._essential:
            return  # a parameter server that falls over when its workers have gone
        self._ends.append(end)
        if end["consequence"]:
            self._deadline = min(self._deadline or now + SETTLE, now + SETTLE)
        else:
            self._stop(now)

    def done(self, worker: int, generation: int, now: float) -> None:
        """All ranks of a worker ended well."""
        if generation != self.generation or self.phase != "running":
            return
        self._done.add(worker)
        self._busy.discard(worker)
        # A parameter server may have fallen over because the workers have gone.
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
        """A worker knows the verdict of a leader whose place this one took: it stays as it was."""
        if isinstance(verdict, dict) and verdict.get("outcome") in OUTCOMES and self.phase != "over":
            self.phase = "over"
            self.has_run = True
            self.verdict = verdict
            self._say_finish()

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
        """Somebody wants the run to end; `at_once`, if need be in the middle of a stop that takes long."""
        if self.phase == "over":
            return
        if self._outcome is None:
            self._outcome, self._reason = outcome, reason
            self.events.append({"kind": "stopping", "reason": reason})
        if at_once and not self._at_once:
            self._at_once = True
            if self.phase == "stopping":
                self._tell_busy_to_stop(now)
        self._stop(now)

    # Time

    def next_deadline(self) -> float | None:
        """When `tick` wants to be called, if nothing happens before."""
        times = [time for time in (self._deadline, self._run_deadline) if time is not None]
        return min(times) if times and self.phase != "over" else None

    def tick(self, now: float) -> None:
        """Act on what has not happened in time."""
        if self._run_deadline is not None and now >= self._run_deadline:
            self._run_deadline = None
            self.stop_requested(
                "timed-out", "the time limit of %g s has passed" % (self._task.timeout or 0), now
            )
        if self._deadline is None or now < self._deadline:
            return
        self._deadline = None
        if self.phase in ("gathering", "preparing"):
            self._give_up_waiting()
        elif self.phase == "running":
            self._stop(now)
        elif self.phase == "stopping":
            for worker in sorted(self._busy):  # it was told to stop, had its grace, and says nothing
                self._joined.discard(worker)
                self.outbox.append((worker, {"say": "leave"}))
            self._busy.clear()
            self._stopped_all(now)

    # Decisions

    def _count_from(self, began: float) -> None:
        """The run began then, or earlier: its time limit does not begin anew with a new leader."""
        if self._began is None or began < self._began:
            self._began = began
            if self._task.timeout is not None:
                self._run_deadline = began + self._task.timeout

    def _prepare(self, now: float) -> None:
        self.generation = self.last_started + 1
        self.phase = "preparing"
        if self.generation > 0:
            # A leader that took another's place has not seen what went wrong; it knows that its own worker
            # was lost.
            cause = self._last_cause or cause_of_loss(self._lost, "its agent had to be replaced")
            self.events.append({"kind": "restarting", "restart": self.generation, "cause": cause})
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
        }
        self.outbox.append((None, start))

    def _stop(self, now: float) -> None:
        if self.phase in ("stopping", "over"):
            return
        was_running = self.phase == "running"
        self.phase = "stopping"
        self._busy &= self._joined
        if was_running and self._busy:
            self._tell_busy_to_stop(now)
        else:
            self._busy.clear()
            self._stopped_all(now)

    def _tell_busy_to_stop(self, now: float) -> None:
        self._deadline = now + (0.0 if self._at_once else self._task.grace) + 5.0
        for worker in sorted(self._busy):
            self.outbox.append((worker, {"say": "stop", "generation": self.generation, "now": self._at_once}))

    def _stopped_all(self, now: float) -> None:
        if self._outcome is not None:
            self._conclude(self._outcome, self._final_cause)
            return
        cause = find_cause(self._ends, self._lost)
        self.events.append({"kind": "failed", "cause": cause})
        if self.generation >= self._task.restarts:
            self._conclude("failed", cause)
            return
        # A generation that fell apart before its start counts too, or a worker that keeps dying would be
        # waited for for ever.
        self.last_started = max(self.last_started, self.generation)
        self._last_cause = cause
        self.phase = "gathering"
        self._deadline = now + self._task.join_timeout
        if len(self._joined) == self._workers:
            self._prepare(now)

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
        self._say_finish()

    def _say_finish(self) -> None:
        self.outbox.append((None, {"say": "finish", "verdict": self.verdict}))
