"""The manager as an administrator installs it: two pods of its own image, one of which is killed; and a user
of another namespace, for whom it does nothing to the runs of others.

The gangs' nodes and pods are imagined by kwok, the manager's are real."""

from __future__ import annotations

import copy
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl, Object, Refused
from tests.conftest import wait_until
from tests.faults.kubernetes.test_manager import gang, is_over

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.submit import Prepared, submit
from testbed import images

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE = 120.0
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


def call(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "echelon.cli.main", *words], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def managed(
    namespace: Kubectl,
    fake_nodes: Callable[..., list[str]],
    real_nodes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Kubectl, Kubectl]]:
    """A namespace, and the manager's own with both of its pods ready."""
    fake_nodes(2, gpus_each=4, tainted=True)
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.chdir(tmp_path)
    name, archive = f"docker.io/testbed/manager:{secrets.token_hex(4)}", tmp_path / "manager.tar"
    base = f"oci-archive:{images.build('python')}"
    call(
        "image",
        "build",
        "--manager",
        "--base",
        base,
        "--python",
        "3.13",
        "--to",
        str(archive),
        "--name",
        name,
    )
    for node in real_nodes:
        images.load_archive(archive, node)
    own = namespace.within(names.MANAGER_NAMESPACE)
    try:
        call("install", "--image", name)
        rules = f"namespace: 0\nnamespaces: {{{namespace.namespace}: 8}}\n"
        own.patch("configmap", names.QUEUE_RULES, {"data": {names.RULES_KEY: rules}})
        wait_until(lambda: _ready(own) == 2, "the manager's pods", PATIENCE)
        wait_until(lambda: _holder(own) in _pods(own), "a pod that decides", PATIENCE)
        yield namespace, own
    finally:
        call("install", "--remove")
        wait_until(lambda: not namespace.find("namespace", names.MANAGER_NAMESPACE), "its end", PATIENCE)


def _ready(own: Kubectl) -> int:
    return int(own.get("deployment", names.MANAGER_LEASE).get("status", {}).get("readyReplicas", 0))


def _pods(own: Kubectl) -> list[str]:
    return [each["metadata"]["name"] for each in own.items("pods")]


def _holder(own: Kubectl) -> str:
    lease = own.get("lease", names.MANAGER_LEASE)
    return str(lease.get("spec", {}).get("holderIdentity", ""))


def _submit(kubectl: Kubectl, name: str, *, workers: int) -> None:
    job = gang(name, workers=workers, gpus=4, priority=0, keeper=False)
    submit(Prepared(job=job), KubernetesEngine(namespace=kubectl.namespace), stays=False)


def test_its_pods_serve_the_queue_and_nobody_else_through_it(
    managed: tuple[Kubectl, Kubectl], user: Callable[..., Kubectl]
) -> None:
    namespace, own = managed
    _submit(namespace, "before", workers=2)
    wait_until(lambda: is_over(namespace.get("job", "before")), "the first gang", PATIENCE)
    killed = _holder(own)
    own("delete", "pod", killed, "--grace-period=0", "--force")
    # Its process may outlive its pod by a moment, and admit one more run.
    wait_until(lambda: _holder(own) not in ("", killed), "another one that decides", PATIENCE)
    _submit(namespace, "after", workers=2)
    wait_until(lambda: is_over(namespace.get("job", "after")), "a gang with the other replica", PATIENCE)
    assert _holder(own) != killed
    with _other(namespace, "victim") as victim, _other(namespace, "stranger") as stranger:
        _submit(victim, "demo", workers=1)  # its namespace may hold no GPU
        wait_until(lambda: names.PLACE in _notes(victim.get("job", "demo")), "its place", PATIENCE)
        _check_stranger(victim, own, user("stranger", []).within(stranger.namespace))


@contextmanager
def _other(namespace: Kubectl, name: str) -> Iterator[Kubectl]:
    """Another namespace, in which the account `stranger` of the test's may do everything if it is theirs."""
    found = namespace.within(f"{namespace.namespace}-{name}")
    namespace("create", "namespace", found.namespace)
    try:
        if name == "stranger":
            found("create", "role", "all", "--verb=*", "--resource=*.*")
            who = f"--serviceaccount={namespace.namespace}:stranger"
            found("create", "rolebinding", "all", "--role=all", who)
        yield found
    finally:
        namespace("delete", "namespace", found.namespace, "--wait=false")


def _check_stranger(victim: Kubectl, own: Kubectl, stranger: Kubectl) -> None:
    """They may read and write nothing of the victim's or the manager's, and copy what they know of a run."""
    job, record = victim.get("job", "demo"), victim.get("configmap", "demo")
    for where, what in ((victim, "jobs"), (victim, "configmaps"), (own, "pods"), (own, "configmaps")):
        with pytest.raises(Refused, match="orbidden"):
            stranger.within(where.namespace)("get", what)
    change = {"spec": {"holderIdentity": "stranger"}}
    with pytest.raises(Refused, match="orbidden"):
        stranger.within(own.namespace).patch("lease", names.MANAGER_LEASE, change)
    stranger.create(_copied(record), _copied(job))
    wait_until(lambda: names.PLACE in _notes(stranger.get("job", "demo")), "the copy's place", PATIENCE)
    stranger.patch("job", "demo", {"metadata": {"annotations": {names.WITHDRAWN: "{}"}}})
    stranger("delete", "job", "demo")
    now = victim.get("job", "demo")
    assert now["spec"] == job["spec"]
    assert names.WITHDRAWN not in _notes(now)


def _notes(obj: Object) -> dict[str, str]:
    return dict(obj["metadata"].get("annotations") or {})


def _copied(obj: Object) -> Object:
    """An object as a user of another namespace would make it, as like as they can."""
    made = copy.deepcopy(obj)
    about = made["metadata"]
    notes = {key: value for key, value in _notes(obj).items() if key != names.PLACE}
    made["metadata"] = {"name": about["name"], "labels": about["labels"], "annotations": notes}
    made.pop("status", None)
    if "spec" in made:
        made["spec"].pop("selector")
        labels = made["spec"]["template"]["metadata"]["labels"]
        made["spec"]["template"]["metadata"]["labels"] = {
            key: value for key, value in labels.items() if "controller-uid" not in key
        }
    return made
