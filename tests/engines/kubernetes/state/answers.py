"""What each of those who judge how a run stands says of a case, through its own functions over a cluster that
consists of the case alone.

Those who follow a run are asked what they conclude when nothing more comes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import pytest
from testbed.kubectl import Object
from tests.engines.kubernetes.state.evidence import REF, Case, agents_lines, keepers_objects

from echelon.engines.kubernetes import ending, names
from echelon.engines.kubernetes.client.api import Api, Listing
from echelon.engines.kubernetes.client.kinds import NotThere
from echelon.engines.kubernetes.files.results.seen import see
from echelon.engines.kubernetes.follow import ends, follow
from echelon.engines.kubernetes.follow.borne_out import is_refuted
from echelon.engines.kubernetes.follow.lingering import find_lingering
from echelon.engines.kubernetes.follow.listing import list_runs
from echelon.engines.kubernetes.follow.logs import read_pod
from echelon.engines.kubernetes.follow.view import View, look
from echelon.engines.kubernetes.state import history, outcome, workers
from echelon.engines.kubernetes.suspended import begins_anew
from echelon.engines.kubernetes.upkeep.decisions import RunView, decide
from echelon.errors import EchelonError, StateTrouble, Unreachable
from echelon.model.event import Event
from echelon.model.output.log import EventLine
from echelon.model.run import RunRef, opening_status
from echelon.model.status import FINAL, Status, fold

GOES_ON = "on"
OVER = "over"  # of those who say no more


Objects = list[Object]  # `OneRun` has a method of that name


class OneRun:
    """An API server that has one run, and logs as the case has them. Nothing can be changed."""

    namespace = "team"

    def __init__(self, case: Case) -> None:
        self.case = case
        self._keeper = keepers_objects(case.facts.keeper)

    @cached_property
    def view(self) -> View:
        """The run, as whoever looks finds it."""
        return look(cast("Api", self), REF)

    def find(self, kind: str, name: str, **_: Any) -> Object | None:
        return next((each for each in self._all(kind) if each["metadata"]["name"] == name), None)

    def get(self, kind: str, name: str, **_: Any) -> Object:
        found = self.find(kind, name)
        if found is None:
            raise NotThere(f"no {kind} {name}")
        return found

    def list(self, kind: str, *, selector: str = "", **_: Any) -> Listing:
        return Listing(items=self._selected(kind, selector), version="1")

    def list_shapes(self, kind: str, _shape: Any, *, selector: str = "", fields: str = "") -> Objects:
        found = self._selected(kind, selector)
        alive = [each for each in found if each.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
        return alive if "status.phase" in fields else found

    def may(self, *_: Any, **__: Any) -> bool:
        return True

    @contextmanager
    def logs(self, pod: str, *, tail: int | None = None, **_: Any) -> Iterator[Iterator[bytes]]:
        lines = agents_lines(self.case, pod)
        if lines is None:
            raise Unreachable("the kubelet does not respond", hint="")
        yield iter(lines if tail is None else lines[-tail:])

    def _all(self, kind: str) -> Objects:
        case, keeper = self.case, [each for each in self._keeper if each["kind"] == kind]
        found: Mapping[str, Sequence[Object]] = {
            "ConfigMap": [case.record],
            "Job": case.listed,
            "Pod": case.pods,
        }
        return [*found.get(kind, ()), *keeper]

    def _selected(self, kind: str, selector: str) -> Objects:
        wanted = names.KEEPER if f"={names.KEEPER}" in selector else names.WORKER
        mine = self._all(kind)
        if kind == "ConfigMap" or not selector:
            return mine
        return [each for each in mine if each["metadata"]["labels"][names.COMPONENT] == wanted]


class InTurn:
    """A pool of threads that does one thing after the other: thousands of real ones take their time."""

    def __init__(self, _threads: int) -> None:
        self.map = map

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def at_one_moment(patch: pytest.MonkeyPatch, now: float) -> None:
    """Let the clock stand still, and no run have a trouble beside its evidence."""
    patch.setattr("time.time", lambda: now)
    patch.setattr("echelon.engines.kubernetes.follow.view.look", _look)
    patch.setattr("echelon.engines.kubernetes.files.results.seen.look", _look)
    patch.setattr("concurrent.futures.ThreadPoolExecutor", InTurn)
    patch.setattr("echelon.engines.kubernetes.follow.follow.find_troubles", lambda *_, **__: [])


def _look(api: Api, _ref: RunRef, **_: object) -> View:
    """One look is enough, since nothing changes."""
    return cast("OneRun", api).view


# Each judge


def ps(case: Case, api: Api) -> str:
    (row,) = list_runs(api, lambda _name: REF, lambda ref: _status(case, api, ref))
    return row.state if row.state in FINAL else GOES_ON


def status(case: Case, api: Api) -> str:
    found = _status(case, api, REF)
    return found.state if found.state in FINAL else GOES_ON


def _status(case: Case, api: Api, ref: RunRef) -> Status:
    return fold(opening_status(case.stored.run), follow.read_events(api, ref))


def wait(_case: Case, api: Api) -> str:
    """Of one who follows the run since it began."""
    return _waited(api, led=True)


def wait_late(_case: Case, api: Api) -> str:
    """Of one who comes now."""
    return _waited(api, led=False)


def _waited(api: Api, *, led: bool) -> str:
    """What `follow_events` tells when nothing more comes."""
    view, leader = _look(api, REF), history.LeaderEvents()
    for pod in filter(workers.has_started, workers.leader_pods(view.pods)):
        _hear(api, pod, leader, view)
    leads = workers.has_leader(view.pods)
    alone = (led and not leads) or ends.is_said_over(view)
    if alone and not leader.over:
        for pod in view.pods:
            if workers.worker_of(pod) != 0 and workers.has_started(pod):
                _hear(api, pod, leader, view)
    for _ in range(3):  # looks, between which the keeper is asked
        now = ends.looked_again(api, REF, view, leader)
        if now is not None and ends.waits_again(now, leader):
            leader = history.LeaderEvents(leader.known)
        elif now is not None and (end := ends.final_end(api, now, leader)) is not None:
            return _outcome(end)
        ends.hear_keeper(api, view, leader)
    return GOES_ON


def _hear(api: Api, pod: Object, leader: history.LeaderEvents, view: View) -> None:
    with suppress(EchelonError):  # it is tried again, and nothing comes
        for line in itertools.chain.from_iterable(read_pod(api, pod, events_only=True)):
            if isinstance(line, EventLine):
                list(leader.read(line, view.pods))


def logs(case: Case, api: Api) -> str:
    """Whether `logs -f` ends when nothing more comes."""
    view = _look(api, REF)
    started = [pod for pod in view.pods if workers.has_started(pod)]
    told = any(
        b'"verdict"' in line for pod in started for line in agents_lines(case, pod["metadata"]["name"]) or ()
    )
    if told and begins_anew(view.stored, [*view.jobs, *view.waiting]):
        told = False
    if told or follow._is_abandoned(view):
        return OVER
    now = ends.looked_again(api, REF, view, history.LeaderEvents())
    over = now is not None and ends.end_of(now, history.LeaderEvents()) is not None
    return OVER if over else GOES_ON


def stop(_case: Case, api: Api) -> str:
    return _outcome(ending._end_of(api, _look(api, REF)))


def rm(_case: Case, api: Api) -> str:
    try:
        ending._check_over(api, _look(api, REF))
    except StateTrouble:
        return GOES_ON
    return OVER


def collecting(_case: Case, api: Api) -> str:
    try:
        events = see(api, REF).events
    except Unreachable:
        return "unreachable"
    return _outcome(next((event for event in events if event.kind == "finished"), None))


def upkeep(_case: Case, api: Api) -> str:
    """The end that a tender goes by."""
    view = _tended(api)
    return _outcome(outcome.settled_end(view.stored, view.jobs, view.pods, view.waiting) or view.stored.end)


def actions(case: Case, api: Api) -> str:
    """What a tender does."""
    found = decide(RunView(objects=_tended(api)), case.now)
    return ",".join(type(each).__name__ for each in found) or "-"


def _tended(api: Api) -> View:
    view, refuted = _look(api, REF), False
    with suppress(EchelonError):
        refuted = is_refuted(api, view)
    return replace(view, stored=replace(view.stored, end=None)) if refuted else view


def top(case: Case, api: Api) -> str:
    """Whether the GPUs are shown as held without work; "-" where no leader runs."""
    found = [pod for pod in workers.leader_pods(case.pods) if pod["status"]["phase"] == "Running"]
    if not found:
        return "-"
    return OVER if find_lingering(api, {REF.name: found[-1]}) else GOES_ON


def _outcome(end: Event | None) -> str:
    return str(end.outcome) if end is not None else GOES_ON


JUDGES: Mapping[str, Callable[[Case, Api], str]] = {
    "ps": ps,
    "status": status,
    "wait": wait,
    "late": wait_late,
    "logs": logs,
    "stop": stop,
    "rm": rm,
    "collecting": collecting,
    "upkeep": upkeep,
    "top": top,
    "actions": actions,
}


def answers(case: Case) -> dict[str, str]:
    """What each of them says."""
    api = cast("Api", OneRun(case))
    return {name: judge(case, api) for name, judge in JUDGES.items()}
