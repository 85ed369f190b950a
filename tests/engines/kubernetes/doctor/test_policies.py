"""Whether workers can talk to each other under a namespace's NetworkPolicies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.kubernetes.cluster_objects import ME, Object

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.doctor.policies import ALLOWING, check_policies
from echelon.model.engine.finding import Finding

OURS = {"matchLabels": {names.MANAGED_BY: "echelon"}}


def policy(name: str = "p", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"podSelector": {}, **spec}}


def network(*policies: Object) -> Finding:
    finding = check_policies(policies, ME, {"kubernetes.io/metadata.name": ME, "team": "vision"})
    assert finding.level == "ok" or finding.fix
    return finding


@pytest.mark.parametrize(
    "policies",
    [
        [],
        [policy(podSelector={"matchLabels": {"app": "web"}})],  # of others
        [policy(podSelector={"matchExpressions": [{"key": names.RUN, "operator": "DoesNotExist"}]})],
        [policy(ingress=[{}])],
        [policy(ingress=[{"from": [{"podSelector": {}}]}])],
        [policy(ingress=[{"from": [{"podSelector": OURS}]}])],
        [policy(ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "vision"}}}]}])],
        [policy(ingress=[{"from": [{"namespaceSelector": {}, "podSelector": OURS}]}])],
        [policy(ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}])],
        [policy(ingress=[{"ports": [{"port": 1024, "endPort": 65535}]}])],
        [policy(ingress=[{"ports": [{"protocol": "TCP"}]}])],
        [
            policy("a", ingress=[{"ports": [{"port": 29411}]}]),
            policy(
                "b",
                ingress=[{"ports": [{"port": 32768, "endPort": 50000}, {"port": 50001, "endPort": 61000}]}],
            ),
        ],
        [
            policy("closed", policyTypes=["Ingress"]),
            policy("open", ingress=[{}]),
        ],  # what one allows is allowed
        [policy(egress=[{}], ingress=[{}])],
        [policy(policyTypes=["Egress"], egress=[{}])],
        [
            policy(
                policyTypes=["Egress"],
                egress=[
                    {"to": [{"podSelector": {}}]},
                    {"to": [{"namespaceSelector": {}}], "ports": [{"port": 53, "protocol": "UDP"}]},
                ],
            )
        ],
    ],
)
def test_policies_that_let_workers_talk(policies: list[Object]) -> None:
    assert network(*policies).level == "ok"


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ([policy("deny", policyTypes=["Ingress"])], ["deny: workers may not be reached by each other"]),
        ([policy("deny")], ["deny: workers may not be reached by each other"]),  # ingress goes without saying
        (
            [policy(ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}])],
            ["be reached by each other"],
        ),
        (
            [policy(ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "audio"}}}]}])],
            ["be reached by each other"],
        ),
        ([policy(ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])], ["be reached by each other"]),
        (
            [policy(ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}])],
            ["be reached by each other"],
        ),
        (
            [policy(ingress=[{}], egress=[{"ports": [{"port": 443}]}])],
            ["may not reach each other", "port 53"],
        ),
        ([policy(ingress=[{"ports": [{"port": 29411}]}])], ["on all ports"]),
        ([policy(ingress=[{"ports": [{"port": 30000, "endPort": 65535}]}])], ["on all ports"]),
        ([policy(ingress=[{"ports": [{"port": 0, "endPort": 65535, "protocol": "UDP"}]}])], ["on all ports"]),
        ([policy(ingress=[{"ports": [{"port": "http"}]}])], ["on all ports"]),
        ([policy(policyTypes=["Egress"])], ["may not reach each other", "port 53"]),
        (
            [policy(policyTypes=["Egress"], egress=[{"to": [{"podSelector": {}}]}])],
            ["workers may not ask for names"],
        ),
        (
            [policy(podSelector={"matchExpressions": [{"key": names.RUN, "operator": "Exists"}]})],
            ["be reached by each other"],
        ),
        (
            [
                policy(
                    podSelector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}
                )
            ],
            ["be reached by each other"],
        ),
    ],
)
def test_policies_that_cut_the_gang(policies: list[Object], words: list[str]) -> None:
    finding = network(*policies)
    assert finding.level == "degraded"
    for each in words:
        assert each in finding.found
    assert "kubectl -n mine apply -f -" in finding.fix
    assert network(*policies, ALLOWING).level == "ok"  # and what we advise helps


PEERS = st.lists(
    st.sampled_from(
        [
            {"podSelector": {}},
            {"podSelector": OURS},
            {"podSelector": {"matchLabels": {"app": "web"}}},
            {"namespaceSelector": {}},
            {"namespaceSelector": {"matchLabels": {"team": "audio"}}},
            {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}},
        ]
    ),
    max_size=2,
)
RULES = st.lists(st.fixed_dictionaries({}, optional={"from": PEERS, "to": PEERS}), max_size=2)
POLICIES = st.lists(
    st.builds(
        lambda selector, ingress, egress, types: policy(
            podSelector=selector, ingress=ingress, egress=egress, policyTypes=types
        ),
        st.sampled_from([{}, OURS, {"matchLabels": {"app": "web"}}]),
        RULES,
        RULES,
        st.lists(st.sampled_from(["Ingress", "Egress"]), unique=True),
    ),
    max_size=3,
)


@given(POLICIES)
def test_policies_only_ever_add_what_is_allowed_and_ours_mends_all(policies: list[Object]) -> None:
    assert network(*policies, ALLOWING).level == "ok"
    web = policy(podSelector={"matchLabels": {"app": "web"}})
    assert network(*policies).level == network(*policies, web).level
