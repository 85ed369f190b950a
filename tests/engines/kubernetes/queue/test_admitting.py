"""Admission by patches alone; and on a server that freezes what suspended Jobs may change, which no server
that the tests start does: here it is one in memory.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.engines.kubernetes.api_server import ApiServer, Asked, refused
from tests.engines.kubernetes.rendered import SHIPPED, record_of
from tests.engines.kubernetes.test_ledger import job, on

from echelon.engines.base import ShapeKept, Taken
from echelon.engines.kubernetes import control, names, record
from echelon.engines.kubernetes.follow import evidence
from echelon.engines.kubernetes.follow.view import look
from echelon.engines.kubernetes.queue import admitting
from echelon.engines.kubernetes.record import Stop
from echelon.engines.kubernetes.state.history import LeaderEvents
from echelon.engines.kubernetes.state.outcome import finished_event
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.run import RunRef

Object = dict[str, Any]
REF = RunRef(engine="k8s", name="demo", namespace="team")


class Killed(BaseException):
    """The client ended here."""


class Server(ApiServer):
    """One on which a client may be killed: at a write, before or after it is done."""

    def __init__(self) -> None:
        super().__init__({"kind": "Namespace", "metadata": {"name": "team"}})
        self.killed_at = 0
        self.killed_after = False
        self.rules.append(lambda asked: self.killed_after or self._kill(asked))
        self.after = lambda asked: self.killed_after and self._kill(asked)

    def _kill(self, asked: Asked) -> None:
        if asked.changes and asked.verb != "delete":
            self.killed_at -= 1
            if self.killed_at == 0:
                raise Killed

    def freeze(self) -> None:
        """Let pods of suspended Jobs keep their resources."""
        self.rules.append(frozen)


def frozen(asked: Asked) -> None:
    template = asked.body.get("spec", {}).get("template", {}) if asked.verb == "patch" else {}
    if "containers" in template.get("spec", {}):
        raise refused(422, "Invalid", "spec.template: field is immutable")


def recorded(server: ApiServer, wanted: Job, plan: Plan, **variables: str) -> None:
    """What the engine has made when a run is recorded whose Jobs wait."""
    run = record_of(wanted)
    known = server.api.create(record.new(run, SHIPPED))
    admitting.hold(server.api, record.read(known, REF), plan, variables)
    server.asked.clear()


def start(server: Server, plan: Plan, check: Callable[[], None] = lambda: None) -> None:
    admitting.start(server.api, REF, plan, check)


def jobs(server: ApiServer) -> dict[str, tuple[bool, int, str]]:
    """Of every Job: whether it waits, its workers, and the GPUs of each."""
    return {
        name: (
            obj["spec"].get("suspend", False),
            obj["spec"].get("completions", 1),
            (obj["spec"]["template"]["spec"]["containers"][0]["resources"].get("limits") or {}).get(
                names.GPU, ""
            ),
        )
        for (kind, name), obj in server.objects.items()
        if kind == "Job"
    }


def test_admission_is_patches_of_jobs_and_nothing_else() -> None:
    server, wanted = Server(), job()
    recorded(server, wanted, on(wanted, a=3, b=3))
    assert jobs(server) == {"demo": (True, 2, "3"), "demo-keeper": (True, 1, "")}
    server.denied = {"create *", "delete *", "patch ConfigMap", "get Lease", "get Job", "get Secret"}
    start(server, on(wanted, a=6))
    assert jobs(server) == {"demo": (False, 1, "6"), "demo-keeper": (False, 1, "")}
    verbs = {(each.verb, each.kind) for each in server.asked if each.kind != "Lease"}
    assert verbs == {("get", "ConfigMap"), ("list", "Job"), ("patch", "Job"), ("get", "Namespace")}
    assert look(server.api, REF).stored.run.plan == on(wanted, a=6)
    before = copy.deepcopy(server.objects)
    start(server, on(wanted, a=3, b=3))
    assert server.objects == before, "starting again does nothing"


def test_a_controller_that_changes_the_status_meanwhile_is_no_obstacle() -> None:
    server, wanted = Server(), job()
    recorded(server, wanted, on(wanted, a=3, b=3))
    touched: list[str] = []

    def touch(asked: Asked) -> None:
        if (asked.verb, asked.name) == ("patch", "demo") and len(touched) < 2:
            touched.append(asked.name)
            server.touch("Job", asked.name)

    server.rules.append(touch)
    start(server, on(wanted, a=6))
    assert jobs(server)["demo"] == (False, 1, "6")


def test_of_two_that_admit_a_run_at_once_one_does() -> None:
    server, wanted = Server(), job()
    recorded(server, wanted, on(wanted, a=3, b=3))

    def other(asked: Asked) -> None:
        if asked.verb == "patch":
            server.rules.remove(other)
            start(server, on(wanted, a=6))

    server.denied = {"get Lease"}
    server.rules.append(other)
    start(server, on(wanted, a=3, b=3))
    assert jobs(server)["demo"] == (False, 1, "6"), "the plan of the one that was first"


def test_what_is_taken_is_not_started() -> None:
    server, wanted = Server(), job()
    recorded(server, wanted, on(wanted, a=3, b=3))

    def taken() -> None:
        raise Taken("another")

    with pytest.raises(Taken):
        start(server, on(wanted, a=6), taken)
    assert jobs(server)["demo"] == (True, 2, "3")
    assert server.objects["Lease", names.ADMISSION_LEASE]["spec"]["holderIdentity"] == "", "it is given back"


def test_on_a_server_that_freezes_sizes_the_users_command_makes_the_jobs_anew() -> None:
    server, wanted = Server(), job(shares="any")
    recorded(server, wanted, on(wanted, a=5, b=1))
    server.freeze()
    uid = server.objects["Job", "demo"]["metadata"]["uid"]
    start(server, on(wanted, a=4, b=2))
    assert {name: size[:3] for name, size in jobs(server).items() if name != "demo-keeper"} == {
        "demo": (False, 1, "4"),
        "demo-2": (False, 1, "2"),
    }
    assert server.objects["Job", "demo"]["metadata"]["uid"] != uid
    about = server.objects["ConfigMap", "demo"]["metadata"]
    assert [each["uid"] for each in about["ownerReferences"]] == [
        server.objects["Job", "demo"]["metadata"]["uid"]
    ]
    view = look(server.api, REF)
    assert view.stored.run.plan == on(wanted, a=4, b=2)
    assert [each["metadata"]["name"] for each in view.jobs] == ["demo", "demo-2"]


@pytest.mark.parametrize("freezes", [False, True])
def test_ranks_of_a_run_that_waits_have_the_width_of_their_users_terminal(freezes: bool) -> None:
    """It is known to the command that submits, and to no process that admits."""
    server, wanted = Server(), job(shares="any")
    recorded(server, wanted, on(wanted, a=5, b=1), COLUMNS="90")
    if freezes:
        server.freeze()
    start(server, on(wanted, a=4, b=2))
    for name in ("demo", "demo-2"):
        template = server.objects["Job", name]["spec"]["template"]
        task = json.loads(template["metadata"]["annotations"][names.AGENTS_TASK])
        assert task["env"]["COLUMNS"] == "90"
        assert [group["workers"] for group in task["groups"]] == [1, 1]


def test_there_a_process_that_may_not_create_keeps_the_shape() -> None:
    server, wanted = Server(), job()
    recorded(server, wanted, on(wanted, a=3, b=3))
    server.freeze()
    server.denied = {"create *", "delete *", "patch ConfigMap"}
    with pytest.raises(ShapeKept) as caught:
        start(server, on(wanted, a=6))
    assert caught.value.world == on(wanted, a=3, b=3).world
    assert jobs(server)["demo"] == (True, 2, "3"), "nothing was lost by the try"
    start(server, on(wanted, b=3, c=3))
    assert jobs(server)["demo"] == (False, 2, "3")


def test_more_groups_than_there_are_jobs() -> None:
    server, wanted = Server(), job(shares="any")
    recorded(server, wanted, on(wanted, a=6))
    server.denied = {"create *"}
    with pytest.raises(ShapeKept):
        start(server, on(wanted, a=5, b=1))
    server.denied = set()
    start(server, on(wanted, a=5, b=1))
    assert jobs(server)["demo-2"] == (False, 1, "1")


def test_fewer_groups_than_there_are_jobs() -> None:
    server, wanted = Server(), job(shares="any")
    recorded(server, wanted, on(wanted, a=5, b=1))
    start(server, on(wanted, a=6))
    assert jobs(server)["demo"] == (False, 1, "6")
    assert jobs(server)["demo-2"] == (True, 1, "1"), "it goes with the record"
    view = look(server.api, REF)
    assert [each["metadata"]["name"] for each in view.jobs] == ["demo"]
    assert view.waiting == []


def test_a_roll_back_and_another_shape() -> None:
    server, wanted = Server(), job(shares="any")
    recorded(server, wanted, on(wanted, a=5, b=1))
    start(server, on(wanted, a=5, b=1))
    admitting.roll_back(server.api, look(server.api, REF), "1 of 2 workers found a node")
    assert {size[0] for size in jobs(server).values()} == {True}, "the keeper, too"
    patched = [each.name for each in server.asked if (each.verb, each.kind) == ("patch", "Job")]
    assert patched[-3:] == ["demo-2", "demo", "demo-keeper"], "the first Job last: until then it is admitted"
    waits = look(server.api, REF)
    assert [each.reason for each in waits.stored.queued] == ["1 of 2 workers found a node"]
    start(server, on(wanted, a=4, b=2))
    assert (jobs(server)["demo"], jobs(server)["demo-2"]) == ((False, 1, "4"), (False, 1, "2"))


def test_a_run_that_leaves_the_queue_is_never_admitted() -> None:
    server, wanted = Server(), job()
    recorded(server, wanted, on(wanted, a=3, b=3))
    admitting.queue(server.api, REF, "no room")
    view = look(server.api, REF)
    assert admitting.withdraw(server.api, view, Stop(at=1.0, reason="stopped by ann"))
    start(server, on(wanted, a=6))
    assert jobs(server)["demo"][:2] == (False, 0), "it ends without a pod"
    after = look(server.api, REF)
    assert (after.jobs, after.stored.stop and after.stored.stop.reason) == ([], "stopped by ann")
    admitting.queue(server.api, REF, "still no room")
    assert [each.reason for each in after.stored.queued] == ["no room"]


def test_a_run_that_is_admitted_at_this_moment_is_not_withdrawn() -> None:
    server, wanted = Server(), job()
    recorded(server, wanted, on(wanted, a=3, b=3))
    view = look(server.api, REF)
    start(server, on(wanted, a=6))
    assert not admitting.withdraw(server.api, view, Stop(at=1.0, reason="stopped by ann"))
    assert jobs(server)["demo"] == (False, 1, "6")


def test_what_ends_a_job_follows_from_whether_it_waits() -> None:
    """A deadline is ignored while a Job is suspended; and a keeper's number of pods never changes."""
    server, wanted = Server(), job(shares="any")
    recorded(server, wanted, on(wanted, a=5, b=1))
    server.objects["Job", "demo"]["spec"]["suspend"] = False  # the client was killed after the first patch
    control.end_jobs(server.api, server.api.list("Job").items)
    assert server.objects["Job", "demo"]["spec"]["activeDeadlineSeconds"] == 1
    assert server.objects["Job", "demo-2"]["spec"]["completions"] == 0
    assert jobs(server)["demo-keeper"] == (True, 1, "")


@pytest.mark.parametrize("after", [False, True])
def test_a_submission_that_is_killed_at_any_write_is_taken_up_by_repeating_it(after: bool) -> None:
    wanted = job(shares="any")
    shape, plan = on(wanted, a=5, b=1), on(wanted, a=4, b=2)

    def submit_to(server: Server) -> None:
        found = server.api.find("ConfigMap", "demo")
        known = found or server.api.create(record.new(record_of(wanted), SHIPPED))
        admitting.hold(server.api, record.read(known, REF), shape)
        start(server, plan)

    for at in itertools.count(1):
        server = Server()
        server.killed_at, server.killed_after = at, after
        try:
            submit_to(server)
        except Killed:
            server.killed_at = 0
            view = look(server.api, REF) if server.objects.get(("ConfigMap", "demo")) else None
            if view is not None and view.jobs:  # it is admitted, perhaps in part: upkeep decides
                admitting.roll_back(server.api, view, "it was cut off")
            submit_to(server)
        else:
            assert at > 6, "it is written so often"
            return
        assert (jobs(server)["demo"], jobs(server)["demo-2"]) == ((False, 1, "4"), (False, 1, "2")), at
        about = server.objects["ConfigMap", "demo"]["metadata"]
        first = server.objects["Job", "demo"]["metadata"]["uid"]
        assert [each["uid"] for each in about["ownerReferences"]] == [first], at


def test_jobs_that_a_watch_has_not_shown_yet_are_looked_for_before_a_run_counts_as_lost() -> None:
    server, wanted = Server(), job()
    recorded(server, wanted, on(wanted, a=3, b=3))
    start(server, on(wanted, a=3, b=3))
    seen = look(server.api, REF)
    behind = replace(seen, jobs=[], pods=[])
    end = finished_event(behind.stored, behind.jobs, behind.pods)
    assert end is not None
    assert end.outcome == "lost", "as it would be if they were deleted"
    assert evidence.confirm(server.api, REF, behind, LeaderEvents()) is None
