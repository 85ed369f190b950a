"""Objects that a user wrote down beside a job: read, and brought into the cluster as `kubectl apply` would.
A run's pods, too, for callers that expect some.

They are the user's: no run owns them, and `rm` leaves them alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from echelon.engines.abilities import Put
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, Conflict, NotThere, Object
from echelon.engines.kubernetes.fields import below
from echelon.engines.kubernetes.follow.view import pods_of, read_record
from echelon.engines.kubernetes.prerequisites.controllers import check_native, delete_objects
from echelon.engines.kubernetes.state.workers import pods_by_worker
from echelon.errors import Denied, EchelonError
from echelon.model.run import RunRef

NAMESPACE = "Namespace"
_CONTENT = ("data", "binaryData")
_CHANGED = {"ConfigMap": ("data", "binaryData"), "Secret": ("data", "stringData")}
"""Kinds whose content may change at any time; most others hold what is in use, and stay as they are."""


class ClusterManifests:
    """Objects of one namespace, and of the cluster."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def find(self, resource: str, name: str) -> Mapping[str, Any] | None:
        """One object; `resource` is plural.version.group."""
        return self._connect().find(resource, name)

    def put(self, objects: Sequence[Mapping[str, Any]], *, dry_run: bool = False) -> Sequence[Put]:
        """Create what is not there, namespaces first; of the rest, change the content of ConfigMaps and
        Secrets. All are tried before one is made, so that a refusal leaves nothing behind.
        """
        api = self._connect()
        ordered = [dict(each) for each in sorted(objects, key=lambda each: each["kind"] != NAMESPACE)]
        tried = _try(api, ordered)
        return tried if dry_run else [_put(api, each, dry_run=False) for each in ordered]

    def check_taken_up(
        self, job: Mapping[str, Any], beside: Sequence[Mapping[str, Any]], done: Sequence[Put]
    ) -> None:
        """Wait for a controller to take the job up; else remove it, and undo what was done for the rest."""
        api = self._connect()
        try:
            check_native(api, dict(job), _created(beside, done))
        except EchelonError:
            _undo(api, beside, done)
            raise

    def take_back(self, objects: Sequence[Mapping[str, Any]], done: Sequence[Put]) -> None:
        """Remove what of the objects was created, and give back what was replaced in others."""
        api = self._connect()
        delete_objects(api, _created(objects, done))
        _undo(api, objects, done)

    def pods(self, ref: RunRef) -> Mapping[int, Mapping[str, Any]]:
        """The newest pod of each worker, with all that the API server says of it."""
        api = self._connect()
        by_worker = pods_by_worker(pods_of(api, read_record(api, ref)))
        newest = {worker: mine[-1] for worker, mine in by_worker.items()}
        listed = api.list("Pod", selector=names.selector(ref.name, names.WORKER)).items if newest else ()
        there = {each["metadata"]["uid"]: each for each in listed}
        whole = {worker: there.get(pod.metadata.uid) for worker, pod in newest.items()}
        return {worker: found for worker, found in whole.items() if found is not None}


def _try(api: Api, objects: Sequence[dict[str, Any]]) -> list[Put]:
    """What would become of objects. One in a namespace that is yet to be made cannot be tried: only that the
    cluster knows its kind. Nor can a TrainJob whose runtime is yet to be made: Trainer's webhook refuses it.
    """
    found: list[Put] = []
    for each in objects:
        new = {(made.kind, made.name) for made in found if made.done == "created"}
        if (NAMESPACE, api.place_of(each)) in new or _runtime_of(each) in new:
            found.append(Put(kind=str(each["kind"]), name=str(each["metadata"]["name"]), done="created"))
        else:
            found.append(_put(api, each, dry_run=True))
    return found


def _runtime_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """The kind and the name of the runtime that a TrainJob refers to."""
    found = below(obj, "spec", "runtimeRef")
    return str(found.get("kind") or "ClusterTrainingRuntime"), str(found.get("name") or "")


def _created(objects: Sequence[Mapping[str, Any]], done: Sequence[Put]) -> list[dict[str, Any]]:
    created = {(each.kind, each.name) for each in done if each.done == "created"}
    return [dict(each) for each in objects if (each["kind"], each["metadata"]["name"]) in created]


def _put(api: Api, obj: dict[str, Any], *, dry_run: bool) -> Put:
    kind, about = str(obj["kind"]), obj["metadata"]
    name = str(about["name"])
    try:
        api.create(obj, dry_run=dry_run)
    except Denied:
        # Who may not create a Namespace or a volume can still use one that is there.
        if not _is_there(api, obj):
            raise
        return Put(kind=kind, name=name, done="kept")
    except AlreadyThere:
        content = {key: obj[key] for key in _CHANGED.get(kind, ()) if key in obj}
        if not content:
            return Put(kind=kind, name=name, done="kept")
        undo = None if dry_run else _change(api, kind, name, content, about.get("namespace"))
        return Put(kind=kind, name=name, done="changed", undo=undo)
    return Put(kind=kind, name=name, done="created")


def _change(api: Api, kind: str, name: str, content: Object, namespace: str | None) -> Object | None:
    """Replace the content of an object, and return what undoes it; None where it may not be read."""
    try:
        before = api.get(kind, name, namespace=namespace)
    except Denied:
        before = None
    after = api.patch(kind, name, content, namespace=namespace)
    if before is None:
        return None
    kept: Object = {"metadata": {"resourceVersion": after["metadata"].get("resourceVersion")}}
    for key in _CONTENT:
        now, then = after.get(key) or {}, before.get(key) or {}
        if now != then:
            kept[key] = {**dict.fromkeys(now), **then}
    return kept


def _undo(api: Api, objects: Sequence[Mapping[str, Any]], done: Sequence[Put]) -> None:
    """Give the content back that was replaced; where another user has changed it since, theirs stays."""
    places = {(each["kind"], each["metadata"]["name"]): each["metadata"].get("namespace") for each in objects}
    for each in done:
        if each.undo is not None:
            with suppress(Conflict, NotThere, Denied):
                api.patch(each.kind, each.name, dict(each.undo), namespace=places.get((each.kind, each.name)))


def _is_there(api: Api, obj: Mapping[str, Any]) -> bool:
    about = obj["metadata"]
    try:
        return api.exists(str(obj["kind"]), str(about["name"]), namespace=about.get("namespace"))
    except Denied:
        return False
