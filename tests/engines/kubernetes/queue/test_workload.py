"""`--local-queue` for a run of several Jobs: one Workload of Kueue's decides on all of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.engines.kubernetes.api_server import ApiServer, Asked, refused
from tests.engines.kubernetes.queue.test_admitting import REF, jobs, recorded
from tests.engines.kubernetes.rendered import SHIPPED, record_of
from tests.engines.kubernetes.test_ledger import job, on

from echelon.engines.base import NotAdmitted
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.follow.view import View, look
from echelon.engines.kubernetes.queue import admitting, workload
from echelon.engines.kubernetes.record import Stop
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.suspended import is_suspended
from echelon.engines.kubernetes.upkeep.tend import Tender
from echelon.errors import Denied, Refused, Unavailable
from echelon.model.ends import stopped

Object = dict[str, Any]
WANTED = job(shares="any", local_queue="team")
PLAN = on(WANTED, a=5, b=1)
FLAVOR: Object = {"nodeLabels": {"pool": "fast"}, "tolerations": [{"key": "fast", "operator": "Exists"}]}


class WithKueue(ApiServer):
    """A namespace where Kueue is installed."""

    def __init__(self, version: str = "v1beta2") -> None:
        plurals = {
            "Workload": "workloads",
            "ResourceFlavor": "resourceflavors",
            "WorkloadPriorityClass": "workloadpriorityclasses",
        }
        kinds = {kind: f"{plural}.{version}.kueue.x-k8s.io" for kind, plural in plurals.items()}
        super().__init__({"kind": "Namespace", "metadata": {"name": "team"}}, serves=kinds)

    def say(self, **conditions: tuple[bool, str]) -> None:
        """Kueue writes what it has decided."""
        self.objects["Workload", "demo"]["status"] = {
            "conditions": [
                {"type": name, "status": str(holds), "message": why}
                for name, (holds, why) in conditions.items()
            ],
            "admission": {
                "podSetAssignments": [
                    {"name": "demo", "flavors": {"cpu": "fast", names.GPU: "fast"}},
                    {"name": "demo-2", "flavors": {"cpu": "slow"}},
                ]
            },
        }

    def admit(self) -> None:
        self.objects["ResourceFlavor", "fast"] = {"metadata": {"name": "fast"}, "spec": FLAVOR}
        self.say(QuotaReserved=(True, ""), Admitted=(True, "The workload is admitted"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> WithKueue:
    monkeypatch.setattr(workload, "_DECIDES", 0.0)
    monkeypatch.setattr(workload, "_LOOK", 0.0)
    made = WithKueue()
    recorded(made, WANTED, PLAN)
    return made


def view_of(server: ApiServer) -> View:
    return look(server.api, REF)


def start(server: ApiServer) -> None:
    admitting.start_in_kueue(server.api, view_of(server).stored, PLAN)


def pod_object(made: Object) -> Object:
    """The pod of a Job's only worker, at work."""
    about = made["metadata"]
    template = made["spec"]["template"]
    owner = {"kind": "Job", "name": about["name"], "uid": about["uid"], "controller": True}
    marks = {**template["metadata"].get("annotations", {}), names.COMPLETION_INDEX: "0"}
    status = {"name": names.CONTAINER, "state": {"running": {"startedAt": "2026-01-01T00:00:10Z"}}}
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{about['name']}-0",
            "uid": f"{about['name']}-0",
            "labels": {**template["metadata"]["labels"], names.JOB_NAME: about["name"]},
            "annotations": marks,
            "ownerReferences": [owner],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {**template["spec"], "nodeName": "node-a"},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def pod_of(server: ApiServer, name: str) -> Object:
    found: Object = server.objects["Job", name]["spec"]["template"]["spec"]
    return found


def test_it_asks_for_all_jobs_at_once(server: WithKueue) -> None:
    made = server.objects["Workload", "demo"]
    assert made["spec"]["queueName"] == "team"
    assert (
        made["metadata"]["ownerReferences"][0]["uid"]
        == server.objects["ConfigMap", "demo"]["metadata"]["uid"]
    )
    sets = made["spec"]["podSets"]
    assert [(each["name"], each["count"]) for each in sets] == [("demo", 1), ("demo-2", 1)]
    asked = [each["template"]["spec"]["containers"][0]["resources"]["limits"][names.GPU] for each in sets]
    assert asked == ["5", "1"]
    for name in ("demo", "demo-2"):
        assert names.KUEUE_QUEUE not in server.objects["Job", name]["metadata"]["labels"]
        assert server.objects["Job", name]["spec"]["suspend"] is True


OWN: Object = {"label": {"kueue.x-k8s.io/priority-class": "early"}}
PRIORITIES: list[tuple[str, Object, Object]] = [
    (
        "v1beta1",
        OWN,
        {"priorityClassName": "early", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"},
    ),
    (
        "v1beta1",
        {"priority_class": "pods"},
        {"priorityClassName": "pods", "priorityClassSource": "scheduling.k8s.io/priorityclass"},
    ),
    (
        "v1beta2",
        {**OWN, "priority_class": "pods"},
        {
            "priorityClassRef": {
                "group": "kueue.x-k8s.io",
                "kind": "WorkloadPriorityClass",
                "name": "early",
            }
        },
    ),
    (
        "v1beta2",
        {"priority_class": "pods"},
        {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "pods"}},
    ),
]


@pytest.mark.parametrize(("version", "settings", "said"), PRIORITIES)
def test_it_has_the_priority_of_its_class_as_its_version_says_it(
    version: str, settings: Object, said: Object
) -> None:
    server = WithKueue(version)
    server.objects["WorkloadPriorityClass", "early"] = {"metadata": {"name": "early"}, "value": 10}
    server.objects["PriorityClass", "pods"] = {"metadata": {"name": "pods"}, "value": 1000}
    recorded(server, job(shares="any", local_queue="team", **settings), PLAN)
    made = server.objects["Workload", "demo"]
    assert made["apiVersion"] == f"kueue.x-k8s.io/{version}"
    value = 10 if "label" in settings else 1000
    assert {key: each for key, each in made["spec"].items() if key.startswith("priority")} == {
        "priority": value,
        **said,
    }


def test_a_class_that_is_not_there_is_refused() -> None:
    for settings in (OWN, {"priority_class": "early"}):
        with pytest.raises(Unavailable, match=r"there is no .* early"):
            recorded(WithKueue(), job(shares="any", local_queue="team", **settings), PLAN)


def test_a_dry_run_shows_the_workload() -> None:
    found = manifests.render(record_of(WANTED), PLAN, SHIPPED, dialects.named("job"))
    assert [each["kind"] for each in found].count("Workload") == 1
    alone = job(local_queue="team")
    found = manifests.render(record_of(alone), on(alone, a=6), SHIPPED, dialects.named("job"))
    assert "Workload" not in [each["kind"] for each in found]


def test_it_starts_when_kueue_admits_it_and_says_why_until_then(server: WithKueue) -> None:
    with pytest.raises(NotAdmitted, match="queued in Kueue's queue team: not decided yet"):
        start(server)
    server.say(QuotaReserved=(False, "insufficient unused quota for cpu"))
    with pytest.raises(NotAdmitted, match="queued in Kueue's queue team: insufficient unused quota for cpu"):
        start(server)
    assert all(waits for waits, _, _ in jobs(server).values())
    admitting.queue(server.api, REF, "queued in Kueue's queue team: full")
    dialect = dialects.named("job")
    seen = msgspec.convert(server.objects["Job", "demo"], dialect.Shape)
    assert dialect.in_queue(seen) is None, "it keeps no run waiting that Kueue does not admit"
    server.admit()
    start(server)
    assert (jobs(server)["demo"], jobs(server)["demo-2"]) == ((False, 1, "5"), (False, 1, "1"))
    assert pod_of(server, "demo")["nodeSelector"]["pool"] == "fast"
    assert FLAVOR["tolerations"][0] in pod_of(server, "demo")["tolerations"]
    assert "pool" not in (pod_of(server, "demo-2").get("nodeSelector") or {}), "that flavor is not there"
    assert view_of(server).stored.run.plan is not None
    server.changes.clear()
    start(server)
    assert server.changes == []


def test_another_runs_workload_of_that_name_admits_nothing(server: WithKueue) -> None:
    server.admit()
    server.objects["Workload", "demo"]["metadata"]["ownerReferences"] = [{"uid": "of another"}]
    with pytest.raises(NotAdmitted):
        start(server)


def test_without_the_right_to_read_flavors_it_starts_all_the_same(server: WithKueue) -> None:
    server.admit()
    server.denied = {"get ResourceFlavor"}
    start(server)
    assert jobs(server)["demo"][0] is False


def tend(server: ApiServer) -> Tender:
    tender = Tender(server.api, REF, holder="me")
    assert tender.take()
    tender.tend()
    return tender


def test_what_kueue_takes_back_waits_again_and_is_asked_for_anew(server: WithKueue) -> None:
    server.admit()
    start(server)
    first = server.objects["Workload", "demo"]["metadata"]["uid"]
    server.say(Admitted=(True, ""), Evicted=(True, "Preempted to accommodate a workload"))
    tend(server)
    assert all(waits for waits, _, _ in jobs(server).values())
    queued = view_of(server).stored.queued
    assert queued[-1].reason == "Kueue has taken its quota back: Preempted to accommodate a workload"
    again = server.objects["Workload", "demo"]
    assert again["metadata"]["uid"] != first
    assert "nodeSelector" not in again["spec"]["podSets"][0]["template"]["spec"], (
        "another flavor may be given"
    )
    with pytest.raises(NotAdmitted):
        start(server)
    server.admit()
    start(server)
    assert jobs(server)["demo"][0] is False


def test_kueue_is_informed_once_that_the_pods_are_at_work(server: WithKueue) -> None:
    def ready() -> list[Object]:
        return [each for each in server.objects["Workload", "demo"]["status"]["conditions"] if is_ready(each)]

    def is_ready(condition: Object) -> bool:
        return bool(condition["type"] == "PodsReady" and condition["status"] == "True")

    server.admit()
    start(server)
    tender = tend(server)
    assert not ready(), "they have not started"
    for name in ("demo", "demo-2"):
        pod = pod_object(server.objects["Job", name])
        server.objects["Pod", pod["metadata"]["name"]] = pod
    busy = [refused(409, "Conflict", "the object has been modified")]

    def at_first(asked: Asked) -> None:
        if asked.below == "status" and busy:
            raise busy.pop()

    server.rules.append(at_first)
    tender.tend()
    assert not ready(), "Kueue wrote at the same time"
    tender.tend()
    assert len(ready()) == 1
    kept = {each["type"] for each in server.objects["Workload", "demo"]["status"]["conditions"]}
    assert kept == {"QuotaReserved", "Admitted", "PodsReady"}
    server.changes.clear()
    tender.tend()
    assert not [each for each in server.changes if each.kind == "Workload"]


def test_without_the_right_to_say_it_the_run_goes_on_and_it_is_tried_once(server: WithKueue) -> None:
    server.admit()
    start(server)
    for name in ("demo", "demo-2"):
        pod = pod_object(server.objects["Job", name])
        server.objects["Pod", pod["metadata"]["name"]] = pod
    server.denied = {"patch Workload"}
    tender = tend(server)
    tender.tend()
    tried = [each for each in server.asked if (each.verb, each.kind) == ("patch", "Workload")]
    assert len(tried) == 1
    assert not any(is_suspended(server.objects["Job", name]) for name in ("demo", "demo-2"))


def test_the_quota_is_free_when_the_run_is_over_or_leaves_the_queue(server: WithKueue) -> None:
    server.admit()
    start(server)
    tender = tend(server)
    assert ("Workload", "demo") in server.objects
    tender.keep(stopped("stopped by ann", at=1.0))
    assert ("Workload", "demo") not in server.objects

    other = WithKueue()
    recorded(other, WANTED, PLAN)
    assert admitting.withdraw(other.api, view_of(other), Stop(at=1.0, reason="stopped"))
    assert ("Workload", "demo") not in other.objects
    assert is_suspended(other.objects["Job", "demo-2"])


def test_without_the_right_to_workloads_it_is_refused_with_what_to_do() -> None:
    server = WithKueue()
    server.denied = {"create Workload"}
    with pytest.raises(Denied, match="a run of several Jobs needs a Workload of its own") as caught:
        recorded(server, WANTED, PLAN)
    assert "workloads.kueue.x-k8s.io" in caught.value.hint


def test_of_an_earlier_run_of_the_name_it_goes_and_a_strangers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_LOOK", 0.0)
    server = WithKueue()
    record = {"kind": "ConfigMap", "name": "demo", "uid": "x"}
    old = {"name": "demo", "uid": "old", "labels": {names.RUN: "demo"}, "ownerReferences": [record]}
    server.objects["Workload", "demo"] = {"kind": "Workload", "metadata": old}
    recorded(server, WANTED, PLAN)
    assert server.objects["Workload", "demo"]["metadata"]["uid"] != "old"
    strange = WithKueue()
    strange.objects["Workload", "demo"] = {"kind": "Workload", "metadata": {"name": "demo", "uid": "s"}}
    with pytest.raises(Refused, match="a Workload named 'demo'"):
        recorded(strange, WANTED, PLAN)


def test_a_cluster_that_has_lost_kueue_frees_without_an_error(server: WithKueue) -> None:
    stored = view_of(server).stored
    gone = ApiServer(*server.objects.values())
    workload.free(gone.api, stored)
