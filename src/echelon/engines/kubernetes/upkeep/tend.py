"""Upkeep of a run from outside: what no controller of the cluster does for it.

`upkeep/decisions.py` is the whole policy, pure. `carry_out` does one action. `Tender` calls both for a
command that stays with its run, while it holds the run's claim; every other reader of the run changes
nothing. Actions may be repeated and interrupted anywhere: each is decided again from what is there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from echelon.engines import machine
from echelon.engines.kubernetes import control, names, objects, record
from echelon.engines.kubernetes.client.api import Api, Conflict, NotThere, Object
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.evidence import evidence
from echelon.engines.kubernetes.follow.follow import examine
from echelon.engines.kubernetes.follow.troubles import find_troubles, is_well
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.queue import admitting, making, workload
from echelon.engines.kubernetes.record import Claim, Stored
from echelon.engines.kubernetes.state import whole
from echelon.engines.kubernetes.state.standing import standing
from echelon.engines.kubernetes.upkeep import decisions
from echelon.engines.kubernetes.upkeep.actions import (
    Action,
    CompleteStart,
    DropPayload,
    EndJobs,
    EndLeftOver,
    FreePod,
    GiveUp,
    KeepEnd,
    LookAfter,
    RollBack,
    SeeWhole,
    TieRecord,
    Withdraw,
)
from echelon.engines.kubernetes.upkeep.decisions import RunView, decide, decide_admission
from echelon.errors import Denied, EchelonError
from echelon.model.event import Event
from echelon.model.run import RunRef

CLAIM_LASTS = 90.0  # seconds after its last renewal
_RENEW = 30.0
_LOOK_AROUND = 20.0  # seconds between two looks at the other runs of the namespace
_PAUSE, _WELL_PAUSE = 2.0, 5.0  # seconds between two looks: while something is missing, and while all is well


def carry_out(api: Api, view: View, action: Action) -> None:
    """Do one action. Without the right to it, it is left to a tender that has it."""
    stored = view.stored
    name = stored.run.ref.name
    with suppress(Denied, NotThere):
        match action:
            case TieRecord():
                objects.tie_record(api, stored, view.jobs or view.waiting)
            case CompleteStart():
                making.complete(api, stored, list(view.jobs))
            case FreePod(pod=pod, uid=uid):
                api.patch("Pod", pod, {"status": {"phase": "Failed"}}, subresource="status", uid=uid)
            case GiveUp(reason=reason):
                control.give_up(api, stored, view.jobs, reason)
            case EndJobs():
                control.end_run(api, stored, view.jobs)
            case EndLeftOver(end=end):
                control.end_jobs(api, whole.left_over(end, stored, view.jobs, view.pods))
            case SeeWhole():
                admitting.see_whole(api, view)
            case RollBack(reason=reason):
                admitting.roll_back(api, view, reason)
            case Withdraw(stop=stop):
                admitting.withdraw(api, view, stop)
            case KeepEnd(end=end):
                api.patch("ConfigMap", name, record.finished(end, plan=stored.run.plan), uid=stored.uid)
                workload.free(api, stored)
            case LookAfter(run=run):
                _look_after(api, run)
            case DropPayload():
                objects.drop_payload(api, stored)


def choose(api: Api, seen: RunView) -> list[Action]:
    """What the run needs done to it now. Before anything is done, the logs are asked that its objects leave
    it to: its workers may stay for their results, and any user may have written an end into its record.
    """
    now = time.time()
    found = decide(seen, now)
    if found and standing(evidence(seen.objects), now).lacks:
        return decide(replace(seen, standing=examine(api, seen.objects)), now)
    return found


def _look_after(api: Api, run: str) -> None:
    """Finish or undo the admission of a run that is not this process's own."""
    now = time.time()
    with suppress(EchelonError):
        view = views.look(api, RunRef(engine="k8s", name=run, namespace=api.namespace))
        stored = view.stored
        if stored.deleted is None and stored.end is None and stored.stop is None:
            for action in decide_admission(RunView(objects=view), now - decisions.NOT_OURS):
                carry_out(api, view, action)


def may_take(claim: Claim | None, holder: str, now: float) -> bool:
    """Whether a process may become a run's tender: the claim is free, expired, or its own."""
    return record.is_free(claim, now) or (claim is not None and claim.holder == holder)


class Tender:
    """Looks after one run, for as long as it renews the run's claim."""

    def __init__(self, api: Api, ref: RunRef, holder: str | None = None) -> None:
        self._api = api
        self._ref = ref
        self._holder = holder or machine.process_name()
        self._uid = ""  # of the record whose claim it has had: another of the name is another run
        self._renewed = 0.0
        self._looked_around = time.monotonic()
        self._said_ready = False  # to Kueue, where a Workload of its own admits the run
        self.held = False
        self.queued = False  # the run waits to be admitted

    def take(self) -> bool:
        """Take the claim if it is free, or renew it; False if another process has it."""
        stored = views.read_alone(self._api, self._ref)
        now = time.time()
        if not self._is_meant(stored) or not may_take(stored.claim, self._holder, now):
            self.held = False
            return False
        claim = Claim(holder=self._holder, until=round(now + CLAIM_LASTS, 3))
        try:
            self._api.patch("ConfigMap", self._ref.name, record.claimed(claim, version=stored.version))
        except Conflict:
            return False  # the record has changed at this moment: the next look decides
        except Denied:
            return False
        self._uid, self._renewed, self.held = stored.uid, time.monotonic(), True
        return True

    def _is_meant(self, stored: Stored) -> bool:
        """Whether a record is of the run that is looked after, and not of one that was made anew since."""
        return self._uid in ("", stored.uid)

    def tend(self) -> float:
        """Do what the run needs now; returns the seconds until the next look."""
        if time.monotonic() - self._renewed > _RENEW:
            self.take()
        if not self.held:
            return _PAUSE
        view = views.look(self._api, self._ref)
        if not self._is_meant(view.stored):
            self.held = False
            return _PAUSE
        found = find_troubles(self._api, view.jobs, view.pods)
        seen = RunView(objects=view, troubles=found, around=self._look_around())
        for action in choose(self._api, seen):
            carry_out(self._api, view, action)
        if evicted := self._attend_kueue(view):
            admitting.wait_again(self._api, view, evicted)
            self._said_ready = False
        self.queued = record.is_queued(view.stored)
        return _WELL_PAUSE if is_well(view.jobs, view.pods) else _PAUSE

    def _attend_kueue(self, view: View) -> str:
        """Why Kueue does not let a run continue that it had admitted; "" if it does, or has no say in it.
        Kueue is informed once when all pods are at work.
        """
        stored = view.stored
        if not workload.is_in(stored) or stored.stop is not None or stored.end is not None or not view.jobs:
            return ""
        if standing(evidence(view), time.time()).end is not None:
            return ""
        with suppress(Denied):
            found = workload.find(self._api, stored)
            evicted = workload.eviction_of(found)
            if found is None or evicted:
                return evicted
            if not self._said_ready and is_well(view.jobs, view.pods):
                self._said_ready = True  # or, without the right to, it would be tried at every look
                self._said_ready = workload.say_ready(self._api, found)
        return ""

    def _look_around(self) -> Sequence[Object]:
        """The Jobs of all runs of the namespace, now and then."""
        if time.monotonic() - self._looked_around < _LOOK_AROUND:
            return ()
        self._looked_around = time.monotonic()
        with suppress(Denied):
            return self._api.list("Job", selector=f"{names.COMPONENT}={names.WORKER}").items
        return ()

    def keep(self, end: Event) -> None:
        """Write the run's end into its record, as the leader's log tells it before the objects do."""
        with suppress(Denied, NotThere):
            stored = views.read_record(self._api, self._ref)
            if not self._is_meant(stored):
                return
            if stored.end is None or (stored.end.at, stored.end.outcome) != (end.at, end.outcome):
                change = record.finished(end, plan=stored.run.plan)
                self._api.patch("ConfigMap", self._ref.name, change, uid=stored.uid)
            workload.free(self._api, stored)

    def release(self) -> None:
        """Give the claim up, so that the next tender need not wait until it expires."""
        with suppress(EchelonError):
            stored = views.find_alone(self._api, self._ref)
            if stored is not None and stored.claim is not None and stored.claim.holder == self._holder:
                change = record.claimed(None, version=stored.version)
                self._api.patch("ConfigMap", self._ref.name, change)
