"""What each of those who judge how a run stands says of a case, through its own functions over a cluster that
consists of the case alone.

Those who follow a run are asked what they conclude when nothing more comes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Self

import pytest
from tests.engines.kubernetes.api_server import ApiServer, Asked
from tests.engines.kubernetes.state.evidence import NOW, REF, Case, agents_lines, keepers_objects

from echelon.engines.kubernetes import ending, names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.results.seen import see
from echelon.engines.kubernetes.follow import follow
from echelon.engines.kubernetes.follow.evidence import STREAMED, ask_keeper, confirm, evidence, find_over
from echelon.engines.kubernetes.follow.listing import list_runs
from echelon.engines.kubernetes.follow.logs import read_pod
from echelon.engines.kubernetes.follow.view import View, look
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state import history, workers
from echelon.engines.kubernetes.state.standing import standing, waits_again
from echelon.engines.kubernetes.upkeep.decisions import RunView
from echelon.engines.kubernetes.upkeep.tend import choose
from echelon.errors import EchelonError, StateTrouble, Unreachable
from echelon.model.event import Event
from echelon.model.output.log import EventLine
from echelon.model.run import RunRef, opening_status
from echelon.model.status import FINAL, Status, fold

GOES_ON = "on"
OVER = "over"  # of those who say no more


class OneRun(ApiServer):
    """A server that has one run, and logs as the case has them. Nothing can be changed."""

    def __init__(self, case: Case) -> None:
        kept = keepers_objects(case.facts.keeper)
        super().__init__(case.record, *case.listed, *case.listed_pods, *kept)
        self.case = case

    @property
    def view(self) -> View:
        """The run, as whoever looks finds it."""
        return _seen(self.api, REF)

    @cached_property
    def status(self) -> Status:
        return fold(opening_status(self.view.stored.run), follow.read_events(self.api, REF))

    def _log_of(self, asked: Asked) -> bytes:
        lines = agents_lines(self.case, asked.name)
        self.log = None if lines is None else b"".join(lines)
        return super()._log_of(asked)


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


@lru_cache(maxsize=1)
def _seen(api: Api, ref: RunRef) -> View:
    """One look is enough, since nothing changes."""
    return look(api, ref)


def _look(api: Api, ref: RunRef, **_: object) -> View:
    return _seen(api, ref)


# Each judge


def ps(run: OneRun) -> str:
    """Over, or not, as a list of runs has it."""
    (row,) = list_runs(run.api, lambda _name: REF, lambda _ref: run.status)
    return row.state if row.state in FINAL else GOES_ON


def status(run: OneRun) -> str:
    """As who looks at the run alone has it."""
    return run.status.state if run.status.state in FINAL else GOES_ON


def wait(run: OneRun) -> str:
    """Of one who follows the run since it began."""
    return _waited(run, led=True)


def wait_late(run: OneRun) -> str:
    """Of one who comes now."""
    return _waited(run, led=False)


def _waited(run: OneRun, *, led: bool) -> str:
    """What `follow_events` tells when nothing more comes."""
    view, leader = run.view, history.LeaderEvents()
    for pod in workers.leader_pods(view.pods):
        leader.told = replace(leader.told, has_lines=False)
        if workers.has_started(pod):
            _hear(run, pod, leader)
    led = led or follow.has_led(view)
    if led and "peers" in standing(evidence(view, leader.told, STREAMED), NOW).lacks:
        for pod in view.pods:
            if workers.worker_of(pod) != 0 and workers.has_started(pod):
                _hear(run, pod, leader)
    for _ in range(3):  # looks, between which the keeper is asked
        now = confirm(run.api, REF, view, leader)
        if now is not None and now.end is not None:
            return _outcome(now.end)
        leader = leader if now is None else history.LeaderEvents(leader.known)
        ask_keeper(run.api, view, leader)
    return GOES_ON


def _hear(run: OneRun, pod: Pod, leader: history.LeaderEvents) -> None:
    with suppress(EchelonError):  # it is tried again, and nothing comes
        for line in itertools.chain.from_iterable(read_pod(run.api, pod, events_only=True)):
            if isinstance(line, EventLine):
                list(leader.read(line, run.view.pods))


def logs(run: OneRun) -> str:
    """Whether `logs -f` ends when nothing more comes."""
    view, leader = run.view, history.LeaderEvents()
    for pod in filter(workers.has_started, view.pods):
        _hear(run, pod, leader)
    if not waits_again(evidence(view, leader.told)) and (leader.told.verdict or follow._is_abandoned(view)):
        return OVER
    now = confirm(run.api, REF, view, history.LeaderEvents())
    return OVER if now is not None and now.end is not None else GOES_ON


def stop(run: OneRun) -> str:
    """Whether there is nothing to stop any more."""
    return _outcome(follow.examine(run.api, run.view).end)


def rm(run: OneRun) -> str:
    """Whether the run may be removed."""
    try:
        ending._check_over(run.api, run.view)
    except StateTrouble:
        return GOES_ON
    return OVER


def collecting(run: OneRun) -> str:
    """The end with which results are fetched."""
    try:
        events = see(run.api, REF).events
    except Unreachable:
        return "unreachable"
    return _outcome(next((event for event in events if event.kind == "finished"), None))


def upkeep(run: OneRun) -> str:
    """The end that a tender goes by before it does anything."""
    return _outcome(follow.examine(run.api, run.view).end)


def actions(run: OneRun) -> str:
    """What a tender does."""
    found = choose(run.api, RunView(objects=run.view))
    return ",".join(type(each).__name__ for each in found) or "-"


def top(run: OneRun) -> str:
    """Whether the GPUs are shown as held without work; "-" where no leader runs."""
    leaders = workers.leader_pods(run.case.pods)
    found = [pod for pod in leaders if pod.status.phase == "Running"]
    if not found:
        return "-"
    return OVER if find_over(run.api, {REF.name: (found[-1].metadata.name, names.CONTAINER)}) else GOES_ON


def _outcome(end: Event | None) -> str:
    return str(end.outcome) if end is not None else GOES_ON


JUDGES: Mapping[str, Callable[[OneRun], str]] = {
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
    run = OneRun(case)
    return {name: judge(run) for name, judge in JUDGES.items()}
