"""The testbed's pytest plugin: a cluster per test run, a namespace per test, and changes to both.

With ECHELON_TEST_KUBECONFIG set the fixtures use that cluster instead, and skip, each with its reason, only
what cannot be done there.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from testbed import cluster as whole
from testbed import fakenodes, gpus, images, node
from testbed.debian import missing
from testbed.kubectl import Kubectl, Object, Refused
from testbed.locking import held, tried
from testbed.paths import AUDIT_LOG, CHECKOUT, KUBECONFIG, STATE
from testbed.progress import say

# Every test run on this machine holds it; the last one to release it ends a cluster that tests started.
USERS = STATE.with_name(STATE.name + ".users")
# Tests run side by side, but one that changes nodes or stops the API server has the cluster to itself.
TURN = STATE.with_name(STATE.name + ".turn")
UNSETTLING = {"api_outage", "fake_nodes", "give_gpus", "spare_node"}
FOREIGN = "ECHELON_TEST_KUBECONFIG"
SHARED_CLASS = "ECHELON_TEST_SHARED_CLASS"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The cluster under test, as its administrator; `ours` if it is the testbed and may be damaged."""

    kubectl: Kubectl
    ours: bool


def in_ci() -> bool:
    """Whether the tests decide if a change lands; then nothing may be skipped for the lack of a cluster."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def give_up(reason: str) -> NoReturn:
    """Skip with the reason; in CI a cluster that is missing is a failure."""
    if in_ci():
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def has_cluster_tests(file: Path) -> bool:
    """Whether a file of tests names the mark of those that need a cluster."""
    return "pytest.mark.cluster" in file.read_text("utf-8")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that must have the cluster to themselves. A file that has tests of the cluster must show
    it: `tests.parts` passes only such files to pytest.
    """
    for item in items:
        if item.get_closest_marker("cluster") and not has_cluster_tests(item.path):
            raise pytest.UsageError(
                f"{item.nodeid} is marked `cluster`, and its file does not name that mark"
            )
        if UNSETTLING.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("alone")


@contextmanager
def running() -> Iterator[None]:
    """Keep the testbed running inside the block; the last test run ends it, unless a user has started it."""
    with tried(USERS) as alone:
        if alone:
            _end_what_was_left()
    with held(USERS, shared=True):
        # Not while another test run has stopped the API server: that is no reason for a restart.
        with held(TURN, shared=True):
            whole.up(for_tests=True)
        yield
    with tried(USERS) as alone:
        if alone and (ended := whole.claim()) and ended.for_tests:
            whole.down()


def _end_what_was_left() -> None:
    """End a cluster that no test run uses, if a killed one or another checkout has left it. From one that its
    user keeps only what tests have left is removed.
    """
    left = whole.claim()
    if left is None:
        return
    if not left.for_tests and left.checkout == str(CHECKOUT):
        if left.complete:
            whole.sweep()
    else:
        say(
            f"testbed: the cluster that {left.checkout} started at {left.since} is ended: no test run uses it"
        )
        whole.down()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Target]:
    """The cluster of this test run: an existing one, or the testbed, started if needed and then ended."""
    if foreign := os.environ.get(FOREIGN):
        yield Target(kubectl=Kubectl(kubeconfig=Path(foreign)), ours=False)
        return
    if reason := missing():
        give_up(reason)
    with running():
        yield Target(kubectl=Kubectl(kubeconfig=KUBECONFIG), ours=True)


@pytest.fixture
def turn(request: pytest.FixtureRequest, cluster: Target) -> Iterator[None]:
    """The test's use of the cluster: beside other tests, or alone if it is marked so, as by its fixtures."""
    if not cluster.ours:
        yield
        return
    alone = request.node.get_closest_marker("alone") is not None
    with held(TURN, shared=not alone):
        if alone:
            _await_leaving_pods(cluster.kubectl)
        yield


def _await_leaving_pods(kubectl: Kubectl) -> None:
    """Wait for the pods of tests that are over: they still hold CPUs and GPUs, which a test that has the
    cluster to itself may count.
    """

    def are_gone() -> bool:
        namespaces = (each["metadata"] for each in kubectl.items("namespaces"))
        leaving = {about["name"] for about in namespaces if about.get("deletionTimestamp")}
        return not any(pod["metadata"]["namespace"] in leaving for pod in kubectl.items("pods", "-A"))

    with suppress(Refused):  # those of a node that a test has ended stay for longer; they hold nothing else
        kubectl.wait_for(are_gone, "the pods of earlier tests to be gone", patience=10)


@pytest.fixture
def own_cluster(cluster: Target, turn: None) -> Target:
    """The testbed itself, for a test that damages or rebuilds it."""
    if not cluster.ours:
        pytest.skip(
            f"{FOREIGN} names a cluster that is not the testbed: nodes, API server and audit log are not ours"
        )
    return cluster


@pytest.fixture
def namespace(cluster: Target, turn: None) -> Iterator[Kubectl]:
    """A fresh namespace; kubectl as the administrator in it."""
    name = f"test-{secrets.token_hex(4)}"
    about = {"name": name, "labels": {whole.OF_TESTS: ""}}
    cluster.kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
    # Pods that start before their service account exists are refused.
    inside = cluster.kubectl.within(name)
    inside.wait_for(lambda: inside.find("serviceaccount", "default"), "the default service account")
    yield inside
    with suppress(Refused):
        inside.delete_namespace()


@pytest.fixture
def image(cluster: Target) -> Callable[[str], str]:
    """`image("torch")` makes that image available on every node and returns its name."""

    def available(name: str) -> str:
        if cluster.ours:
            return whole.load_image(name)
        if "ECHELON_TESTBED_IMAGES" not in os.environ:
            pytest.skip(
                f"push {name}:1 where {FOREIGN} can pull it, and set ECHELON_TESTBED_IMAGES to its prefix"
            )
        return images.reference(name)

    return available


@pytest.fixture
def shared_class(cluster: Target) -> str:
    """A storage class whose volumes several nodes can mount at once."""
    named = "shared" if cluster.ours else os.environ.get(SHARED_CLASS)
    return named or pytest.skip(f"set {SHARED_CLASS} to a storage class of {FOREIGN} that is ReadWriteMany")


@pytest.fixture
def real_nodes(cluster: Target, turn: None) -> list[str]:
    """The names of the nodes whose pods really run, at least two."""
    if cluster.ours:
        # A kubelet is missed after an outage, or when it got no processor; too few nodes are told below.
        with suppress(Refused):
            cluster.kubectl.wait_for(lambda: len(_ready_nodes(cluster.kubectl)) >= 2, "two Ready nodes")
    names = _ready_nodes(cluster.kubectl)
    if len(names) < 2:
        give_up(f"two Ready nodes are needed, and there are {len(names)}")
    return sorted(names)


@pytest.fixture
def give_gpus(cluster: Target, turn: None) -> Iterator[Callable[..., None]]:
    """`give_gpus(node, 4, model=..., taint=True)`, removed after the test."""
    given: list[str] = []
    if cluster.ours:
        # Pods of the previous test may still be terminating.
        cluster.kubectl.wait_for(lambda: not gpus.holders(cluster.kubectl), "all GPUs to be free")

    def give(name: str, count: int, **more: Any) -> None:
        if not cluster.ours:
            pytest.skip(f"the nodes of {FOREIGN} are not ours to be given GPUs")
        given.append(name)
        gpus.give(cluster.kubectl, name, count, **more)

    yield give
    for name in given:
        gpus.take(cluster.kubectl, name)


@pytest.fixture
def fake_nodes(own_cluster: Target) -> Iterator[Callable[..., list[str]]]:
    """`fake_nodes(1000, gpus_each=8)`: nodes that exist in the API only, removed after the test."""
    assert own_cluster.ours
    yield fakenodes.add
    fakenodes.remove()


@pytest.fixture
def user(cluster: Target, namespace: Kubectl, tmp_path: Path) -> Callable[[str, Sequence[Object]], Kubectl]:
    """`user("ann", rules)`: kubectl as a user with exactly these rights in the test's namespace."""

    def with_rights(name: str, rules: Sequence[Object]) -> Kubectl:
        about = {"name": name, "namespace": namespace.namespace}
        group = "rbac.authorization.k8s.io"
        namespace.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
            {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": about, "rules": list(rules)},
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": about,
                "subjects": [{"kind": "ServiceAccount", **about}],
                "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            },
        )
        token = namespace("create", "token", name).strip()
        view = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        view["users"] = [{"name": name, "user": {"token": token}}]
        view["contexts"][0]["context"] |= {"user": name, "namespace": namespace.namespace}
        path = tmp_path / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(view))
        made = Kubectl(kubeconfig=path, namespace=namespace.namespace)
        if wanted := _rights(rules):
            # The API server hears of roles from a watch of its own, a moment after they were written.
            made.wait_for(lambda: wanted <= _rights_of(made), f"the rights of {name} to be in force")
        return made

    return with_rights


def _rights(rules: Sequence[Object]) -> set[tuple[str, str, str]]:
    """What rules allow: each verb with the group and the kind that it is for."""
    return {
        (verb, group, kind)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule.get("apiGroups") or ()
        for kind in rule.get("resources") or ()
    }


def _rights_of(kubectl: Kubectl) -> set[tuple[str, str, str]]:
    """The same as the API server knows it now; nothing while it does not know the user."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": kubectl.namespace},
    }
    address = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    try:
        answer = json.loads(kubectl("create", "--raw", address, "-f", "-", stdin=json.dumps(review)))
    except Refused:
        return set()
    return _rights(answer["status"]["resourceRules"])


@pytest.fixture
def spare_node(own_cluster: Target) -> Iterator[str]:
    """One more node, which the test may kill; removed afterwards."""
    assert own_cluster.ours
    name = whole.add_node()
    yield name
    if name in node.names():
        whole.remove_node(name)


@pytest.fixture
def api_outage(own_cluster: Target) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """Two calls: stop the API server, start it; it runs again after the test, and knows what its nodes do."""
    assert own_cluster.ours
    before = _ready_nodes(own_cluster.kubectl)
    yield whole.stop_api, whole.start_api
    whole.start_api()
    own_cluster.kubectl.wait_for(
        lambda: before <= _ready_nodes(own_cluster.kubectl), "the nodes to be Ready again"
    )


@pytest.fixture
def audit(own_cluster: Target) -> Callable[[], list[Object]]:
    """Every request to the API server since the test began, except those of Kubernetes itself."""
    assert own_cluster.ours
    start = AUDIT_LOG.stat().st_size if AUDIT_LOG.exists() else 0

    def entries() -> list[Object]:
        with AUDIT_LOG.open() as file:
            file.seek(start)
            return [json.loads(line) for line in file]

    return entries


def _ready_nodes(kubectl: Kubectl) -> set[str]:
    found = kubectl.items("nodes", "-l", "!testbed/fake")
    return {item["metadata"]["name"] for item in found if _is_ready(item)}


def _is_ready(item: Object) -> bool:
    conditions = item.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
