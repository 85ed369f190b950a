"""A run of several Jobs starts whole or not at all, however its client is cut off; and a stop ends every Job
of it, those too that were made after it was asked for. The server is one in memory: it can be cut anywhere.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.engines.kubernetes.api_server import Asked, refused
from tests.engines.kubernetes.queue.test_admitting import REF, Killed, Server
from tests.engines.kubernetes.rendered import SHIPPED, cluster, record_of

from echelon.engines.kubernetes import ending, names, objects, record
from echelon.engines.kubernetes.diagnose.queueing import find_untended
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.engines.kubernetes.follow.evidence import evidence
from echelon.engines.kubernetes.follow.view import View, look
from echelon.engines.kubernetes.queue import making
from echelon.engines.kubernetes.record import SUBMISSION, Stop
from echelon.engines.kubernetes.state.outcome import finished_event
from echelon.engines.kubernetes.state.standing import standing
from echelon.engines.kubernetes.upkeep.actions import CompleteStart, EndJobs
from echelon.engines.kubernetes.upkeep.decisions import RunView, decide
from echelon.engines.kubernetes.upkeep.tend import carry_out
from echelon.errors import Unreachable
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.plan import Placement, Plan
from echelon.model.settings import RoleSettings, Settings
from echelon.placement import place
from echelon.planning import candidates, make_plan

Object = dict[str, Any]
JOBS = ("demo", "demo-ps")


class Cluster(Server):
    """The same, whose answers may get lost, and in which something may happen at any write."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[tuple[str, str]] = set()  # verb and kind of writes whose answer is lost, once each
        self.writes = 0
        self.before_write: Callable[[int], object] = lambda _number: None
        self.rules.insert(0, self._count)
        kill = self.after
        self.after = lambda asked: (kill(asked), self._lose(asked))

    def _count(self, asked: Asked) -> None:
        if asked.changes and asked.verb != "delete":
            self.writes += 1
            self.before_write(self.writes)

    def _lose(self, asked: Asked) -> None:
        if (asked.verb, asked.kind) in self.lost:
            self.lost.remove((asked.verb, asked.kind))
            raise refused(503, "ServiceUnavailable", "starting")

    @property
    def jobs(self) -> dict[str, Object]:
        found = {name: obj for (kind, name), obj in self.objects.items() if kind == "Job"}
        return {name: obj for name, obj in found.items() if name in JOBS}

    def look(self) -> View:
        return look(self.api, REF)

    def stop(self) -> None:
        """Somebody else writes a stop into the record."""
        change = record.stopping(Stop(at=1.0, reason="stopped by ann"))
        self.writes, known = -1000, self.writes  # it is none of the submission's
        self.api.patch("ConfigMap", "demo", change)
        self.writes = known


def with_roles() -> tuple[Job, Plan]:
    said = Settings(
        name="demo",
        script="train.py",
        framework="tensorflow",
        workers=2,
        roles={"ps": RoleSettings(workers=2)},
        image="my/image:1",
    )
    wanted = to_job(said, name="demo")
    there = cluster()
    (candidate,) = candidates(wanted, there)
    found = place(candidate.world, there, candidate.nodes)
    assert isinstance(found, Placement)
    return wanted, make_plan(wanted, candidate.world, found, there)


def engine_of(server: Cluster) -> KubernetesEngine:
    engine = KubernetesEngine()
    engine.__dict__["api"] = server.api
    return engine


def submit(server: Cluster) -> None:
    """What is made of a run after its record; saying it again is the same call."""
    wanted, plan = with_roles()
    if server.objects.get(("ConfigMap", "demo")) is None:
        objects.create_record(server.api, record.new(record_of(wanted), SHIPPED))
    engine_of(server).start(REF, plan)


def waiting(server: Cluster) -> set[str]:
    return {name for name, job in server.jobs.items() if job["spec"].get("suspend")}


def ended(server: Cluster) -> set[str]:
    """Jobs that the controller ends, or that end without a pod."""
    return {
        name
        for name, job in server.jobs.items()
        if job["spec"].get("activeDeadlineSeconds") == 1
        or (job["spec"]["completions"] == 0 and not job["spec"]["suspend"])
    }


def check_whole(server: Cluster) -> None:
    view = server.look()
    assert set(server.jobs) == set(JOBS)
    assert waiting(server) == set()
    assert view.stored.started
    assert view.stored.owners == {server.jobs["demo"]["metadata"]["uid"]}


def test_several_jobs_are_made_to_wait_and_released_when_all_are_there() -> None:
    server = Cluster()
    submit(server)
    check_whole(server)
    done = [(each.verb, each.name) for each in server.changes if each.kind == "Job"]
    made = [("create", name) for name in JOBS]
    assert done == [*made, *(("patch", name) for name in JOBS)], "none before the last was there"


def test_a_run_of_one_job_never_waits() -> None:
    said = Settings(name="demo", script="train.py", workers=2, image="my/image:1", framework="plain")
    wanted = to_job(said, name="demo")
    (candidate,) = candidates(wanted, cluster())
    found = place(candidate.world, cluster(), candidate.nodes)
    assert isinstance(found, Placement)
    server = Cluster()
    server.api.create(record.new(record_of(wanted), SHIPPED))
    engine_of(server).start(REF, make_plan(wanted, candidate.world, found, cluster()))
    patched = [each.name for each in server.asked if (each.verb, each.kind) == ("patch", "Job")]
    assert patched == []
    assert waiting(server) == set()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("who", ["repeats", "tends"])
def test_what_is_cut_off_at_any_write_is_made_whole(after: bool, who: str) -> None:
    for at in itertools.count(1):
        server = Cluster()
        server.killed_at, server.killed_after = at, after
        try:
            submit(server)
        except Killed:
            server.killed_at = 0
        else:
            assert at > 5, "it is written so often"
            return
        started = set(server.jobs) - waiting(server)
        assert not started or set(server.jobs) == set(JOBS), "half a gang never runs"
        if who == "tends" and server.jobs:
            tend(server, SUBMISSION + 1)
        else:
            submit(server)
        check_whole(server)


def tend(server: Cluster, later: float) -> None:
    """What a tender does, so many seconds after the start."""
    view = server.look()
    now = (view.stored.admitted or 0.0) + later
    for action in decide(RunView(objects=view), now):
        carry_out(server.api, view, action)


def test_a_client_that_is_at_it_is_left_alone() -> None:
    server = Cluster()
    server.killed_at, server.killed_after = 2, True  # the record, the first Job
    with pytest.raises(Killed):
        submit(server)
    view = server.look()
    assert set(server.jobs) == {"demo"}
    assert waiting(server) == {"demo"}
    assert standing(evidence(view), 1e9).state == "starting"
    admitted = view.stored.admitted or 0.0
    assert decide(RunView(objects=view), admitted + 1) == []
    assert find_untended(view.stored, view.jobs, now=admitted + 1) is None
    late = admitted + SUBMISSION + 1
    assert CompleteStart() in decide(RunView(objects=view), late)
    told = find_untended(view.stored, view.jobs, now=late)
    assert told is not None
    assert (told.kind, "cut off" in told.sentence, "wait demo" in told.hint) == ("untended", True, True)


def test_a_stop_at_any_write_ends_every_job() -> None:
    for at in itertools.count(2):  # from after the record on
        server = Cluster()

        def stop(number: int, at: int = at, server: Cluster = server) -> None:
            if number == at:
                server.stop()

        server.before_write = stop
        submit(server)
        if server.writes < at:
            assert at > 6, "it is written so often"
            return
        assert ended(server) == set(server.jobs), f"stopped before write {at}"


@pytest.mark.parametrize("after", [False, True])
def test_a_client_that_is_killed_after_a_stop_leaves_nothing_that_runs(after: bool) -> None:
    """Whoever tends the run then, or says `stop` again, ends what there is."""
    for at in itertools.count(4):  # the stop is a write, too
        server = Cluster()
        server.before_write = lambda number, server=server: server.stop() if number == 3 else None  # type: ignore[misc]
        server.killed_at, server.killed_after = at, after
        try:
            submit(server)
        except Killed:
            server.killed_at = 0
        else:
            return
        assert set(server.jobs) - waiting(server) <= ended(server), "what waits has no pods"
        view = server.look()
        if view.jobs and not ended(server):
            assert EndJobs() in decide(RunView(objects=view), 1e9)
            tend(server, 1e9)
            assert ended(server) == set(server.jobs)


def test_a_run_that_was_cut_off_is_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Cluster()
    server.killed_at, server.killed_after = 3, True
    with pytest.raises(Killed):
        submit(server)
    monkeypatch.setattr(ending, "_LOOK", 0.0)
    monkeypatch.setattr(record, "SUBMISSION", 0.0)  # the client is not waited for
    assert ending.stop_run(server.api, REF, "SIGTERM") is None
    assert ended(server) == set(JOBS)
    for job in server.jobs.values():  # as the controller does
        job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    view = server.look()
    end = finished_event(view.stored, view.jobs, view.pods)
    assert end is not None
    assert end.outcome == "stopped", "and not succeeded, though its Jobs are complete"


@pytest.mark.parametrize("lost", [("create", "ConfigMap"), ("create", "Job"), ("patch", "Job")])
def test_an_answer_that_is_lost_is_no_failure(lost: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked for was done: the run goes on. (Patches are sent again by the client itself.)"""
    monkeypatch.setattr(objects, "_LOOK", 0.0)
    server = Cluster()
    server.lost = {lost}
    if lost[0] == "patch":
        monkeypatch.setattr(making, "_release", again(making._release))
    submit(server)
    assert server.lost == set()
    check_whole(server)


def again(call: Callable[..., Object]) -> Callable[..., Object]:
    def twice(*words: Any) -> Object:
        try:
            return call(*words)
        except Unreachable:
            return call(*words)

    return twice


def test_a_record_of_somebody_else_is_not_taken_for_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_LOOK", 0.0)
    wanted, _ = with_roles()
    server = Cluster()
    theirs = record.new(record_of(wanted), SHIPPED)
    theirs["data"]["record.json"] = json.dumps({**json.loads(theirs["data"]["record.json"]), "created": 5.0})
    server.api.create(theirs)
    server.lost = {("create", "ConfigMap")}
    with pytest.raises(Exception, match="demo"):
        objects.create_record(server.api, record.new(record_of(wanted), SHIPPED))


def test_jobs_have_the_names_of_the_test() -> None:
    _, plan = with_roles()
    assert tuple(names.job_names("demo", plan.world)) == JOBS
