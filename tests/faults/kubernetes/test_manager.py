"""The manager on a real cluster, killed all the time, with exactly the rights that `install` grants.

The gangs' nodes and pods are imagined by kwok; scheduler, Job controller and API server are real. Clients
submit while the manager's Lease is held by the test, so that the order of admission is known exactly: that of
the policy."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from testbed.kubectl import Kubectl, Object
from tests.conftest import wait_until
from tests.engines.kubernetes.real import access_of

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import ALL, Api, Gone
from echelon.engines.kubernetes.dispatch.election import Election
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.engines.kubernetes.install.installation import ClusterInstallation
from echelon.engines.kubernetes.install.rights import IN_CLUSTER, IN_OWN
from echelon.errors import EchelonError
from echelon.model.job import Job
from echelon.model.pod import Keeper, PodOptions, Toleration
from echelon.model.resources import Resources
from echelon.submit import Prepared, submit

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ACCOUNT = "system:serviceaccount:echelon-system:echelon-manager"
ALLOWED = 5  # the highest priority in the first namespace, in the end; in the second it is 0
BELIEVED = 5.0  # seconds by which a client's word may differ from the API server's
NODES, GPUS = 4, 4
IMAGE = {"image": "docker.io/testbed/none:1", "imageID": ""}


class Replica:
    """One replica of the manager: a process of this machine with the manager's own account."""

    def __init__(self, name: str, kubeconfig: Path, log: Path) -> None:
        self.name, self.kubeconfig, self.log = name, kubeconfig, log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ["manager", "--on", "k8s", "--identity", self.name, "--lease", "2"]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "echelon.cli.main", *words],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()


@dataclass
class History:
    """What a watch of all Jobs of these namespaces has seen: each version, in the API server's order."""

    api: Api
    namespaces: tuple[str, ...]
    jobs: dict[str, list[Object]] = field(default_factory=dict)
    pods: dict[str, list[Object]] = field(default_factory=dict)
    left: threading.Event = field(default_factory=threading.Event)

    def watch(self, kind: str, into: dict[str, list[Object]]) -> None:
        selector = f"{names.COMPONENT}={names.WORKER}"
        version = ""
        while not self.left.is_set():
            with suppress(EchelonError, Gone):
                if not version:
                    listed = self.api.list(kind, selector=selector, namespace=ALL)
                    for obj in listed.items:  # made before this thread had its turn
                        self._note(obj, into)
                    version = listed.version
                stream = self.api.watch(kind, selector=selector, version=version, timeout=5, namespace=ALL)
                with stream as events:
                    for what, obj in events:
                        version = obj["metadata"]["resourceVersion"]
                        if what != "BOOKMARK":
                            self._note(obj, into)

    def _note(self, obj: Object, into: dict[str, list[Object]]) -> None:
        about = obj["metadata"]
        if about.get("namespace") in self.namespaces:
            into.setdefault(f"{about['namespace']}/{about['name']}", []).append(obj)

    def admissions(self) -> list[tuple[int, str]]:
        """Each change of a Job from suspended to started, by the version at which it happened."""
        found = []
        for name, versions in self.jobs.items():
            for before, after in pairwise(versions):
                if before["spec"].get("suspend") and not after["spec"].get("suspend"):
                    found.append((int(after["metadata"]["resourceVersion"]), name))
        return sorted(found)


@pytest.fixture
def managed(
    namespace: Kubectl, fake_nodes: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Kubectl, Kubectl, Path]]:
    """Two namespaces, and the manager's objects except its pods; a kubeconfig of its account."""
    fake_nodes(NODES, gpus_each=GPUS, tainted=True)
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.chdir(tmp_path)
    api = Api(access_of(namespace))
    installation = ClusterInstallation(lambda: api)
    other = namespace.within(f"{namespace.namespace}-b")
    try:
        namespace("create", "namespace", other.namespace)
        for each in (namespace, other):
            namespace("annotate", "namespace", each.namespace, f"{names.MOST_PRIORITY}=8")
        installation.make("docker.io/testbed/none:1")
        api.delete("Deployment", names.MANAGER_LEASE, namespace=names.MANAGER_NAMESPACE)
        rules = {"data": {names.RULES_KEY: "overtake: 0s\n"}}
        api.patch("ConfigMap", names.QUEUE_RULES, rules, namespace=names.MANAGER_NAMESPACE)
        yield namespace, other, _kubeconfig(namespace, tmp_path)
    finally:
        installation.remove()
        namespace("delete", "namespace", other.namespace, "--wait=false")
        wait_until(lambda: api.find("Namespace", names.MANAGER_NAMESPACE) is None, "the manager's namespace")


def _kubeconfig(kubectl: Kubectl, folder: Path) -> Path:
    import json

    import yaml

    token = kubectl.within(names.MANAGER_NAMESPACE)("create", "token", names.MANAGER_LEASE).strip()
    view = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    view["users"] = [{"name": "manager", "user": {"token": token}}]
    view["contexts"][0]["context"] |= {"user": "manager", "namespace": names.MANAGER_NAMESPACE}
    path = folder / "manager.kubeconfig"
    path.write_text(yaml.safe_dump(view))
    return path


def gang(name: str, *, workers: int, gpus: int, priority: int, keeper: bool) -> Job:
    return Job(
        name=name,
        command=("true",),
        framework="plain",
        workers=workers,
        procs=1,
        resources=Resources(gpus=gpus),
        priority=priority,
        pod=PodOptions(
            image="docker.io/testbed/none:1",
            node_selector={"testbed/fake": "true"},
            tolerations=(Toleration(key="testbed/fake"),),
            linger=0.0,
            keeper=Keeper() if keeper else None,
        ),
    )


def submit_all(namespaces: tuple[str, str], count: int, clients: int, chance: random.Random) -> list[Job]:
    """So many gangs, by so many clients at once; even ones in the first namespace."""
    gangs = [
        gang(
            f"gang-{number}",
            workers=chance.randint(1, 3),
            gpus=chance.randint(1, GPUS),
            priority=chance.randint(-2, 8),
            keeper=number % 10 == 0,
        )
        for number in range(count)
    ]
    engines = [KubernetesEngine(namespace=each) for each in namespaces]

    def one(number: int) -> None:
        submit(Prepared(job=gangs[number]), engines[number % 2], stays=False)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(one, range(count)))
    return gangs


def policy_order(history: History, gangs: list[Job]) -> list[str]:
    """The oracle: by priority, as far as the namespace allows it, then by age, then by name."""
    keys = []
    for number, each in enumerate(gangs):
        namespace = history.namespaces[number % 2]
        first = history.jobs[f"{namespace}/{each.name}"][0]
        allowed = ALLOWED if number % 2 == 0 else 0
        keys.append((-min(each.priority, allowed), believed_age(first), f"{namespace}/{each.name}"))
    return [name for *_, name in sorted(keys)]


def believed_age(job: Object) -> float:
    """When a run was recorded, by its client's word, as far as the API server's whole seconds bear it out.
    Of twenty clients at once some are more than those few seconds between their record and their Job.
    """
    said = float(job["metadata"]["annotations"][names.CREATED])
    seen = datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp()
    return min(max(said, seen - BELIEVED), seen + BELIEVED)


def is_over(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)


def stuck_pod(kubectl: Kubectl) -> None:
    """A worker's pod whose node is gone: deleted, and never confirmed."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "stuck",
            "finalizers": ["testbed/stays"],
            "labels": {names.MANAGED_BY: "echelon", names.COMPONENT: names.WORKER, names.RUN: "dead"},
        },
        "spec": {
            "nodeName": "fake-gone",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": names.CONTAINER, "image": "docker.io/testbed/none:1"}],
        },
    }
    kubectl.create(pod)
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    runs = {"name": names.CONTAINER, "state": {"running": {}}, "ready": True, "restartCount": 0}
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [runs | IMAGE]}
    kubectl.patch("pod", "stuck", {"status": status}, subresource="status")
    kubectl("delete", "pod", "stuck", "--wait=false")


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.soak)])
def test_every_gang_starts_whole_once_and_in_order_while_the_manager_is_killed(
    managed: tuple[Kubectl, Kubectl, Path],
    tmp_path: Path,
    audit: Callable[[], list[Object]],
    count: int,
) -> None:
    first, second, kubeconfig = managed
    api = Api(access_of(first))
    history = History(api, (first.namespace, second.namespace))
    watches = [
        threading.Thread(target=history.watch, args=(kind, into))
        for kind, into in (("Job", history.jobs), ("Pod", history.pods))
    ]
    replicas = [Replica(name, kubeconfig, tmp_path / f"{name}.log") for name in ("one", "two")]
    chance = random.Random(1)
    for thread in watches:
        thread.start()
    try:
        election, submitted = Election(api, "test", lasts=6.0), threading.Event()
        assert election.renew()
        holder = threading.Thread(target=_hold, args=(election, submitted))
        holder.start()
        try:
            gangs = submit_all((first.namespace, second.namespace), count, 20, chance)
        finally:
            submitted.set()
            holder.join()
        # What a client was not refused, the manager still judges by what is allowed now.
        first("annotate", "--overwrite", "namespace", first.namespace, f"{names.MOST_PRIORITY}={ALLOWED}")
        first("annotate", "namespace", second.namespace, f"{names.MOST_PRIORITY}-")
        wait_until(lambda: len(history.jobs) == count, "the watch to have seen every Job")
        order = policy_order(history, gangs)
        assert history.admissions() == []
        stuck_pod(second)
        election.release()
        for each in replicas:
            each.start()
        while len(history.admissions()) < count:
            aim = min(len(history.admissions()) + chance.randint(1, 4), count)
            wait_until(lambda aim=aim: len(history.admissions()) >= aim, f"{aim} starts", 60)  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 1.0))  # any moment of a round
            unlucky = chance.choice(replicas)
            unlucky.end()
            unlucky.start()
        wait_until(lambda: all(is_over(history.jobs[name][-1]) for name in order), "all ends", 60)
        wait_until(lambda: second.get("pod", "stuck")["status"]["phase"] == "Failed", "the stuck pod", 60)
        for each in replicas:
            each.end(signal.SIGTERM)
    finally:
        history.left.set()
        for each in replicas:
            with suppress(ProcessLookupError):
                each.end()
        for thread in watches:
            thread.join()
        with suppress(EchelonError):
            second.patch("pod", "stuck", {"metadata": {"finalizers": None}})
    assert [name for _, name in history.admissions()] == order
    _check_gangs(history, gangs)
    _check_rights(audit())


def _hold(election: Election, submitted: threading.Event) -> None:
    while not submitted.wait(1.0):
        election.renew()


def _check_gangs(history: History, gangs: list[Job]) -> None:
    """All pods of each gang got their nodes, and at most all GPUs were held at any moment."""
    for number, each in enumerate(gangs):
        namespace = history.namespaces[number % 2]
        mine = [
            versions[-1]
            for name, versions in history.pods.items()
            if versions[-1]["metadata"]["labels"].get(names.RUN) == each.name
            and name.startswith(f"{namespace}/")
        ]
        assert len(mine) == each.workers, each.name
        assert all(pod["spec"].get("nodeName", "").startswith("fake-") for pod in mine), each.name
    held: dict[str, int] = {}
    changes = [
        (int(version["metadata"]["resourceVersion"]), name, version)
        for name, versions in history.pods.items()
        for version in versions
    ]
    for _, name, pod in sorted(changes, key=lambda each: each[0]):
        on = bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] in ("Pending", "Running")
        limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
        held[name] = int(limits.get(names.GPU, 0)) if on else 0
        assert sum(held.values()) <= NODES * GPUS


def _check_rights(entries: list[Object]) -> None:
    """What the manager asked for is what it may, no more and no less, and nothing was denied."""
    mine = [each for each in entries if each["user"]["username"] == ACCOUNT and "objectRef" in each]
    assert [each for each in mine if each.get("responseStatus", {}).get("code") == 403] == []
    used = {(_resource(each["objectRef"]), each["verb"]) for each in mine}
    granted = {(right.resource, verb) for right in (*IN_CLUSTER, *IN_OWN) for verb in right.verbs}
    assert used == granted


def _resource(ref: Object) -> str:
    return f"{ref['resource']}/{ref['subresource']}" if ref.get("subresource") else str(ref["resource"])


def _tail(replicas: list[Replica]) -> str:
    return "\n".join(each.log.read_text()[-1500:] for each in replicas)
