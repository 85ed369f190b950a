"""Upkeep of a run from outside: what no controller of the cluster does for it.

`decide` is the whole policy: from what is there to what is to be done, pure. `carry_out` does one action.
`Tender` calls both for a command that stays with its run, while it holds the run's claim; every other reader
of the run changes nothing. Actions may be repeated and interrupted anywhere: each is decided again from what
is there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from echelon.engines import machine
from echelon.engines.kubernetes import control, names, objects, record
from echelon.engines.kubernetes.client.api import Api, Conflict, NotThere, Object
from echelon.engines.kubernetes.diagnose import Trouble, gives_up
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.troubles import find_troubles, is_well
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.record import Claim, Stop, Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.payload import layout
from echelon.engines.kubernetes.state import outcome, workers
from echelon.errors import Denied, EchelonError
from echelon.model.event import Event
from echelon.model.run import RunRef

CLAIM_LASTS = 90.0  # seconds after its last renewal
_RENEW = 30.0
_STOP_PATIENCE = 45.0  # seconds that the agents have for an orderly end, once a stop is in the record
_PAUSE, _WELL_PAUSE = 2.0, 5.0  # seconds between two looks: while something is missing, and while all is well


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """What upkeep is decided on: the run's objects, and what keeps it from running."""

    objects: View
    troubles: Sequence[Trouble] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TieRecord:
    """Let the record go with the run's Jobs: the client that made them was cut off right after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreePod:
    """Declare a dead node's pod failed, so that the Job controller replaces it."""

    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """End a run that waits for what will not come."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndJobs:
    """End the pods of a run whose stop was left in the record and not carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepEnd:
    """Write the end into the record: the log that has it may be rotated, or its node be lost."""

    end: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPayload:
    """Delete code, Secret and Service of a run that is over: no pod of it will start again."""


Action = TieRecord | FreePod | GiveUp | EndJobs | KeepEnd | DropPayload


def decide(view: RunView, now: float) -> list[Action]:
    """What the run needs done to it now."""
    stored, jobs, pods = view.objects.stored, view.objects.jobs, view.objects.pods
    if stored.deleted is not None:
        return []
    found: list[Action] = []
    if jobs and not {job["metadata"]["uid"] for job in jobs} <= stored.owners:
        found.append(TieRecord())
    end = stored.end or outcome.finished_event(stored, jobs, pods)
    if end is None:
        found += [FreePod(pod=pod["metadata"]["name"]) for pod in pods if workers.is_stuck(pod, now)]
        hopeless = gives_up(view.troubles, now)
        if stored.stop is None and hopeless is not None:
            found.append(GiveUp(reason=hopeless.sentence))
        elif stored.stop is not None and _is_overdue(stored.stop, jobs, pods, now):
            found.append(EndJobs())
    elif stored.end is None and jobs:
        found.append(KeepEnd(end=end))
    elif stored.end is not None and stored.collected is not None:
        found.append(DropPayload())
    return found


def _is_overdue(stop: Stop, jobs: Sequence[Object], pods: Sequence[Object], now: float) -> bool:
    """Whether nothing carries a stop out: the client that asked for it was killed, or the leader is stuck."""
    if not jobs or dialects.end_of(jobs) is not None:
        return False
    leads = any(map(workers.is_running, workers.leader_pods(pods)))
    return stop.outcome == "failed" or now - stop.at > (_STOP_PATIENCE if leads else record.SUBMISSION)


def carry_out(api: Api, view: View, action: Action) -> None:
    """Do one action. Without the right to it, it is left to a tender that has it."""
    stored = view.stored
    name = stored.run.ref.name
    with suppress(Denied, NotThere):
        match action:
            case TieRecord():
                objects.tie_record(api, stored, view.jobs)
            case FreePod(pod=pod):
                api.patch("Pod", pod, {"status": {"phase": "Failed"}}, subresource="status")
            case GiveUp(reason=reason):
                stop = Stop(at=round(time.time(), 3), reason=reason, outcome="failed")
                api.patch("ConfigMap", name, record.stopping(stop))
                control.end_jobs(api, view.jobs)
            case EndJobs():
                control.end_jobs(api, view.jobs)
            case KeepEnd(end=end):
                api.patch("ConfigMap", name, record.finished(end))
            case DropPayload():
                api.delete("Secret", name)
                api.delete("Service", name)
                for number in range(len(layout(stored.shipped))):
                    api.delete("ConfigMap", names.bundle_name(name, number))


def may_take(claim: Claim | None, holder: str, now: float) -> bool:
    """Whether a process may become a run's tender: the claim is free, expired, or its own."""
    return record.is_free(claim, now) or (claim is not None and claim.holder == holder)


class Tender:
    """Looks after one run, for as long as it renews the run's claim."""

    def __init__(self, api: Api, ref: RunRef, holder: str | None = None) -> None:
        self._api = api
        self._ref = ref
        self._holder = holder or machine.process_name()
        self._renewed = 0.0
        self.held = False
        self.queued = False  # the run waits to be admitted

    def take(self) -> bool:
        """Take the claim if it is free, or renew it; False if another process has it."""
        stored = views.read_record(self._api, self._ref)
        now = time.time()
        if not may_take(stored.claim, self._holder, now):
            self.held = False
            return False
        claim = Claim(holder=self._holder, until=round(now + CLAIM_LASTS, 3))
        try:
            self._api.patch("ConfigMap", self._ref.name, record.claimed(claim, version=stored.version))
        except Conflict:
            return False  # the record has changed at this moment: the next look decides
        except Denied:
            return False
        self._renewed = time.monotonic()
        self.held = True
        return True

    def tend(self) -> float:
        """Do what the run needs now; returns the seconds until the next look."""
        if time.monotonic() - self._renewed > _RENEW:
            self.take()
        if not self.held:
            return _PAUSE
        view = views.look(self._api, self._ref)
        found = find_troubles(self._api, view.jobs, view.pods)
        for action in decide(RunView(objects=view, troubles=found), time.time()):
            carry_out(self._api, view, action)
        self.queued = _is_queued(view.stored, view.jobs)
        return _WELL_PAUSE if is_well(view.jobs, view.pods) else _PAUSE

    def keep(self, end: Event) -> None:
        """Write the run's end into its record, as the leader's log tells it before the objects do."""
        with suppress(Denied, NotThere):
            self._api.patch("ConfigMap", self._ref.name, record.finished(end))

    def release(self) -> None:
        """Give the claim up, so that the next tender need not wait until it expires."""
        with suppress(EchelonError):
            stored = views.find_record(self._api, self._ref)
            if stored is not None and stored.claim is not None and stored.claim.holder == self._holder:
                change = record.claimed(None, version=stored.version)
                self._api.patch("ConfigMap", self._ref.name, change)


def _is_queued(stored: Stored, jobs: Sequence[Object]) -> bool:
    phase = record.phase_of(stored, has_jobs=bool(jobs), now=time.time())
    return phase == "queued" and stored.stop is None
