"""What `doctor` reads out of a cluster's objects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from tests.engines.kubernetes.cluster_objects import ME, Object, container, node, pod
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.client.kinds import KINDS
from echelon.engines.kubernetes.doctor import CLUSTER_ROLE, FULL_ROLE, MINIMAL_ROLE, environment
from echelon.engines.kubernetes.doctor.addons import ADDONS, judge
from echelon.engines.kubernetes.doctor.rights import (
    NEEDS,
    Need,
    check_rights,
    grant_command,
    missing_verbs,
    to_manifests,
)
from echelon.engines.kubernetes.nodes import inventory
from echelon.model.engine.finding import Finding


def only(findings: Iterable[Finding]) -> Finding:
    (found,) = findings
    return found


def worth_a_line(finding: Finding) -> bool:
    """Whatever is not ok says what does not work, and what to do about it."""
    return bool(finding.what and finding.found) and (finding.level == "ok" or bool(finding.fix))


# Rights


def grants(rules: list[Object], need: Need, verb: str) -> bool:
    group = KINDS[need.kind].group
    return any(
        group in rule["apiGroups"] and need.resource in rule["resources"] and verb in rule["verbs"]
        for rule in rules
    )


def test_the_roles_grant_what_is_asked_for_and_no_more() -> None:
    for need in NEEDS:
        for verb in need.verbs:
            assert grants(CLUSTER_ROLE, need, verb) or need.role != "cluster"
            assert grants(FULL_ROLE, need, verb) or need.role == "cluster"
            assert grants(MINIMAL_ROLE, need, verb) or need.role != "minimal"
    for rule in (*MINIMAL_ROLE, *FULL_ROLE, *CLUSTER_ROLE):
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])
    assert not any("secrets" in rule["resources"] and "list" in rule["verbs"] for rule in FULL_ROLE)
    assert not any("nodes" in rule["resources"] for rule in FULL_ROLE)
    resources = [rule["resources"][0] for rule in FULL_ROLE]
    assert len(set(resources)) == len(resources)


def test_all_rights() -> None:
    found = list(check_rights(lambda _need, _verb: True, ME, "ann"))
    assert len(found) == len(NEEDS)
    assert {each.level for each in found} == {"ok"}
    jobs = found[0]
    assert (jobs.what, jobs.found) == (
        "rights",
        "jobs: get, list, watch, create, patch, delete (run, stop, rm)",
    )


def test_a_right_that_is_missing_comes_with_the_command_that_grants_it() -> None:
    found = check_rights(lambda need, verb: need.kind != "Job" or verb in ("get", "list"), ME, "ann")
    jobs = next(iter(found))
    name = "echelon-jobs-ann-" + jobs.fix.rpartition("--role=echelon-jobs-ann-")[2].partition(" ")[0]
    assert jobs == Finding(
        level="missing",
        what="rights",
        found="jobs: watch, create, patch, delete denied; allowed: get, list",
        fix="run, stop, rm: "
        f"kubectl -n mine create role {name} --verb=watch,create,patch,delete --resource=jobs.batch && "
        f"kubectl -n mine create rolebinding {name} --role={name} --user=ann",
    )


def test_no_rights_at_all() -> None:
    found = {}
    for each in check_rights(lambda _need, _verb: False, ME, "system:serviceaccount:mine:robot"):
        found.setdefault(each.found.partition(":")[0], each)
        assert each.level != "ok"
        assert worth_a_line(each)
        assert "--serviceaccount=mine:robot" in each.fix
    assert found["pods/log"].level == "missing"
    assert found["pods/exec"].level == "degraded"
    assert "--resource=pods/exec" in found["pods/exec"].fix
    assert found["nodes"].level == "degraded"
    assert re.search(
        r"kubectl create clusterrolebinding (echelon-cluster-nodes-\S+) --clusterrole=\1 ", found["nodes"].fix
    )
    assert "what is free is unknown" in found["nodes"].fix


def test_one_manifest_grants_what_is_missing() -> None:
    assert to_manifests(missing_verbs(lambda _need, _verb: True), ME, "ann") == []
    missing = missing_verbs(lambda need, verb: need.kind != "Job" or verb in ("get", "list"))
    role, binding = to_manifests(missing, ME, "ann")
    assert (role["kind"], role["metadata"]) == (
        "Role",
        {"name": binding["metadata"]["name"], "namespace": ME},
    )
    assert role["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["watch", "create", "patch", "delete"]}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert (binding["subjects"][0]["kind"], binding["subjects"][0]["name"]) == ("User", "ann")
    all_of_it = to_manifests(
        missing_verbs(lambda _need, _verb: False), ME, "system:serviceaccount:mine:robot"
    )
    assert [each["kind"] for each in all_of_it] == [
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ]
    assert all_of_it[0]["rules"] == FULL_ROLE
    assert all_of_it[2]["rules"] == CLUSTER_ROLE
    assert "namespace" not in all_of_it[2]["metadata"]
    assert all_of_it[1]["subjects"] == [{"kind": "ServiceAccount", "namespace": "mine", "name": "robot"}]


def test_what_is_granted_to_one_user_takes_nothing_from_another() -> None:
    """An administrator applies them in turn: an object with the name of an earlier one would replace it."""
    nobody_may = missing_verbs(lambda _need, _verb: False)
    some_may = missing_verbs(lambda _need, verb: verb == "list")
    users = (
        "ann",
        "Ann",
        "ann@example.org",
        "ann-example-org",
        "oidc:ann/x",
        "system:serviceaccount:mine:ann",
    )
    grants = [
        (user, what)
        for user in (*users, "", "é")
        for missing in (nobody_may, some_may)
        for what in to_manifests(missing, ME, user)
    ]
    names = [(what["kind"], what["metadata"]["name"]) for _, what in grants]
    assert len(set(names)) == len(names)
    for _, name in names:
        assert re.fullmatch(r"[A-Za-z0-9-]{1,63}", name)
    again = to_manifests(nobody_may, ME, "ann")
    assert again == [what for user, what in grants if user == "ann"][: len(again)]
    commands = {
        grant_command(need, verbs, ME, user).partition("--")[0]
        for need, verbs in nobody_may
        for user in users
    }
    assert len(commands) == len(nobody_may) * len(users)


# What nodes and classes offer


def gpus_of(
    nodes: list[Object], pods: list[Object] | None = None, *, free_known: bool = True
) -> list[Finding]:
    read = typed(shapes.Node, nodes)
    cluster = inventory.to_cluster(read, typed(shapes.Occupant, pods or []), [], me=ME)
    found = list(environment.check_gpus(cluster, read, free_known=free_known))
    assert all(map(worth_a_line, found))
    return found


def test_gpus_by_model_and_node() -> None:
    t4 = {names.GPU_PRODUCT: "Tesla-T4"}
    nodes = [node("a", gpus=4), node("b", gpus=4), node("c", gpus=1, labels=t4), node("d")]
    taken = [pod("p", "a", container(gpu="3"))]
    assert [each.found for each in gpus_of(nodes, taken)] == [
        "8 NVIDIA-A100-SXM4-80GB, 5 free: a (1 of 4), b (4 of 4)",
        "1 Tesla-T4, 1 free: c (1 of 1)",
    ]
    assert gpus_of(nodes, free_known=False)[1].found == "1 Tesla-T4, free: unknown: c (1)"
    many = gpus_of([node(f"n{number:04}", gpus=8) for number in range(1000)])
    assert only(many).found.endswith("n0003 (8 of 8) and 996 more")


def test_gpus_that_are_not_offered() -> None:
    nothing = only(gpus_of([node("a")]))
    assert (nothing.level, nothing.found) == ("degraded", "no node that takes workers offers any")
    silent = node("a", labels={"nvidia.com/gpu.present": "true"}, allocatable={names.GPU: "0"})
    assert "none on a, though the label" in only(gpus_of([silent])).found
    unnamed = node("a", allocatable={names.GPU: "2"})
    finding = only(gpus_of([unnamed]))
    assert (finding.level, finding.found) == (
        "degraded",
        "2 of an unknown model, 2 free: a (2 of 2)",
    )
    assert "kubectl label node a nvidia.com/gpu.product=MODEL" in finding.fix
    assert only(environment.check_gpus(None, [], free_known=False)).found == "unknown: you may not list nodes"


def test_nodes() -> None:
    read = typed(shapes.Node, [node("a"), node("b", unschedulable=True), node("c", ready=False)])
    finding = environment.check_nodes(inventory.to_cluster(read, [], [], me=ME))
    assert finding.level == "ok"
    assert finding.found == "1, with 8 CPUs and 32 GiB; 2 left out: b (cordoned), c (not ready)"
    finding = environment.check_nodes(inventory.to_cluster(read[1:], [], [], me=ME))
    assert finding.level == "missing"
    assert worth_a_line(finding)
    assert environment.check_nodes(None).level == "degraded"


def storage(classes: list[Object] | None, claims: list[Object] | None = None) -> list[Finding]:
    there = None if classes is None else typed(shapes.StorageClass, classes)
    found = list(environment.check_storage(there, typed(shapes.Claim, claims or [])))
    assert all(map(worth_a_line, found))
    return found


def storage_class(name: str, provisioner: str, *, default: bool = False) -> Object:
    notes = {"storageclass.kubernetes.io/is-default-class": "true"} if default else None
    return {"metadata": {"name": name, "annotations": notes}, "provisioner": provisioner}


def test_storage_classes() -> None:
    first, second = storage(
        [storage_class("gp3", "ebs.csi.aws.com", default=True), storage_class("efs", "efs.csi.aws.com")]
    )
    assert first == Finding(
        level="ok",
        what="storage classes",
        found="gp3 (ebs.csi.aws.com), efs (efs.csi.aws.com); default: gp3",
    )
    assert (second.level, second.found) == ("ok", "ReadWriteMany with class efs")
    first, second = storage([storage_class("gp3", "ebs.csi.aws.com")])
    assert first.level == second.level == "degraded"
    assert 'kubectl patch storageclass gp3 -p \'{"metadata"' in first.fix
    assert only(storage([])).found == "none"
    assert only(storage(None)).found == "unknown: you may not list them"


def test_a_claim_that_was_bound_for_many_proves_its_class() -> None:
    def claim(phase: str) -> Object:
        spec = {"storageClassName": "home", "accessModes": ["ReadWriteMany"]}
        return {"metadata": {"name": "a"}, "spec": spec, "status": {"phase": phase}}

    ours = [storage_class("home", "made/here", default=True)]
    assert [each.level for each in storage(ours, [claim("Pending")])] == ["ok", "degraded"]
    assert [each.level for each in storage(ours, [claim("Bound")])] == ["ok", "ok"]


# The namespace


def test_pod_security() -> None:
    def level(name: str | None) -> Finding:
        return environment.check_security(
            {"metadata": {"name": ME, "labels": {names.SECURITY_LEVEL: name} if name else {}}}, ME
        )

    assert level("restricted").found.startswith("restricted: workers run as user 1000")
    assert level("baseline").found.startswith("baseline: ")
    assert level(None).found == "privileged (no level is set)"
    assert worth_a_line(environment.check_security(None, ME))


def quota(hard: dict[str, str], used: dict[str, str]) -> Object:
    return {
        "metadata": {"name": "team"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": used},
    }


def test_quotas() -> None:
    gpu = "requests.nvidia.com/gpu"
    (fine,) = environment.check_quotas(
        [quota({gpu: "8", "pods": "10", "requests.storage": "1Ti"}, {gpu: "3", "pods": "1"})], []
    )
    assert (fine.level, fine.found) == (
        "ok",
        f"team: left pods 9 of 10, {gpu} 5 of 8, requests.storage 1 TiB of 1Ti",
    )
    spent = next(iter(environment.check_quotas([quota({gpu: "8"}, {gpu: "8"})], [])))
    assert (spent.level, spent.found) == ("degraded", f"team: left {gpu} 0 of 8")
    assert gpu in spent.fix
    assert only(environment.check_quotas([], [])).found == "none"
    assert only(environment.check_quotas(None, [])).level == "ok"


def test_a_quota_that_makes_every_pod_say_its_limits() -> None:
    """Requests are made for every pod."""
    assert len(list(environment.check_quotas([quota({"requests.memory": "64Gi", "cpu": "32"}, {})], []))) == 1
    counted = quota({"limits.memory": "64Gi", "limits.cpu": "32"}, {})
    *_, demand = environment.check_quotas([counted], [])
    assert demand.found == "every pod must have limits: cpu and memory"
    assert "--cpus REQUEST:LIMIT" in demand.fix
    defaults = {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}}]}}
    assert len(list(environment.check_quotas([counted], [defaults]))) == 1
    assert len(list(environment.check_quotas([counted], None))) == 1  # what may not be read is unknown


def test_name_servers() -> None:
    def slices(*ready: bool | None) -> list[Object]:
        return [{"endpoints": [{"conditions": {} if each is None else {"ready": each}} for each in ready]}]

    assert environment.check_names(slices(True, False, None)).found == "2 name servers ready"
    for none_ready in ([], slices(False), [{"endpoints": None}]):
        finding = environment.check_names(none_ready)
        assert finding.level == "degraded"
        assert worth_a_line(finding)
    assert environment.check_names(None).level == "ok"


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}, "ok"),
        ({"major": "1", "minor": "29+", "gitVersion": "v1.29.1-gke"}, "degraded"),
        ({"major": "1", "minor": "31+", "gitVersion": "v1.31.1-gke"}, "ok"),
        ({"major": "1", "minor": "28", "gitVersion": "v1.28.0"}, "missing"),
        ({}, "ok"),
    ],
)
def test_versions(version: Object, level: str) -> None:
    finding = environment.check_version(version)
    assert finding.level == level
    assert worth_a_line(finding)


# What else is installed

NOW = 1_800_000_000.0


def deployment(ready: int | None, image: str = "registry:5000/kubeflow/training-operator:v1.9.4") -> Object:
    return {
        "metadata": {"name": "training-operator", "namespace": "kubeflow"},
        "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
        "status": {"readyReplicas": ready},
    }


def lease(name: str, ago: float) -> Object:
    renewed = datetime.fromtimestamp(NOW - ago, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"name": name, "namespace": "kubeflow"}, "spec": {"renewTime": renewed}}


@pytest.mark.parametrize(
    ("deployments", "leases", "level", "words"),
    [
        ([deployment(1)], None, "ok", "training operator: API v1, controller v1.9.4 runs in kubeflow"),
        ([deployment(1, "operator@sha256:abc")], None, "ok", "of an unknown version"),
        ([deployment(0)], None, "degraded", "its controller in kubeflow is not ready"),
        ([deployment(None)], [lease("x.training-operator.kubeflow.org", 5)], "degraded", "is not ready"),
        ([], [lease("x.training-operator.kubeflow.org", 5)], "ok", "holds its lease in kubeflow"),
        (
            [],
            [lease("x.training-operator.kubeflow.org", 5000)],
            "degraded",
            "no Deployment or lease of a controller",
        ),
        ([], [lease("somebody-else", 5)], "degraded", "no Deployment or lease of a controller"),
        ([], None, "degraded", "no Deployment or lease of a controller"),
        (None, None, "degraded", "whether its controller runs is unknown"),
    ],
)
def test_an_addon_runs_only_if_its_controller_does(
    deployments: list[Object] | None, leases: list[Object] | None, level: str, words: str
) -> None:
    operator = next(each for each in ADDONS if each.resource == "pytorchjobs")
    held = None if leases is None else typed(shapes.Lease, leases)
    finding = judge(operator, "v1", deployments, held, now=NOW)
    assert finding.level == level
    assert words in finding.found
    assert worth_a_line(finding)
