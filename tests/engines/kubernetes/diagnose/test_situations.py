"""The diagnosis of live objects: every trouble is brought about on a real cluster, and must be found first.

What it says exactly is checked in `test_diagnose.py`, on objects that were taken here (`taken.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl, Object
from tests.engines.kubernetes.ordinary import mounted, ordinary
from tests.engines.kubernetes.servers import locked_registry, refusing_webhook
from tests.engines.kubernetes.situations import (
    Situation,
    clear,
    run_job,
    wait_for_kind,
    wait_for_kinds,
    wait_until,
)
from tests.engines.kubernetes.taken import keep

from echelon.engines.kubernetes.state.workers import is_running
from testbed import registry

# Their words are tested on what was taken here; that they still come about takes five minutes.
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.soak]


@pytest.fixture(autouse=True)
def cleared(namespace: Kubectl) -> Iterator[None]:
    yield
    clear(namespace)


RESTRICTED = "pod-security.kubernetes.io/enforce"


def test_troubles_of_a_plain_namespace(
    namespace: Kubectl, image: Callable[[str], str], real_nodes: list[str]
) -> None:
    """All at once, since each waits for something else."""
    bring_about(namespace, ordinary(image("python")))


def test_a_quota_has_no_room(namespace: Kubectl, image: Callable[[str], str]) -> None:
    picture = image("python")
    namespace.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "team-quota"},
            "spec": {"hard": {"requests.nvidia.com/gpu": "4", "limits.memory": "1Gi"}},
        }
    )
    namespace.wait_for(
        lambda: namespace.get("resourcequota", "team-quota").get("status", {}).get("hard"), "the quota"
    )
    for run, gpus, memory, kind in (
        ("unsaid", "1", None, "refused"),
        ("too-many", "8", "64Mi", "refused"),
        ("full", "3", "64Mi", "quota"),
    ):
        limits = {"nvidia.com/gpu": gpus, **({"memory": memory} if memory else {})}
        namespace.create(run_job(run, picture, workers=2, container={"resources": {"limits": limits}}))
        keep(f"refused-quota-{run}", wait_for_kind(namespace, run, kind), namespace.namespace)


def test_a_limit_range_forbids_a_worker(namespace: Kubectl, image: Callable[[str], str]) -> None:
    namespace.create(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "small"},
            "spec": {"limits": [{"type": "Container", "max": {"memory": "128Mi", "cpu": "1"}}]},
        }
    )
    limits = {"resources": {"limits": {"memory": "1Gi", "cpu": "500m"}}}
    namespace.create(run_job("large", image("python"), container=limits))
    keep("refused-limit-range", wait_for_kind(namespace, "large", "refused"), namespace.namespace)


def test_a_security_level_forbids_a_worker(namespace: Kubectl, image: Callable[[str], str]) -> None:
    namespace("label", "namespace", namespace.namespace, f"{RESTRICTED}=restricted")
    there = mounted({"hostPath": {"path": "/tmp"}})
    namespace.create(run_job("rooted", image("python"), **there))
    keep("refused-pod-security", wait_for_kind(namespace, "rooted", "refused"), namespace.namespace)


def test_an_admission_policy_forbids_a_worker(namespace: Kubectl, image: Callable[[str], str]) -> None:
    name = f"{namespace.namespace}-labels"
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace.namespace}}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    wanted = "'cost-centre' in object.metadata.labels"
    kind = {"apiVersion": "admissionregistration.k8s.io/v1"}
    policy = {
        **kind,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": rules, "namespaceSelector": here},
            "validations": [{"expression": wanted, "message": "every pod names its cost-centre"}],
        },
    }
    binding = {
        **kind,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    namespace.create(policy, binding)
    try:
        refused = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": {"a": "b"}}}
        spec = {"containers": [{"name": "a", "image": "a"}], "schedulerName": "nobody"}
        namespace.wait_for(lambda: not _accepts(namespace, {**refused, "spec": spec}), "the policy to count")
        namespace.create(run_job("unlabelled", image("python")))
        keep("refused-policy", wait_for_kind(namespace, "unlabelled", "refused"), namespace.namespace)
    finally:
        namespace("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", name)


@pytest.mark.parametrize(("answers", "kind"), [(True, "refused"), (False, "webhook")])
def test_a_webhook_stands_in_the_way(
    own_cluster: Target,
    namespace: Kubectl,
    image: Callable[[str], str],
    tmp_path: Path,
    answers: bool,
    kind: str,
) -> None:
    name = f"{namespace.namespace}.example.com"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    with refusing_webhook(tmp_path) as (address, authority):
        url = f"https://{address}/pods" if answers else "https://127.0.0.1:9/pods"
        hook = {
            "name": name,
            "clientConfig": {"url": url, "caBundle": authority},
            "rules": rules,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 3,
        }
        namespace.create(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": name},
                "webhooks": [hook],
            }
        )
        try:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}}
            spec = {"containers": [{"name": "a", "image": "a"}], "schedulerName": "nobody"}
            namespace.wait_for(lambda: not _accepts(namespace, {**pod, "spec": spec}), "the webhook to count")
            namespace.create(run_job("hooked", image("python")))
            seen = wait_for_kind(namespace, "hooked", kind)
            keep(f"refused-webhook-{'denied' if answers else 'silent'}", seen, namespace.namespace)
        finally:
            namespace("delete", "validatingwebhookconfiguration", name)


def test_images_that_a_registry_does_not_give(
    own_cluster: Target, namespace: Kubectl, image: Callable[[str], str], tmp_path: Path
) -> None:
    address = registry.start()
    secrets = [{"name": "absent"}]
    with locked_registry(tmp_path) as locked:
        private = f"{locked}/team/private"
        situations = [
            Situation(
                name="image-not-found", kind="image", objects=[run_job("gone", f"{address}/team/absent:1")]
            ),
            Situation(name="image-login", kind="login", objects=[run_job("locked", f"{private}:1")]),
            Situation(
                name="image-pull-secret-missing",
                kind="login",
                objects=[run_job("keyless", f"{private}:2", imagePullSecrets=secrets)],
            ),
        ]
        bring_about(namespace, situations, **{"registry.example:5000": locked})


def test_gpus_that_no_node_has_free(
    namespace: Kubectl, image: Callable[[str], str], real_nodes: list[str], give_gpus: Callable[..., None]
) -> None:
    picture = image("python")
    give_gpus(real_nodes[0], 2, model="NVIDIA-L4")
    give_gpus(real_nodes[1], 4, model="NVIDIA-H100-80GB-HBM3", taint=True)

    def wants(gpus: str) -> Object:
        return {"resources": {"limits": {"nvidia.com/gpu": gpus}}}

    product = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-A100-SXM4-80GB"]}
    only = {"nodeSelectorTerms": [{"matchExpressions": [product]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": only}}
    tolerant = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    holder = run_job("holder", picture, container=wants("2"))
    namespace.create(holder)
    wait_until(namespace, "holder", lambda seen: any(map(is_running, seen.read_pods())), "to run")
    situations = [
        Situation(
            name="unschedulable-gpus-taken",
            kind="unschedulable",
            objects=[run_job("crowded", picture, container=wants("2"), tolerations=[], workers=2)],
        ),
        Situation(
            name="unschedulable-gpu-model",
            kind="unschedulable",
            objects=[
                run_job("choosy", picture, container=wants("1"), affinity=affinity, tolerations=tolerant)
            ],
        ),
        Situation(
            name="unschedulable-gpus-too-many",
            kind="unschedulable",
            objects=[run_job("greedy", picture, container=wants("8"), tolerations=tolerant)],
        ),
    ]
    bring_about(namespace, situations)


def bring_about(namespace: Kubectl, situations: list[Situation], **chance: str) -> None:
    """Make what is in each, and wait until each is diagnosed."""
    kinds = {situation.objects[-1]["metadata"]["name"]: situation.kind for situation in situations}
    namespace.create(*(each for situation in situations for each in situation.objects))
    found = wait_for_kinds(namespace, kinds)
    for situation in situations:
        keep(situation.name, found[situation.objects[-1]["metadata"]["name"]], namespace.namespace, **chance)


def _accepts(namespace: Kubectl, pod: Object) -> bool:
    try:
        namespace("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    except Exception:  # noqa: BLE001 - whatever it says, it was refused
        return False
    return True
