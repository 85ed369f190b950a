"""What the design of the Kubernetes engine relies on, tried on a real cluster with hand-written manifests.

What turns out differently on a new version of Kubernetes fails here first, before an engine's test does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from functools import partial

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl, Object, Refused
from tests.testbed import manifests

from testbed import cluster as whole

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MIB = 1024 * 1024


def test_a_suspended_job_is_admitted_by_one_patch_with_a_precondition(
    namespace: Kubectl, image: Callable[[str], str], real_nodes: list[str]
) -> None:
    job = manifests.indexed_job("queued", image("python"), manifests.SLEEP, spec={"suspend": True})
    namespace.create(job)
    manifests.wait_job(namespace, "queued", "Suspended")
    assert manifests.pods_of(namespace, "queued") == []
    seen = namespace.get("job", "queued")["metadata"]["resourceVersion"]
    admit = {
        "metadata": {"resourceVersion": seen},
        "spec": {"suspend": False, "template": {"spec": {"affinity": manifests.on_node(real_nodes[1])}}},
    }
    namespace.patch("job", "queued", admit)
    namespace.wait_for(lambda: manifests.phases(namespace, "queued") == ["Running"] * 2, "both pods to run")
    assert {item["spec"]["nodeName"] for item in manifests.pods_of(namespace, "queued")} == {real_nodes[1]}
    with pytest.raises(Refused, match="the object has been modified"):
        namespace.patch("job", "queued", admit)


def test_one_exit_code_fails_the_job_and_nothing_starts_over(
    namespace: Kubectl, image: Callable[[str], str]
) -> None:
    program = (
        manifests.AGENT
        + "time.sleep(3)\nsys.exit(193) if os.environ['JOB_COMPLETION_INDEX'] == '0' else time.sleep(600)\n"
    )
    namespace.create(manifests.indexed_job("over", image("python"), program))
    job = manifests.wait_job(namespace, "over", "Failed")
    reasons = {entry["type"]: entry.get("reason") for entry in job["status"]["conditions"]}
    assert reasons["Failed"] == reasons["FailureTarget"] == "PodFailurePolicy"
    namespace.wait_for(lambda: "Running" not in manifests.phases(namespace, "over"), "the peer to be ended")
    indexes = [
        item["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        for item in manifests.pods_of(namespace, "over")
    ]
    assert sorted(indexes) in (["0"], ["0", "1"])


def test_another_exit_code_and_a_deleted_pod_are_replaced(
    namespace: Kubectl, image: Callable[[str], str]
) -> None:
    counted = {
        "name": "FAILURES",
        "valueFrom": {
            "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"}
        },
    }
    program = manifests.AGENT + "print('failures', os.environ['FAILURES'], flush=True)\n"
    program += "me = os.environ['JOB_COMPLETION_INDEX'] + os.environ['FAILURES']\n"
    program += "sys.exit(5) if me == '00' else time.sleep(600)\n"
    namespace.create(manifests.indexed_job("again", image("python"), program, container={"env": [counted]}))

    def running(index: str) -> Object | None:
        for item in manifests.pods_of(namespace, "again"):
            same = item["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == index
            alive = item["status"]["phase"] == "Running" and not item["metadata"].get("deletionTimestamp")
            if same and alive:
                return item
        return None

    def failures(index: str) -> str:
        item = running(index)
        return (
            item["metadata"]["annotations"].get("batch.kubernetes.io/job-index-failure-count", "")
            if item
            else ""
        )

    namespace.wait_for(lambda: failures("0") == "1", "index 0 to be replaced after exit code 5")
    first = running("1")
    assert first
    namespace("delete", "pod", first["metadata"]["name"], "--wait=false")
    namespace.wait_for(lambda: failures("1") == "1", "the deleted pod to be replaced")
    replaced = running("1")
    assert replaced
    assert replaced["metadata"]["uid"] != first["metadata"]["uid"]


@pytest.mark.soak  # tests/faults/kubernetes/test_nodes.py relies on the first way, and fails without it
@pytest.mark.parametrize("way", ["status", "taint"])
def test_a_dead_nodes_pod_is_replaced_only_once_it_is_declared_failed(
    own_cluster: Target,
    namespace: Kubectl,
    image: Callable[[str], str],
    real_nodes: list[str],
    spare_node: str,
    way: str,
) -> None:
    """Deleting by force is not enough: the Job's finalizer holds the pod until its phase is Failed."""
    kubectl = own_cluster.kubectl
    impatient = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 2,
        }
        for key in ("not-ready", "unreachable")
    ]
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [spare_node]}]}
    preferred = [{"weight": 100, "preference": here}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    job = manifests.indexed_job(
        "moved", image("python"), manifests.SLEEP, count=1, tolerations=impatient, affinity=affinity
    )
    namespace.create(job)
    namespace.wait_for(lambda: manifests.phases(namespace, "moved") == ["Running"], "the pod to run")
    (lost,) = manifests.pods_of(namespace, "moved")
    name = lost["metadata"]["name"]
    assert lost["spec"]["nodeName"] == spare_node
    whole.kill_node(spare_node)
    kubectl.wait_for(
        lambda: manifests.conditions(kubectl.get("node", spare_node))["Ready"] == "Unknown", "NotReady"
    )
    namespace.wait_for(
        lambda: namespace.get("pod", name)["metadata"].get("deletionTimestamp"), "the eviction"
    )
    namespace("delete", "pod", name, "--force", "--grace-period=0", "--wait=false")
    time.sleep(3)
    (waiting,) = manifests.pods_of(namespace, "moved")
    assert waiting["metadata"]["uid"] == lost["metadata"]["uid"]
    assert waiting["metadata"]["deletionGracePeriodSeconds"] == 0
    assert waiting["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    if way == "status":
        namespace.patch("pod", name, {"status": {"phase": "Failed"}}, subresource="status")
    else:
        kubectl("taint", "node", spare_node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")

    def replacements() -> list[Object]:
        return [
            item
            for item in manifests.pods_of(namespace, "moved")
            if item["status"]["phase"] == "Running" and item["metadata"]["uid"] != lost["metadata"]["uid"]
        ]

    namespace.wait_for(replacements, "a replacement")
    assert [item["spec"]["nodeName"] in real_nodes for item in replacements()] == [True]


@pytest.mark.parametrize("end", ["ttl", "delete"])
def test_the_end_of_a_job_takes_the_record_and_all_it_owns(
    namespace: Kubectl, image: Callable[[str], str], end: str
) -> None:
    # It runs when all is made that shall go with it, however long that takes.
    spec = {"suspend": True, **({"ttlSecondsAfterFinished": 3} if end == "ttl" else {})}
    namespace.create(
        manifests.indexed_job("short", image("python"), "import time; time.sleep(4)", count=1, spec=spec)
    )
    uid = namespace.get("job", "short")["metadata"]["uid"]
    namespace.create(_config_map("record", owner=("batch/v1", "Job", "short", uid)))
    record = namespace.get("configmap", "record")["metadata"]["uid"]
    owner = ("v1", "ConfigMap", "record", record)
    service = manifests.headless("short", "short")
    service["metadata"] |= _config_map("", owner=owner)["metadata"] | {"name": "short"}
    namespace.create(_config_map("bundle", owner=owner), service)
    namespace.patch("job", "short", {"spec": {"suspend": False}})
    if end == "delete":
        namespace("delete", "job", "short", "--wait=false")
    for words in ("job/short", "configmap/record", "configmap/bundle", "service/short"):
        namespace.wait_for(partial(_gone, namespace, words), f"{words} to be gone")
    namespace.wait_for(lambda: not manifests.pods_of(namespace, "short"), "the pods to be gone")


def test_the_kubelet_serves_only_the_current_file_of_a_log_rotated_at_10_mib(
    namespace: Kubectl, image: Callable[[str], str]
) -> None:
    # The kubelet looks every 10 s; it writes on until the file has been turned over. The last line is written
    # to a file that is too small to be turned over once more: a new one would be empty.
    program = (
        "import sys, time\n"
        "print('the first line', flush=True)\n"
        "for number in range(120):\n"
        "    sys.stdout.write(('x' * 1023 + '\\n') * 300)\n"
        "    sys.stdout.flush()\n"
        "    time.sleep(0.3)\n"
        "time.sleep(15)\n"
        "print('the last line', flush=True)\n"
    )
    namespace.create(manifests.pod("chatty", image("python"), program))
    manifests.wait_phase(namespace, "chatty", "Succeeded", "Failed", patience=180)
    output = namespace("logs", "chatty")
    written = 120 * 300 * 1024
    assert "the last line" in output
    assert "the first line" not in output
    assert len(output) < written


def test_a_bundle_of_5_mib_travels_in_config_maps(namespace: Kubectl, image: Callable[[str], str]) -> None:
    content = secrets.token_bytes(5 * MIB)
    # A ConfigMap holds 1 MiB in all, and base64 makes three bytes four.
    size = 700 * 1024
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    for number, part in enumerate(parts):
        namespace.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"bundle-{number}"},
                "immutable": True,
                "binaryData": {f"part-{number:03d}": base64.b64encode(part).decode()},
            }
        )
    program = (
        "import hashlib, pathlib\n"
        "whole = b''.join(path.read_bytes() for path in sorted(pathlib.Path('/bundle').glob('part-*')))\n"
        "print(hashlib.sha256(whole).hexdigest())\n"
    )
    sources = [{"configMap": {"name": f"bundle-{number}"}} for number in range(len(parts))]
    namespace.create(
        manifests.pod(
            "unpacker",
            image("python"),
            program,
            container={"volumeMounts": [{"name": "bundle", "mountPath": "/bundle"}]},
            volumes=[{"name": "bundle", "projected": {"sources": sources}}],
        )
    )
    manifests.wait_phase(namespace, "unpacker", "Succeeded")
    assert namespace("logs", "unpacker").strip() == hashlib.sha256(content).hexdigest()


def _gone(kubectl: Kubectl, words: str) -> bool:
    return kubectl.find(words) is None


def _config_map(name: str, *, owner: tuple[str, str, str, str]) -> Object:
    version, kind, owner_name, uid = owner
    reference = {"apiVersion": version, "kind": kind, "name": owner_name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [reference]},
        "data": {"record": json.dumps({"run": name})},
    }
