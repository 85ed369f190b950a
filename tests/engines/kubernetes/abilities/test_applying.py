"""Documents beside a job: made where they are absent, all or none, namespaces first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.engines.kubernetes.api_server import ApiServer, Asked, refused

from echelon.engines.kubernetes.abilities.applying import ClusterManifests
from echelon.errors import Denied, EchelonError

Object = dict[str, Any]
TRAINER = {
    "TrainingRuntime": "trainingruntimes.v1alpha1.trainer.kubeflow.org",
    "TrainJob": "trainjobs.v1alpha1.trainer.kubeflow.org",
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


def server(*, there: tuple[str, ...] = (), denied: tuple[str, ...] = ()) -> ApiServer:
    """One that has some objects, and another's content in them; nobody may create what is denied."""
    found = [{**each, "data": {"key": "b2xk"}} for each in MANUAL if each["metadata"]["name"] in there]
    made = ApiServer(*found, serves=TRAINER)

    def check(asked: Asked) -> None:
        if asked.verb == "create" and asked.name in denied:
            raise refused(403, "Forbidden", 'User "ann" cannot create resource "x" in API group ""')
        if asked.verb == "create" and asked.place and ("Namespace", asked.place) not in made.objects:
            raise refused(404, "NotFound", f'namespaces "{asked.place}" not found')

    made.rules.append(check)
    return made


def made_on(server: ApiServer) -> list[str]:
    """What was created, in this order."""
    return [each.name for each in server.changes if each.verb == "create"]


def put(cluster: ApiServer, objects: list[Object], *, dry_run: bool = False) -> dict[str, str]:
    done = ClusterManifests(lambda: cluster.api).put(objects, dry_run=dry_run)
    return {f"{each.kind} {each.name}": each.done for each in done}


def test_what_a_manual_has_beside_its_job_is_made_in_its_namespace() -> None:
    cluster = server()
    names = {f"{each['kind']} {each['metadata']['name']}" for each in MANUAL}
    assert put(cluster, MANUAL, dry_run=True) == dict.fromkeys(names, "created")
    assert made_on(cluster) == []
    assert put(cluster, MANUAL) == dict.fromkeys(names, "created")
    assert made_on(cluster) == ["team", "disk", "data", "src", "token", "mnist"], "the namespace first"


def test_what_is_there_stays_but_for_the_content_of_config_maps_and_secrets() -> None:
    cluster = server(there=("team", "disk", "data", "mnist", "src", "token"))
    assert put(cluster, MANUAL, dry_run=True) == {
        "Namespace team": "kept",
        "PersistentVolume disk": "kept",
        "PersistentVolumeClaim data": "kept",
        "ConfigMap src": "changed",
        "Secret token": "changed",
        "Service mnist": "kept",
    }
    assert made_on(cluster) == []


def test_one_that_is_refused_keeps_all_from_being_made() -> None:
    cluster = server(there=("team",), denied=("mnist",))
    with pytest.raises(Denied):
        put(cluster, MANUAL)
    with pytest.raises(EchelonError, match="Gadget"):
        put(cluster, [*MANUAL[:4], document("Gadget", "one")])
    assert made_on(cluster) == []


def test_who_may_not_create_a_namespace_uses_the_one_that_is_there() -> None:
    cluster = server(there=("team", "disk"), denied=("team", "disk"))
    done = put(cluster, MANUAL)
    assert (done["Namespace team"], done["PersistentVolume disk"]) == ("kept", "kept")
    assert made_on(cluster) == ["data", "src", "token", "mnist"]


def trainers_webhook(cluster: ApiServer) -> Callable[[Asked], None]:
    """It refuses a job whose runtime is not there, in a dry run too."""

    def check(asked: Asked) -> None:
        if (asked.verb, asked.kind) != ("create", "TrainJob"):
            return
        if ("TrainingRuntime", asked.body["spec"]["runtimeRef"]["name"]) not in cluster.objects:
            raise refused(422, "Invalid", "spec.runtimeRef: TrainingRuntime not found")

    return check


def test_a_train_job_is_not_tried_before_its_runtime_is_there() -> None:
    cluster = server(there=("team",))
    cluster.rules.append(trainers_webhook(cluster))
    version = {"apiVersion": "trainer.kubeflow.org/v1alpha1"}
    runtime = document("TrainingRuntime", "mine") | version
    reference = {"kind": "TrainingRuntime", "name": "mine"}
    job = document("TrainJob", "mnist", spec={"runtimeRef": reference}) | version
    assert put(cluster, [runtime, job], dry_run=True) == dict.fromkeys(
        ("TrainingRuntime mine", "TrainJob mnist"), "created"
    )
    with pytest.raises(EchelonError, match="not found"):
        put(cluster, [job], dry_run=True)
    assert made_on(cluster) == []
    manifests = ClusterManifests(lambda: cluster.api)
    done = manifests.put([runtime, job])
    assert made_on(cluster) == ["mine", "mnist"]
    manifests.take_back([runtime], done)
    assert {name for _, name in cluster.objects} == {"team", "mnist"}


@pytest.mark.parametrize("since", [None, {"train.py": "somebody else's"}])
def test_content_that_was_replaced_for_nothing_comes_back(since: dict[str, str] | None) -> None:
    """As when another job has got the name meanwhile; what somebody else has written since stays."""
    cluster = server(there=("team", "src"))
    before = {"train.py": "theirs", "old.py": "old"}
    cluster.objects["ConfigMap", "src"]["data"] = before
    manifests = ClusterManifests(lambda: cluster.api)
    beside = [document("ConfigMap", "src", data={"train.py": "mine", "new.py": "new"})]
    done = manifests.put(beside)
    assert cluster.objects["ConfigMap", "src"]["data"] == {
        "train.py": "mine",
        "new.py": "new",
        "old.py": "old",
    }
    if since is not None:
        cluster.objects["ConfigMap", "src"]["data"] = since
        cluster.touch("ConfigMap", "src")
    manifests.take_back(beside, done)
    assert cluster.objects["ConfigMap", "src"]["data"] == (since or before)
