"""Volumes as their users see them: read from objects, and made, used and removed in a real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from testbed.kubectl import Kubectl, Object
from tests.engines.kubernetes.ordinary import claim
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.kubeconfig import load_access
from echelon.engines.kubernetes.files.volumes import (
    create_volume,
    list_volumes,
    read_volume,
    remove_volume,
    to_volume,
)
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.shapes import Claim
from echelon.errors import Denied, InvalidJob, StateTrouble
from echelon.model.engine.volume import Volume, check_unused


def api_of(kubectl: Kubectl) -> Api:
    return Api(load_access(namespace=kubectl.namespace, environment={"KUBECONFIG": str(kubectl.kubeconfig)}))


def pod_on(claim_name: str, name: str = "user", run: str = "", **more: Any) -> Object:
    marks = {names.RUN: run} if run else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": marks},
        "spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": claim_name}}], **more},
    }


def volume(
    claim: Object,
    pods: Sequence[Object] = (),
    jobs: Sequence[Object] = (),
    policies: Mapping[str, str] | None = None,
) -> Volume:
    return to_volume(typed(Claim, [claim])[0], typed(Pod, pods), jobs, policies or {})


def test_a_claim_that_waits_shows_what_it_wants() -> None:
    found = volume(claim("data", storageClassName="fast"), policies={"class fast": "Delete"})
    assert found == Volume(
        name="data",
        status="Pending",
        size=1 << 20,
        modes=("ReadWriteOnce",),
        storage_class="fast",
        reclaim="Delete",
        uid="data",
    )


def test_a_volumes_own_policy_counts_before_its_class() -> None:
    bound = {
        **claim("data", storageClassName="fast", volumeName="pv-1"),
        "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteMany"]},
    }
    found = volume(bound, policies={"class fast": "Delete", "volume pv-1": "Retain"})
    assert (found.status, found.size, found.modes, found.reclaim) == (
        "Bound",
        2 << 30,
        ("ReadWriteMany",),
        "Retain",
    )
    assert volume(bound).reclaim is None
    going = {**bound, "metadata": {"name": "data", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert volume(going).status == "Terminating"


def test_who_uses_a_volume() -> None:
    pods = [
        {**pod_on("data", "fm-0-x", run="fm", nodeName="a"), "status": {"phase": "Running"}},
        {**pod_on("data", "mine", nodeName="b"), "status": {"phase": "Pending"}},
        {**pod_on("data", "over"), "status": {"phase": "Succeeded"}},
        {**pod_on("other", "stranger"), "status": {"phase": "Running"}},
    ]
    template = {"template": pod_on("data")}
    jobs = [
        {"metadata": {"name": "later", "labels": {names.RUN: "later"}}, "spec": template},
        {
            "metadata": {"name": "done", "labels": {names.RUN: "done"}},
            "spec": template,
            "status": {"conditions": [{"type": "Complete", "status": "True"}]},
        },
    ]
    found = volume(claim("data"), pods, jobs)
    assert (found.pods, found.runs, found.nodes) == (("fm-0-x", "mine"), ("fm", "later"), ("a", "b"))
    with pytest.raises(StateTrouble, match="in use by run fm, run later, pod fm-0-x, pod mine"):
        check_unused(found)
    check_unused(volume(claim("free"), pods, jobs))


@pytest.mark.core
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.usefixtures("own_cluster")  # its storage classes are known by name
def test_made_used_and_removed(namespace: Kubectl, image: Callable[[str], str]) -> None:
    api = api_of(namespace)
    assert list_volumes(api) == []
    made = create_volume(api, "data", size=1 << 20, marks={"team": "vision"}, owner="Ann B.")
    assert (made.status, made.size, made.storage_class, made.reclaim) == (
        "Pending",
        1 << 20,
        "local",
        "Delete",
    )
    shared = create_volume(
        api, "wide", size=1 << 20, mode="ReadWriteMany", storage_class="shared", owner="Ann B."
    )
    assert shared.modes == ("ReadWriteMany",)
    with pytest.raises(InvalidJob, match="'data' exists"):
        create_volume(api, "data", size=1, owner="ann")
    container = {"name": "c", "image": image("python"), "command": ["sleep", "600"]}
    namespace.create(pod_on("data", "user", containers=[container], terminationGracePeriodSeconds=0))
    namespace.wait_for(lambda: read_volume(api, "data").status == "Bound", "the volume")
    used = read_volume(api, "data")
    assert (used.pods, used.labels["team"], used.labels[names.OWNER]) == (("user",), "vision", "Ann-B")
    with pytest.raises(StateTrouble, match="in use by pod user"):
        remove_volume(api, used)
    namespace("delete", "pod", "user")
    remove_volume(api, read_volume(api, "data"))
    namespace.wait_for(lambda: [each.name for each in list_volumes(api)] == ["wide"], "the end of the volume")


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.usefixtures("own_cluster")
def test_a_name_or_class_that_is_not_there_is_told_from_those_that_are(namespace: Kubectl) -> None:
    api = api_of(namespace)
    create_volume(api, "data", size=1 << 20, owner="ann")
    with pytest.raises(InvalidJob) as caught:
        read_volume(api, "dat")
    assert "did you mean 'data'?" in caught.value.hint
    with pytest.raises(InvalidJob, match="'fast' is not a storage class here") as caught:
        create_volume(api, "other", size=1 << 20, storage_class="fast", owner="ann")
    assert "local" in caught.value.hint
    assert "shared" in caught.value.hint


@pytest.mark.cluster
@pytest.mark.slow
def test_with_few_rights(namespace: Kubectl, user: Callable[[str, Sequence[Object]], Kubectl]) -> None:
    """Without the cluster's own objects the reclaim policy is not known; without pods nothing is said to be
    free.
    """
    claims = {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list", "create"]}
    seen = {"apiGroups": ["", "batch"], "resources": ["pods", "configmaps", "jobs"], "verbs": ["list"]}
    ann = api_of(user("ann", [claims, seen]))
    create_volume(ann, "data", size=1 << 20, owner="ann")
    assert [(each.name, each.reclaim) for each in list_volumes(ann)] == [("data", None)]
    bob = api_of(user("bob", [claims]))
    with pytest.raises(Denied, match="may not list pods"):
        read_volume(bob, "data")
    assert json.loads(namespace("get", "pvc", "-o", "json"))["items"]
