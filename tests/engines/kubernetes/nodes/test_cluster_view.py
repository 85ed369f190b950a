"""`top`, `doctor` and the inventory, of a real cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl
from tests.testbed import manifests

from echelon.cli import main
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.login.kubeconfig import load_access
from echelon.engines.kubernetes.doctor import CLUSTER_ROLE, FULL_ROLE, MINIMAL_ROLE
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.quantities import to_thousandths
from echelon.model.engine.cluster import Cluster
from testbed import api as testbed_api

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

Object = dict[str, Any]
Echelon = Callable[..., subprocess.CompletedProcess[str]]
User = Callable[[str, Sequence[Object]], Kubectl]
H100 = "NVIDIA-H100-80GB-HBM3"


def connect(kubectl: Kubectl) -> Api:
    return Api(
        load_access(namespace=kubectl.namespace or None, environment={"KUBECONFIG": str(kubectl.kubeconfig)})
    )


@pytest.fixture
def echelon(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], home: object) -> Echelon:
    """The command line in this process, as the user and in the namespace of a kubectl."""

    def call(kubectl: Kubectl, *words: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("KUBECONFIG", str(kubectl.kubeconfig))
        capfd.readouterr()
        where = ["--on", "k8s", "--namespace", kubectl.namespace]
        code = main.call([words[0], *where, *words[1:]])
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(words, code, out, err)

    return call


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, Object]:
    """The lines of a check-up; rights by what they are a right to."""
    found: dict[str, Object] = {}
    for each in json.loads(done.stdout):
        name = f"right {each['found'].partition(':')[0]}" if each["what"] == "rights" else each["what"]
        found.setdefault(name, each)
        assert each["level"] == "ok" or each["fix"], each
    return found


def asking(image: str, name: str, node: str, **amounts: str) -> Object:
    resources = {"gpu": names.GPU, "cpu": "cpu", "memory": "memory"}
    limits = {resources[key]: value for key, value in amounts.items()}
    made = manifests.pod(name, image, manifests.SLEEP, container={"resources": {"limits": limits}})
    made["spec"]["nodeName"] = node
    return made


def held(cluster: Cluster, node: str) -> list[str]:
    everywhere = [*cluster.nodes, *(each.node for each in cluster.left_out)]
    (found,) = (each for each in everywhere if each.name == node)
    return [gpu.holder for gpu in found.gpus if gpu.holder is not None]


# What is free


def allocated(kubectl: Kubectl, node: str) -> dict[str, int]:
    """What kubectl says is requested of a node: the oracle."""
    table = kubectl("describe", "node", node).partition("Allocated resources:")[2].partition("Events:")[0]
    rows = re.findall(r"^  (\S+) +(\S+)", table, re.MULTILINE)
    return {name: to_thousandths(amount) for name, amount in rows if re.fullmatch(r"[\d.]+[A-Za-z]*", amount)}


def test_what_is_free_is_what_kubectl_says(
    namespace: Kubectl, cluster: Target, give_gpus: Callable[..., None], real_nodes: list[str], image: Any
) -> None:
    first, second = real_nodes[:2]
    give_gpus(first, 4, model=H100, taint=True)
    python = image("python")
    many = asking(python, "many", first, gpu="2", cpu="200m", memory="64Mi")
    many["spec"]["initContainers"] = [
        {
            "name": "beside",
            "image": python,
            "command": ["python3", "-c", manifests.SLEEP],
            "restartPolicy": "Always",
            "resources": {"requests": {"cpu": "30m"}},
        },
        {
            "name": "before",
            "image": python,
            "command": ["python3", "-c", ""],
            "resources": {"requests": {"cpu": "900m", "memory": "8Mi"}},
        },
    ]
    ended = manifests.pod("ended", python, "")
    ended["spec"] |= {"nodeName": second}
    ended["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m"}}
    namespace.create(many, asking(python, "one", second, cpu="0.125", memory="100M"), ended)
    manifests.wait_phase(namespace, "many", "Running")
    manifests.wait_phase(namespace, "ended", "Succeeded")
    looked = inventory.look(connect(namespace))
    for name in (first, second):
        (node,) = (each for each in looked.nodes if each.name == name)
        oracle = allocated(cluster.kubectl, name)
        assert round((node.cpus - node.free_cpus) * 1000) == oracle["cpu"]
        assert (node.memory - node.free_memory) * 1000 == oracle["memory"]
        taken = sum(gpu.holder is not None for gpu in node.gpus)
        assert taken * 1000 == oracle.get(names.GPU, 0)
    (node,) = (each for each in looked.nodes if each.name == first)
    assert {gpu.model for gpu in node.gpus} == {H100}
    assert node.gpus[0].memory == 81559 * 2**20
    assert held(looked, first) == [f"{namespace.namespace}/many"] * 2
    # Who asks for no GPU does not tolerate the GPUs' taint.
    assert first in {each.node.name for each in inventory.look(connect(namespace), gpus=False).left_out}
    elsewhere = inventory.look(connect(namespace), selector=f"kubernetes.io/hostname={second}")
    assert [each.name for each in elsewhere.nodes] == [second]


def test_a_started_run_holds_its_places_before_and_after_its_pods_are_there(
    namespace: Kubectl, give_gpus: Callable[..., None], real_nodes: list[str], image: Any
) -> None:
    first, second = real_nodes[:2]
    for name in (first, second):
        give_gpus(name, 2)
    ours = names.labels_of("fm", "ann", names.WORKER)
    made = manifests.indexed_job(
        "fm",
        image("python"),
        manifests.SLEEP,
        container={"resources": {"limits": {names.GPU: "1"}}},
        schedulingGates=[{"name": "test/wait"}],  # pods are there, and no scheduler has looked at them
    )
    made["metadata"] |= {"labels": ours, "annotations": {names.NODES: json.dumps([first, first])}}
    made["spec"]["template"]["metadata"]["labels"] |= ours
    namespace.create(made)
    api = connect(namespace)

    def is_free(node: str) -> bool:
        return held(inventory.look(api), node) == []

    assert held(inventory.look(api), first) == ["fm", "fm"]
    namespace.wait_for(lambda: len(manifests.pods_of(namespace, "fm")) == 2, "the pods")
    assert held(inventory.look(api), first) == ["fm", "fm"]
    # One of them ends up elsewhere than planned.
    pods = {
        each["metadata"]["annotations"][names.COMPLETION_INDEX]: each
        for each in manifests.pods_of(namespace, "fm")
    }
    change = {"spec": {"schedulingGates": None, "nodeSelector": {"kubernetes.io/hostname": second}}}
    namespace.patch("pod", pods["1"]["metadata"]["name"], change)
    manifests.wait_phase(namespace, pods["1"]["metadata"]["name"], "Running")
    looked = inventory.look(api)
    assert (held(looked, first), held(looked, second)) == (["fm"], ["fm"])
    namespace("delete", "job", "fm", "--wait=false", "--cascade=foreground")
    for name in (first, second):
        namespace.wait_for(partial(is_free, name), "its GPUs to be free")


def test_nodes_that_are_closed(
    namespace: Kubectl, cluster: Target, give_gpus: Callable[..., None], real_nodes: list[str]
) -> None:
    give_gpus(real_nodes[0], 1)
    taint = {"key": "dedicated", "value": "infra", "effect": "NoSchedule"}
    cluster.kubectl.patch("node", real_nodes[0], {"spec": {"taints": [taint]}})
    api = connect(namespace)
    (out,) = inventory.look(api).left_out
    assert (out.node.name, out.passing) == (real_nodes[0], False)
    assert out.why.startswith("taint dedicated=infra:NoSchedule")
    assert inventory.look(api, tolerations=[{"key": "dedicated", "operator": "Exists"}]).left_out == ()
    cluster.kubectl.patch("node", real_nodes[0], {"spec": {"taints": None}})
    cluster.kubectl("cordon", real_nodes[0])
    try:
        (out,) = inventory.look(api).left_out
        assert (out.node.name, out.why, out.passing) == (real_nodes[0], "cordoned", True)
    finally:
        cluster.kubectl("uncordon", real_nodes[0])
    # The taint that came with the cordon is taken away by a controller, a moment later.
    cluster.kubectl.wait_for(lambda: inventory.look(api).left_out == (), "the node to be open again")


def test_devices_that_a_driver_offers_by_claims_are_named(
    own_cluster: Target, namespace: Kubectl, echelon: Echelon
) -> None:
    """A slice as a DRA driver publishes it; no driver is needed to list it."""
    version = "resource.k8s.io/v1"
    if version not in own_cluster.kubectl("api-versions").split():
        pytest.skip(f"this Kubernetes does not serve {version}")
    name = f"{namespace.namespace}.example.com"
    device = {"name": "gpu-0", "attributes": {"productName": {"string": "Fast GPU"}}}
    pool = {"name": "all", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": name, "pool": pool, "allNodes": True, "devices": [device]}
    own_cluster.kubectl.create(
        {"apiVersion": version, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
    )
    try:
        assert f"1 Fast GPU of {name}" in echelon(namespace, "top").stdout
        named = findings(echelon(namespace, "doctor", "-o", "json"))["devices"]
        assert f"1 Fast GPU of {name}, by resource claims" in named["found"]
    finally:
        own_cluster.kubectl("delete", "resourceslice", name)


# Few rights


def test_without_the_right_to_look_around_all_but_placement_works(
    namespace: Kubectl, user: User, image: Any, real_nodes: list[str], echelon: Echelon
) -> None:
    ann = user("ann", MINIMAL_ROLE)
    looked = inventory.look(connect(ann))
    assert (looked.known, looked.nodes) == (False, ())
    namespace.create(asking(image("python"), "some", real_nodes[0], cpu="100m"))
    manifests.wait_phase(namespace, "some", "Running")
    usage = json.loads(echelon(ann, "top", "-o", "json").stdout)
    assert usage == {
        "namespace": namespace.namespace,
        "nodes": None,
        "runs": [],
        "holders": [],
        "devices": [],
    }
    assert "you may not list them" in echelon(ann, "top").stdout
    done = echelon(ann, "doctor", "-o", "json")
    assert done.returncode == 0, done.stdout
    found = findings(done)
    assert found["namespace"]["found"].endswith(f"as system:serviceaccount:{namespace.namespace}:ann")
    for need in ("jobs", "configmaps", "secrets", "services", "pods", "pods/log", "pods/exec", "namespaces"):
        assert found[f"right {need}"]["level"] == "ok", found[f"right {need}"]
    for what in ("right nodes", "right persistentvolumeclaims", "nodes", "GPUs", "storage classes"):
        assert found[what]["level"] == "degraded", found[what]
    assert found["Pod Security"]["found"].startswith("privileged")


def test_the_commands_that_grant_rights_do(
    namespace: Kubectl, cluster: Target, user: User, echelon: Echelon
) -> None:
    """Somebody without any right, and an administrator who types what the check-up says."""
    bob = user("bob", [])
    done = echelon(bob, "doctor", "-o", "json")
    assert done.returncode == 1
    lacking = [each for each in json.loads(done.stdout) if each["what"] == "rights"]
    assert {each["level"] for each in lacking} == {"missing", "degraded"}
    for each in lacking:
        if "clusterrole" in each["fix"]:
            continue  # it would outlive the test
        for command in each["fix"][each["fix"].index("kubectl ") :].split(" && "):
            cluster.kubectl(*command.split()[1:])
    wanted = {f"right {rule['resources'][0]}" for rule in FULL_ROLE}

    def lacks() -> set[str]:
        found = findings(echelon(bob, "doctor", "-o", "json"))
        return {name for name in wanted if found.get(name, {}).get("level") != "ok"}

    # The API server hears of roles from a watch of its own, a moment after they were written.
    cluster.kubectl.wait_for(lambda: not lacks(), "the rights to be in force")


@pytest.mark.core
def test_every_right(namespace: Kubectl, echelon: Echelon) -> None:
    found = findings(echelon(namespace, "doctor", "-o", "json"))
    assert {each["level"] for name, each in found.items() if name.startswith("right ")} == {"ok"}
    assert {f"right {rule['resources'][0]}" for rule in (*FULL_ROLE, *CLUSTER_ROLE)} <= set(found)


# The check-up


@pytest.mark.core
def test_a_plain_namespace(
    namespace: Kubectl, echelon: Echelon, give_gpus: Callable[..., None], real_nodes: list[str]
) -> None:
    give_gpus(real_nodes[0], 3, model=H100)
    done = echelon(namespace, "doctor")
    assert done.returncode == 0
    assert re.search(r"^ok +cluster +https://\S+ answers \(context \S+\)$", done.stdout, re.MULTILINE)
    assert re.search(r"^ok +Kubernetes +v1\.\d+", done.stdout, re.MULTILINE)
    assert f"3 {H100}, 3 free: {real_nodes[0]} (3 of 3)" in done.stdout
    assert re.search(r"^ok +storage classes .*default: local$", done.stdout, re.MULTILINE)
    assert re.search(r"^ok +network policies +none$", done.stdout, re.MULTILINE)
    assert namespace.items("jobs,pods") == []  # looking makes nothing


def test_a_namespace_with_rules(namespace: Kubectl, cluster: Target, echelon: Echelon) -> None:
    level = {"metadata": {"labels": {names.SECURITY_LEVEL: "restricted"}}}
    cluster.kubectl.patch("namespace", namespace.namespace, level)
    namespace.create(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "deny"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        },
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "team"},
            "spec": {"hard": {"requests.nvidia.com/gpu": "4", "limits.cpu": "2", "pods": "0"}},
        },
    )
    namespace.wait_for(
        lambda: (namespace.get("resourcequota", "team").get("status") or {}).get("used"), "the quota"
    )
    done = echelon(namespace, "doctor", "-o", "json")
    found = findings(done)
    assert found["Pod Security"]["found"].startswith("restricted")
    assert found["network policies"]["level"] == "degraded"
    assert "requests.nvidia.com/gpu 4 of 4" in found["quota"]["found"]
    assert "every pod must have limits: cpu" in done.stdout
    # What the check-up advises is what helps, and the API server accepts it.
    advice = found["network policies"]["fix"]
    namespace("apply", "-f", "-", stdin=advice[advice.index("{") : advice.rindex("}") + 1])
    assert findings(echelon(namespace, "doctor", "-o", "json"))["network policies"]["level"] == "ok"
    # And a pod that cannot be made is told, not waited for.
    tried = findings(echelon(namespace, "doctor", "--image", "docker.io/testbed/python:1", "-o", "json"))
    assert tried["image"]["level"] != "ok"


def test_an_image_is_tried_in_a_pod(
    namespace: Kubectl, cluster: Target, echelon: Echelon, image: Any
) -> None:
    level = {"metadata": {"labels": {names.SECURITY_LEVEL: "restricted"}}}
    cluster.kubectl.patch("namespace", namespace.namespace, level)
    found = findings(echelon(namespace, "doctor", "--image", image("python"), "-n", "2", "-o", "json"))
    assert found["network"]["level"] == "ok", found["network"]
    assert re.search(r"pods on (\S+) and (?!\1)\S+ exchange 8 MiB", found["network"]["found"])
    assert re.search(r"python:1, Python 3\.\d+\.\d+", found["image"]["found"]), found["image"]
    assert found["image"]["level"] == "ok"
    assert (found["mpirun"]["level"], found["mpirun"]["found"]) == ("degraded", "none in the image")
    assert "openmpi-bin" in found["mpirun"]["fix"]
    assert found["DNS"] == {
        "level": "ok",
        "what": "DNS",
        "found": "a pod finds kubernetes.default.svc",
        "fix": "",
    }
    done = echelon(namespace, "doctor", "--image", "docker.io/testbed/nothing:1", "-o", "json")
    assert done.returncode == 1
    assert findings(done)["image"]["level"] == "missing"
    namespace.wait_for(lambda: namespace.items("jobs,pods") == [], "what was made to be gone")


# A thousand nodes

SIZE = 1000
MEASURE = """
import json, resource, sys, time
from echelon.cli import main
began = time.process_time()
code = main.call(["top", "--on", "k8s", "-o", "json"])
usage = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss, which begins with the size of whoever started us.
memory = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([round(usage.ru_utime + usage.ru_stime, 2), memory // 1024]), file=sys.stderr)
sys.exit(code)
"""


def test_a_thousand_nodes_and_pods_are_seen_with_little(
    namespace: Kubectl,
    fake_nodes: Callable[..., list[str]],
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = fake_nodes(SIZE, gpus_each=8)
    path = f"/api/v1/namespaces/{namespace.namespace}/pods"
    with testbed_api.Api("testbed:fake-pods") as api:
        for number, name in enumerate(made):
            asked = asking(
                "docker.io/testbed/none:1", f"p{number}", name, gpu=str(number % 8 + 1), cpu="1", memory="1Gi"
            )
            status, answer = api.call("POST", path, asked)
            assert status == 201, answer
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    cpu, memory = json.loads(done.stderr)
    record_property("seconds to show 1000 nodes and 1000 pods", round(time.monotonic() - began, 2))
    record_property("processor seconds", cpu)
    record_property("memory in MiB", memory)
    nodes = {each["node"]: each for each in json.loads(done.stdout)["nodes"]}
    assert sum(nodes[name]["gpus"] for name in made) == 8 * SIZE
    assert [nodes[name]["gpus_used"] for name in made] == [number % 8 + 1 for number in range(SIZE)]
    assert nodes[made[3]]["users"] == {f"{namespace.namespace}/p3": 4}
    assert memory < 60
