"""Documents beside a job: made where they are absent, all or none, namespaces first."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

from echelon.engines.kubernetes.abilities.applying import ClusterManifests
from echelon.engines.kubernetes.client.api import Api
from echelon.errors import Denied, EchelonError

Object = dict[str, Any]
CORE = {
    "kind": "APIResourceList",
    "resources": [
        {"name": "namespaces", "kind": "Namespace", "namespaced": False},
        {"name": "persistentvolumes", "kind": "PersistentVolume", "namespaced": False},
        {"name": "persistentvolumeclaims", "kind": "PersistentVolumeClaim", "namespaced": True},
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "secrets", "kind": "Secret", "namespaced": True},
        {"name": "services", "kind": "Service", "namespaced": True},
    ],
}


def document(kind: str, name: str, **more: object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


MANUAL = [
    document("PersistentVolume", "disk"),
    document("PersistentVolumeClaim", "data"),
    document("ConfigMap", "src", data={"train.py": "print(1)"}),
    document("Secret", "token", stringData={"key": "hidden"}),
    document("Service", "mnist"),
    document("Namespace", "team"),
]


class Server:
    """As much of an API server as creates objects: which there are, and which nobody may create."""

    def __init__(
        self, stand_in: StandIn, *, there: tuple[str, ...] = (), denied: tuple[str, ...] = ()
    ) -> None:
        self.there, self.denied, self.made = set(there), denied, list[str]()
        self.seen = stand_in.seen
        stand_in.answer_with(self.answer)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        if path.endswith("/api/v1"):
            says(200, CORE)(handler)
        elif handler.command == "POST":
            self.create(handler, dry_run="dryRun" in query)
        elif path.rpartition("/")[2] in self.there:
            says(200, document("Any", "any"))(handler)
        else:
            refuses(404, "NotFound", "no such object")(handler)

    def create(self, handler: BaseHTTPRequestHandler, *, dry_run: bool) -> None:
        wanted = json.loads(self.seen[-1].body)
        name, place = wanted["metadata"]["name"], handler.path.partition("/namespaces/")[2].partition("/")[0]
        if name in self.denied:
            refuses(403, "Forbidden", f'User "ann" cannot create resource "{name}" in API group ""')(handler)
        elif name in self.there:
            refuses(409, "AlreadyExists", "it is there")(handler)
        elif place and place not in self.there:
            refuses(404, "NotFound", f'namespaces "{place}" not found')(handler)
        else:
            if not dry_run:
                self.there.add(name)
                self.made.append(name)
            says(201, wanted)(handler)


def put(api: Api, objects: list[Object], *, dry_run: bool = False) -> dict[str, str]:
    done = ClusterManifests(lambda: api).put(objects, dry_run=dry_run)
    return {f"{each.kind} {each.name}": each.done for each in done}


def test_what_a_manual_has_beside_its_job_is_made_in_its_namespace(api: Api, stand_in: StandIn) -> None:
    server = Server(stand_in)
    names = {f"{each['kind']} {each['metadata']['name']}" for each in MANUAL}
    assert put(api, MANUAL, dry_run=True) == dict.fromkeys(names, "created")
    assert not server.made
    assert put(api, MANUAL) == dict.fromkeys(names, "created")
    assert server.made == ["team", "disk", "data", "src", "token", "mnist"], "the namespace first"


def test_what_is_there_stays_but_for_the_content_of_config_maps_and_secrets(
    api: Api, stand_in: StandIn
) -> None:
    server = Server(stand_in, there=("team", "disk", "data", "mnist", "src", "token"))
    assert put(api, MANUAL, dry_run=True) == {
        "Namespace team": "kept",
        "PersistentVolume disk": "kept",
        "PersistentVolumeClaim data": "kept",
        "ConfigMap src": "changed",
        "Secret token": "changed",
        "Service mnist": "kept",
    }
    assert not server.made


def test_one_that_is_refused_keeps_all_from_being_made(api: Api, stand_in: StandIn) -> None:
    server = Server(stand_in, there=("team",), denied=("mnist",))
    with pytest.raises(Denied):
        put(api, MANUAL)
    with pytest.raises(EchelonError, match="Gadget"):
        put(api, [*MANUAL[:4], document("Gadget", "one")])
    assert not server.made


def test_who_may_not_create_a_namespace_uses_the_one_that_is_there(api: Api, stand_in: StandIn) -> None:
    server = Server(stand_in, there=("team", "disk"), denied=("team", "disk"))
    done = put(api, MANUAL)
    assert (done["Namespace team"], done["PersistentVolume disk"]) == ("kept", "kept")
    assert server.made == ["data", "src", "token", "mnist"]


TRAINER = {
    "kind": "APIResourceList",
    "resources": [
        {"name": "trainingruntimes", "kind": "TrainingRuntime", "namespaced": True},
        {"name": "trainjobs", "kind": "TrainJob", "namespaced": True},
    ],
}


class TrainerServer(Server):
    """With Trainer's webhook, which refuses a job whose runtime is not there, in a dry run too."""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.path.endswith("/apis/trainer.kubeflow.org/v1alpha1"):
            says(200, TRAINER)(handler)
        elif handler.command == "DELETE":
            self.there.discard(handler.path.partition("?")[0].rpartition("/")[2])
            says(200, {"kind": "Status"})(handler)
        else:
            super().answer(handler)

    def create(self, handler: BaseHTTPRequestHandler, *, dry_run: bool) -> None:
        wanted = json.loads(self.seen[-1].body)
        if wanted["kind"] == "TrainJob" and wanted["spec"]["runtimeRef"]["name"] not in self.there:
            refuses(422, "Invalid", "spec.runtimeRef: TrainingRuntime not found")(handler)
        else:
            super().create(handler, dry_run=dry_run)


def test_a_train_job_is_not_tried_before_its_runtime_is_there(api: Api, stand_in: StandIn) -> None:
    server = TrainerServer(stand_in, there=("team",))
    version = {"apiVersion": "trainer.kubeflow.org/v1alpha1"}
    runtime = document("TrainingRuntime", "mine") | version
    reference = {"kind": "TrainingRuntime", "name": "mine"}
    job = document("TrainJob", "mnist", spec={"runtimeRef": reference}) | version
    assert put(api, [runtime, job], dry_run=True) == dict.fromkeys(
        ("TrainingRuntime mine", "TrainJob mnist"), "created"
    )
    with pytest.raises(EchelonError, match="not found"):
        put(api, [job], dry_run=True)
    assert not server.made
    manifests = ClusterManifests(lambda: api)
    done = manifests.put([runtime, job])
    assert server.made == ["mine", "mnist"]
    manifests.take_back([runtime], done)
    assert server.there == {"team", "mnist"}


class Contents(Server):
    """One that has a ConfigMap, of whose content it keeps the version."""

    def __init__(self, stand_in: StandIn) -> None:
        super().__init__(stand_in, there=("team", "src"))
        self.content: dict[str, str] = {"train.py": "theirs", "old.py": "old"}
        self.version = 1

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        named = handler.path.partition("?")[0].endswith("/configmaps/src")
        if handler.command == "PATCH":
            change = json.loads(self.seen[-1].body)
            if change.get("metadata", {}).get("resourceVersion", str(self.version)) != str(self.version):
                refuses(409, "Conflict", "it has changed")(handler)
                return
            merged = {**self.content, **change["data"]}
            self.content = {key: value for key, value in merged.items() if value is not None}
            self.version += 1
        if named and handler.command in ("GET", "PATCH"):
            about = {"name": "src", "resourceVersion": str(self.version)}
            says(200, {**document("ConfigMap", "src"), "metadata": about, "data": self.content})(handler)
        else:
            super().answer(handler)


@pytest.mark.parametrize("since", [None, {"train.py": "somebody else's"}])
def test_content_that_was_replaced_for_nothing_comes_back(
    api: Api, stand_in: StandIn, since: dict[str, str] | None
) -> None:
    """As when another job has got the name meanwhile; what somebody else has written since stays."""
    server = Contents(stand_in)
    before = server.content
    manifests = ClusterManifests(lambda: api)
    beside = [document("ConfigMap", "src", data={"train.py": "mine", "new.py": "new"})]
    done = manifests.put(beside)
    assert server.content == {"train.py": "mine", "new.py": "new", "old.py": "old"}
    if since is not None:
        server.content, server.version = since, server.version + 1
    manifests.take_back(beside, done)
    assert server.content == (since or before)
