"""A leader's pod is deleted by force and no restart is left: in which order its API server, its kubelets and
the Job controller show that is chance. Whoever looks is told one end, and from then on always the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from testbed.kubectl import Object
from tests.engines.kubernetes.small import RECORD, RUNNING, WAITING, ended, job, pod, stored

from echelon.agent.task import NO_LEADER
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.follow import evidence, follow
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.history import LeaderEvents
from echelon.engines.kubernetes.state.outcome import finished_event
from echelon.engines.kubernetes.state.standing import Evidence, standing
from echelon.errors import Unreachable
from echelon.model.event import Event
from echelon.model.output.log import EventLine, Line, LogLine

MEMBERS = (1, 2)
CAUSE = {
    "summary": "worker 0 was lost: the others lost their connection to it",
    "kind": "worker-lost",
    "worker": 0,
    "exit_code": 117,
}
KEPT = {"kind": "finished", "at": 5.0, "outcome": "failed", "exit_code": 117, "cause": CAUSE}
RUNS = [{"kind": "worker-running", "at": 2.0, "worker": each} for each in (0, *MEMBERS)]
VERDICT = {"kind": "verdict", "at": 4e9, "outcome": "failed", "exit_code": 117, "cause": CAUSE}
LAST = {"kind": "worker-ended", "at": 4.0, "worker": 0}
DELETED = "2026-01-01T00:00:50Z"


@dataclass(frozen=True)
class Cluster:
    """What is true at one moment."""

    leader: str = "runs"  # deleted, killed, gone
    next: str = ""  # the leader that replaces it: waits, runs, leads (it has the others' verdict)
    members: tuple[str, str] = ("runs", "runs")  # alone, left, deleted, gone
    job: str = ""  # FailureTarget, Failed
    kept: bool = False  # the end, in the record: the one who follows has seen it

    def steps(self) -> list[Cluster]:
        """What may happen next."""
        found: list[Cluster] = []
        for before, after in (("runs", "deleted"), ("deleted", "killed"), ("killed", "gone")):
            if self.leader == before:
                found.append(replace(self, leader=after))
        over = self.leader in ("killed", "gone")
        if over and not self.job and self.next in ("", "waits") and "runs" not in self.members:
            found.append(replace(self, next="runs" if self.next else "waits"))
        if self.next == "runs" and "alone" in self.members:
            found.append(replace(self, next="leads"))
        if self.job and self.next:
            found.append(replace(self, next=""))
        for at, member in enumerate(self.members):
            found += [self._with(at, new) for new in self._next_of(member)]
        if set(self.members) == {"alone"} and not self.kept:
            found.append(replace(self, kept=True))
        if not self.job and "left" in self.members:
            found.append(replace(self, job="FailureTarget"))
        if self.job == "FailureTarget" and over and not self.next and not self._lively():
            found.append(replace(self, job="Failed"))
        return found

    def _next_of(self, member: str) -> list[str]:
        if member == "runs":  # the connection to its leader breaks off as soon as that is killed
            return ["alone"] if self.leader != "runs" else []
        if member == "alone":
            return ["left"] * self.kept + ["deleted"] * bool(self.job)
        return ["gone"] if member == "deleted" else []

    def _lively(self) -> bool:
        return any(each in ("runs", "alone", "deleted") for each in self.members)

    def _with(self, at: int, member: str) -> Cluster:
        members = list(self.members)
        members[at] = member
        return replace(self, members=(members[0], members[1]))

    def jobs(self) -> list[Object]:
        conditions = {"": (), "FailureTarget": ("FailureTarget",), "Failed": ("FailureTarget", "Failed")}
        return [job(*conditions[self.job], reason="PodFailurePolicy" if self.job else "", workers=3)]

    def pods(self) -> list[Pod]:
        found = []
        if self.leader == "runs":
            found.append(pod(0, state=RUNNING))
        elif self.leader == "deleted":
            found.append(pod(0, state=RUNNING, deletionTimestamp=DELETED))
        elif self.leader == "killed":
            found.append(pod(0, state=ended(137), status={"phase": "Failed"}, deletionTimestamp=DELETED))
        if self.next:
            state = WAITING if self.next == "waits" else RUNNING
            notes = {names.COMPLETION_INDEX: "0", names.FAILURE_COUNT: "1"}
            found.append(
                pod(0, state=state, name="demo-0-again", annotations=notes, made="2026-01-01T00:01:00Z")
            )
        for worker, member in zip(MEMBERS, self.members, strict=True):
            if member in ("runs", "alone"):
                found.append(pod(worker, state=RUNNING))
            elif member == "deleted":
                found.append(pod(worker, state=RUNNING, deletionTimestamp="2026-01-01T00:01:30Z"))
            elif member == "left":
                found.append(pod(worker, state=ended(NO_LEADER), status={"phase": "Failed"}))
        return found

    def log(self, name: str) -> list[dict[str, Any]]:
        """What a pod's log has; nothing of one that is gone."""
        if name == "demo-0-again":
            return [VERDICT, LAST] if self.next == "leads" else []
        worker = int(name.split("-")[1])
        if worker == 0:
            return [] if self.leader == "gone" else RUNS
        member = self.members[worker - 1]
        holds = {"kind": "holding", "at": 4.0, "worker": worker, "until": 900.0}
        return [VERDICT, holds] if member in ("alone", "left", "deleted") else []


@st.composite
def histories(draw: st.DrawFn) -> list[Cluster]:
    """All moments of a run, from its leader's deletion to the Job's end."""
    found = [Cluster()]
    while steps := found[-1].steps():
        found.append(draw(st.sampled_from(steps)))
    return found


def seen(record: Cluster, jobs: Cluster, pods: Cluster) -> View:
    return View(stored=stored(end=KEPT if record.kept else None), jobs=jobs.jobs(), pods=pods.pods())


def read(view: View, logs: Cluster) -> Event | None:
    """The end, as one who looks at the run now reads it."""

    def read_pod(_: object, found: Pod) -> Iterator[list[Line]]:
        said = logs.log(found.metadata.name)
        yield [EventLine(sequence=0, at=1.0, payload=json.dumps(each).encode()) for each in said]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("echelon.engines.kubernetes.follow.view.look", lambda *_: view)
        patch.setattr("echelon.engines.kubernetes.follow.view.read_record", lambda *_: view.stored)
        patch.setattr(follow, "read_pod", read_pod)
        patch.setattr(follow, "find_troubles", lambda *_, **__: [])
        events = follow.read_events(None, RECORD.ref)  # type: ignore[arg-type]
        return next((event for event in events if event.kind == "finished"), None)


def gist(end: Event | None) -> tuple[object, ...] | None:
    """What must be the same for all; how the leader was lost is known more or less well."""
    return None if end is None else (end.outcome, end.exit_code, end.cause.worker if end.cause else None)


LOST = ("failed", 117, 0)
NOW = 1e9
QUICK = settings(
    max_examples=40, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # to shrink takes minutes


@pytest.mark.core
@pytest.mark.parametrize("leader", ["deleted", "killed", "gone"])
@pytest.mark.parametrize("job", ["", "FailureTarget"])
def test_workers_that_have_left_tell_the_end_before_their_job_does(leader: str, job: str) -> None:
    now = Cluster(leader=leader, members=("left", "left"), job=job, kept=True)
    assert gist(read(seen(now, now, now), now)) == LOST


@QUICK
@given(histories(), st.data())
def test_an_end_that_was_told_once_is_told_from_then_on(moments: list[Cluster], data: st.DataObject) -> None:
    told = False
    for at, now in enumerate(moments):
        end = gist(read(seen(now, now, now), now))
        assert end in ((LOST,) if told else (None, LOST)), now
        told = told or end is not None
        # One look takes a while: each of its requests shows a later moment than the one before.
        later = data.draw(st.lists(st.integers(at, len(moments) - 1), min_size=2, max_size=2).map(sorted))
        jobs, pods, logs = (moments[each] for each in (*later, min(later[-1] + 1, len(moments) - 1)))
        end = gist(read(seen(now, jobs, pods), logs))
        assert end in ((LOST,) if told else (None, LOST)), (now, jobs, pods, logs)
    assert told


@QUICK
@given(histories())
def test_objects_alone_tell_no_other_end(moments: list[Cluster]) -> None:
    """As `ps` sees it; what they leave open, the logs tell."""
    for now in moments:
        known = Evidence(stored=stored(end=KEPT if now.kept else None), jobs=now.jobs(), pods=now.pods())
        for end in (finished_event(known.stored, known.jobs, known.pods), standing(known, NOW).end):
            assert gist(end) in (None, LOST), now
        if (
            now.kept
            and "left" in now.members
            and now.leader in ("killed", "gone")
            and now.next in ("", "waits")
        ):
            assert standing(known, NOW).end is not None, now


def heard(logs: Cluster) -> LeaderEvents:
    """What a follower has read of all logs until a moment."""
    leader = LeaderEvents()
    for name in ("demo-0-abcde", "demo-0-again", "demo-1-abcde", "demo-2-abcde"):
        for each in logs.log(name):
            list(leader.read(EventLine(sequence=0, at=1.0, payload=json.dumps(each).encode()), logs.pods()))
    return leader


def follow_to(view: View, now: Cluster, leader: LeaderEvents) -> Event | None:
    """The end that a follower reports: from what its watches have shown, and what is there now."""
    fresh = seen(now, now, now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("echelon.engines.kubernetes.follow.view.look", lambda *_: fresh)
        patch.setattr("echelon.engines.kubernetes.follow.view.find_record", lambda *_: fresh.stored)
        api: Any = None
        found = evidence.confirm(api, RECORD.ref, view, leader)
        return None if found is None else found.end


@QUICK
@given(histories(), st.data())
def test_a_follower_whose_watches_show_different_moments_tells_no_other_end(
    moments: list[Cluster], data: st.DataObject
) -> None:
    """As after the API server was away: each watch begins again when it can."""
    past = data.draw(st.lists(st.sampled_from(range(len(moments))), min_size=4, max_size=4))
    now = moments[data.draw(st.integers(max(past), len(moments) - 1))]
    record, jobs, pods, logs = (moments[each] for each in past)
    view = seen(record, jobs, pods)
    for leader in (LeaderEvents(), heard(logs)):
        assert gist(follow_to(view, now, leader)) in (None, LOST), (record, jobs, pods, logs, now)
    last = moments[-1]
    for each in moments:
        assert gist(follow_to(seen(last, last, each), last, LeaderEvents())) == LOST, each


def test_an_end_is_not_told_while_the_api_server_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> View:
        raise Unreachable("no route", hint="")

    now = Cluster(leader="gone", members=("left", "left"), job="Failed")
    view, api = seen(now, now, now), object()
    monkeypatch.setattr("echelon.engines.kubernetes.follow.view.look", away)
    monkeypatch.setattr("echelon.engines.kubernetes.follow.view.find_record", lambda *_: view.stored)
    assert evidence.confirm(api, RECORD.ref, view, LeaderEvents()) is None  # type: ignore[arg-type]


def test_lines_of_pods_that_the_watch_has_not_shown_are_read_before_the_run_counts_as_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A short run: its Job is seen to be complete, and its pod not yet."""
    done = pod(0, state=ended(0, reason="Completed"), uid="pod-0", status={"phase": "Succeeded"})
    fresh = View(stored=stored(), jobs=[job("Complete")], pods=[done])
    shown: Any = SimpleNamespace(is_ready=lambda _: True, of=lambda _: [], pods=list, watch=lambda _: None)

    def read_pod(*_: object, **__: object) -> Iterator[list[Line]]:
        yield [LogLine(text="hello", at=1.0, worker=0, rank=0)]

    monkeypatch.setattr(follow, "_mirror", lambda *_: nullcontext(shown))
    monkeypatch.setattr(follow, "_uid_of_record", lambda *_: "the-record")
    monkeypatch.setattr(follow, "_view", lambda *_: replace(fresh, pods=[]))
    monkeypatch.setattr("echelon.engines.kubernetes.follow.view.look", lambda *_: fresh)
    monkeypatch.setattr("echelon.engines.kubernetes.follow.view.find_record", lambda *_: fresh.stored)
    monkeypatch.setattr("echelon.engines.kubernetes.follow.pod_lines.read_pod", read_pod)
    nothing: Any = None
    assert [line.text for line in follow.follow_logs(nothing, RECORD.ref, nothing)] == ["hello"]


def test_lines_of_a_worker_that_the_cluster_learns_of_late_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader has told that it started, and how the run ended; its node says so a moment later."""
    leader = pod(0, state=RUNNING, uid="pod-0")
    moments = iter([[leader, pod(1, state=WAITING, uid="pod-1")]] * 3)
    late = [leader, pod(1, state=RUNNING, uid="pod-1")]
    view = View(stored=stored(), jobs=[job(workers=2)], pods=[])
    shown: Any = SimpleNamespace(is_ready=lambda _: True, of=lambda _: [], pods=list, watch=lambda _: None)

    def read_pod(_: object, found: Pod, **__: object) -> Iterator[list[Line]]:
        worker = int(found.metadata.uid[-1])
        told = [{"kind": "worker-started", "at": 1.0, "worker": 1}, VERDICT, LAST] if worker == 0 else []
        lines = [EventLine(sequence=0, at=1.0, payload=json.dumps(each).encode()) for each in told]
        yield [LogLine(text=f"hello from {worker}", at=1.0, worker=worker, rank=worker), *lines]

    monkeypatch.setattr(follow, "_mirror", lambda *_: nullcontext(shown))
    monkeypatch.setattr(follow, "_uid_of_record", lambda *_: "the-record")
    monkeypatch.setattr(follow, "_view", lambda *_: replace(view, pods=next(moments, late)))
    monkeypatch.setattr("echelon.engines.kubernetes.follow.pod_lines.read_pod", read_pod)
    nothing: Any = None
    lines = [line.text for line in follow.follow_logs(nothing, RECORD.ref, nothing)]
    assert sorted(lines) == ["hello from 0", "hello from 1"]
