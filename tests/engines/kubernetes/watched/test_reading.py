"""The pods of Kubeflow's jobs: those that controllers made of a job, however others are labelled."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.engines.kubernetes.stand_in import StandIn, refuses, says
from tests.engines.kubernetes.watched.test_state import RUNNING, pod

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.watched.kinds import parse_address
from echelon.engines.kubernetes.watched.reading import read_all, read_one

JOBSET = "jobset.sigs.k8s.io/"
GROUPS = {
    "/apis/kubeflow.org/v1": ("pytorchjobs",),
    "/apis/kubeflow.org/v2beta1": ("mpijobs",),
    "/apis/trainer.kubeflow.org/v1alpha1": ("trainjobs",),
    "/apis/jobset.x-k8s.io/v1alpha2": ("jobsets",),
}


def thing(name: str, uid: str, *, by: tuple[str, str, str] | None = None, **more: Any) -> dict[str, Any]:
    """An object, and of which kind, name and uid the one is that its controller made it of."""
    about: dict[str, Any] = {"name": name, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    if by is not None:
        kind, called, of = by
        about["ownerReferences"] = [{"kind": kind, "name": called, "uid": of, "controller": True}]
    return {"metadata": {**about, **more.pop("metadata", {})}, **more}


def one_pod(name: str, by: tuple[str, str, str] | None, **labels: str) -> dict[str, Any]:
    made = pod("worker", 0, RUNNING)
    about = thing(name, f"uid-of-{name}", by=by)["metadata"]
    return {**made, "metadata": {**about, "labels": labels}}


def serve(stand_in: StandIn, lists: dict[str, list[dict[str, Any]]], denied: tuple[str, ...] = ()) -> None:
    """Answer lists with these objects, as far as the selector's first label is theirs."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        if parts.path in GROUPS:
            named = [{"name": each, "kind": each[:-1], "namespaced": True} for each in GROUPS[parts.path]]
            says(200, {"kind": "APIResourceList", "resources": named})(handler)
            return
        plural = parts.path.rpartition("/")[2]
        if plural in denied:
            refuses(403, "Forbidden", f'User "ann" cannot list resource "{plural}"')(handler)
        elif plural in lists:
            (chosen,) = parse_qs(parts.query).get("labelSelector", [""])
            key = chosen.split(",")[0].split(" ")[0].split("=")[0] if plural == "pods" else ""
            found = [each for each in lists[plural] if not key or key in each["metadata"]["labels"]]
            says(200, json.loads(json.dumps({"kind": "List", "metadata": {}, "items": found})))(handler)
        else:
            refuses(404, "NotFound", "no such path")(handler)

    stand_in.answer_with(answer)


TRAINJOB = thing("tune", "t1", spec={"trainer": {"numNodes": 2}})
TIERS = {
    "jobsets": [
        thing("tune", "s1", by=("TrainJob", "tune", "t1"), status={"restarts": 2}),
        thing("other", "s2", by=("TrainJob", "other", "t2")),
    ],
    "jobs": [
        thing("tune-node-0", "j1", by=("JobSet", "tune", "s1")),
        thing("tune-node-1", "j2", by=("JobSet", "other", "s2")),
        thing("bert-launcher", "j3", by=("MPIJob", "bert", "m1")),
        thing("bert-launcher-2", "j4", by=("MPIJob", "bert", "an-earlier-one")),
    ],
}


def of_trainjob(name: str, job: str, uid: str, index: int, attempt: int = 2) -> dict[str, Any]:
    labels = {
        f"{JOBSET}jobset-name": "tune",
        f"{JOBSET}replicatedjob-name": "node",
        f"{JOBSET}restart-attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return one_pod(name, ("Job", job, uid), **labels)


TUNING = [
    of_trainjob("tune-node-0-0-a", "tune-node-0", "j1", 0),
    of_trainjob("a-strangers", "tune-node-0", "j9", 1),
    of_trainjob("of-another", "tune-node-1", "j2", 1),
]


@pytest.mark.core
def test_a_trainjobs_pods_are_those_of_its_jobsets_jobs(api: Api, stand_in: StandIn) -> None:
    serve(stand_in, {"pods": TUNING, **TIERS})
    seen = read_one(api, parse_address("trainjob/tune"), TRAINJOB)
    assert {number: each.metadata.name for number, each in seen.pods.items()} == {0: "tune-node-0-0-a"}
    assert seen.restarts == 2, "as its own JobSet says"


def test_without_the_right_to_see_what_is_between_labels_count(api: Api, stand_in: StandIn) -> None:
    serve(stand_in, {"pods": [TUNING[0]], **TIERS}, denied=("jobsets",))
    seen = read_one(api, parse_address("trainjob/tune"), TRAINJOB)
    assert list(seen.pods) == [0]


@pytest.mark.parametrize("word", ["mpijob", "pytorchjob"])
def test_pods_that_a_controller_makes_itself(api: Api, stand_in: StandIn, word: str) -> None:
    kind = {"mpijob": "MPIJob", "pytorchjob": "PyTorchJob"}[word]

    def of(name: str, by: tuple[str, str, str] | None, role: str) -> dict[str, Any]:
        prefix = "training.kubeflow.org/"
        labels = {f"{prefix}job-name": "bert", f"{prefix}job-role": role, f"{prefix}replica-index": "0"}
        return one_pod(name, by, **labels)

    pods = [
        of("worker-0", (kind, "bert", "m1"), "worker"),
        of("nobodys", None, "worker"),
        of("an-earlier-ones", (kind, "bert", "m0"), "worker"),
        of("launcher", ("Job", "bert-launcher", "j3"), "launcher"),
        of("an-earlier-launcher", ("Job", "bert-launcher-2", "j4"), "launcher"),
    ]
    serve(stand_in, {"pods": pods, **TIERS})
    specs = {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 1}}}
    seen = read_one(api, parse_address(f"{word}/bert"), thing("bert", "m1", spec=specs))
    found = sorted(each.metadata.name for each in seen.pods.values())
    assert found == ["launcher", "worker-0"][word == "pytorchjob" :]


def test_all_jobs_take_no_more_lists_than_one(api: Api, stand_in: StandIn) -> None:
    def count(number: int) -> list[str]:
        jobs = [thing(f"tune-{each}", f"t{each}", spec={}) for each in range(number)]
        serve(stand_in, {"pods": TUNING, "trainjobs": [TRAINJOB, *jobs], **TIERS})
        stand_in.seen.clear()
        assert len(read_all(api)) == number + 1
        return [path.partition("?")[0] for path in stand_in.paths() if "/namespaces/" in path]

    read_all(api)  # which kinds there are is asked once
    few = count(1)
    assert len(few) == len(count(20))
    assert sum(path.endswith("/pods") for path in few) == 1
