"""The manager: serves the queue of a whole cluster while laptops are closed.

In every round it looks at all that waits and all that is free, lets the policy decide
(`echelon.queueing.policy`), admits what may start, one run after the other in the policy's order, writes to
the others where they stand, and does the upkeep that runs need. It keeps nothing in memory that a decision
depends on: a replica that takes over, or the same one after a crash, decides the same from what is in the
cluster. Each admission states the version of the run that it was decided on, so none happens twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, SimpleQueue

from echelon.engines.abilities import Dispatch, QueueSnapshot
from echelon.engines.base import ShapeKept, Taken
from echelon.errors import EchelonError, Unreachable
from echelon.model.queue import Place, QueuedRun, Verdict
from echelon.model.world import World
from echelon.queueing.policy import decide, in_order, places
from echelon.queueing.room import ClusterRoom

LOOK = 1.0  # seconds between two rounds, if a round is short
_SHARE = 0.2  # of the time is spent in rounds at most: a large cluster is not asked all the time
_LONGEST = 30.0  # seconds between two rounds at most
_TELL = 15.0  # seconds after which a run may be told again where it stands
_TEND = 5.0  # seconds between two looks at what runs need
_AGAIN = (5.0, 300.0)  # seconds until a run is tried again that could not be started, at first and at most
_CONSIDERED = (10, 200)  # runs, from the first on, that a round decides on, at least and at most
_LONG = 10.0  # seconds after which a round decides on fewer: what it was decided on has changed by then
_PATIENT = 2  # tries for which such a run keeps the others waiting: what refused it may pass
_STANDBY = 1.0  # seconds between two tries for the Lease


class Manager:
    """Serves a queue until it is told to leave. `say` gets lines for the log, `beat` a sign of life."""

    def __init__(
        self,
        dispatch: Dispatch,
        *,
        say: Callable[[str], object],
        beat: Callable[[bool], object] = lambda _well: None,
    ) -> None:
        self._dispatch = dispatch
        self._say = say
        self._beat = beat
        self._left: SimpleQueue[None] = SimpleQueue()  # unlike an Event, safe in a signal's handler
        self._leads = False
        self._failed: dict[str, tuple[int, float]] = {}  # runs that could not be started: how often, next try
        self._kept: dict[str, World] = {}  # shapes of runs that this process cannot give another
        self._told: dict[str, tuple[Place, float]] = {}
        self._tended = self._last_told = float("-inf")
        self._considered = _CONSIDERED[1]

    def leave(self) -> None:
        """End after the round that goes on."""
        self._left.put(None)

    def serve(self) -> None:
        """Serve the queue; what goes wrong in a round is told, and tried again in the next."""
        trouble, pause = "", 0.0
        while not self._is_left(pause):
            began = time.monotonic()
            try:
                self._round()
            except EchelonError as error:
                if str(error) != trouble:
                    self._say(f"{error.message}; {error.hint}" if error.hint else error.message)
                trouble = str(error)
                self._beat(False)
            else:
                trouble = ""
                self._beat(True)
            took = time.monotonic() - began
            least, most = _CONSIDERED
            self._considered = (
                max(least, self._considered // 2) if took > _LONG else min(most, self._considered * 2)
            )
            pause = min(max(LOOK, took / _SHARE), _LONGEST) if self._leads else _STANDBY
        self._dispatch.leave()

    def _is_left(self, pause: float) -> bool:
        try:
            self._left.get(timeout=pause)
        except Empty:
            return False
        return True

    def _round(self) -> None:
        if not self._lead():
            return
        snapshot = self._dispatch.look()
        now = time.time()
        snapshot = replace(snapshot, waiting=[self._as_kept(each) for each in snapshot.waiting])
        waiting = in_order(each for each in snapshot.waiting if not self._is_put_off(each.name))[
            : self._considered
        ]
        decision = decide(waiting, snapshot.holding, _room(snapshot), snapshot.rules, now)
        for verdict in decision.verdicts:
            if verdict.why == "starts" and not (self._lead() and self._admit(verdict)):
                return  # the decision was made for what was there: look again
        self._tell(snapshot, now)
        if time.monotonic() - self._tended > _TEND and self._lead():
            self._dispatch.tend()
            self._tended = time.monotonic()

    def _lead(self) -> bool:
        leads = self._dispatch.lead()
        if leads != self._leads:
            self._say("this replica decides" if leads else "another replica decides")
        self._leads = leads
        return leads

    def _admit(self, verdict: Verdict) -> bool:
        """Start one run; False if it could not be started, and what was decided behind it is void."""
        name, plan = verdict.run.name, verdict.plan
        assert plan is not None
        try:
            self._dispatch.admit(name, plan)
        except Taken as taken:
            self._say(f"{name}: {taken} has what it would get")
            return False
        except ShapeKept as kept:
            self._kept[name] = kept.world  # found out again by the next replica
            return False
        except Unreachable:
            raise  # not the run's fault: it keeps its turn
        except EchelonError as error:
            times = self._failed.get(name, (0, 0.0))[0] + 1
            pause = min(_AGAIN[0] * 2 ** (times - _PATIENT - 1), _AGAIN[1]) if times > _PATIENT else 0.0
            self._failed[name] = times, time.monotonic() + pause
            self._say(f"{name}: cannot be started, next try in {pause:g} s: {error.message}")
            return False
        self._failed.pop(name, None)
        self._kept.pop(name, None)
        self._say(f"{name}: started, {verdict.run.gpus} GPUs, priority {verdict.run.priority}")
        return True

    def _as_kept(self, run: QueuedRun) -> QueuedRun:
        return replace(run, world=self._kept[run.name]) if run.name in self._kept else run

    def _is_put_off(self, name: str) -> bool:
        return name in self._failed and time.monotonic() < self._failed[name][1]

    def _tell(self, snapshot: QueueSnapshot, now: float) -> None:
        """Write to each run what has changed of its place, not more often than every few seconds."""
        names = {each.name for each in snapshot.waiting}
        self._told = {name: told for name, told in self._told.items() if name in names}
        if names == self._told.keys() and time.monotonic() - self._last_told < _TELL:
            return  # to look ahead takes longer than to decide
        self._last_told = time.monotonic()
        found = places(snapshot.waiting, snapshot.holding, _room(snapshot), snapshot.rules, now)
        for place in map(_without_others, found):
            told, at = self._told.get(place.name, (snapshot.told.get(place.name), float("-inf")))
            if time.monotonic() - at < _TELL:
                continue
            if place.why != "starts" and place != told:
                self._dispatch.tell(place)
            self._told[place.name] = place, time.monotonic()


def _room(snapshot: QueueSnapshot) -> ClusterRoom:
    return ClusterRoom(view=snapshot.view)


def _without_others(place: Place) -> Place:
    """What a user may read: a reason names no run of another namespace, since they may not see it."""
    words = {
        "no-room": f"waiting for {place.gpus} GPUs",
        "reserved": "what it would take is kept for a run that has waited longer",
    }
    earliest = None if place.earliest is None else round(place.earliest, -1)
    return replace(place, reason=words.get(place.why, place.reason), earliest=earliest)
