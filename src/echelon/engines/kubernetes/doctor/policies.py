"""Whether the NetworkPolicies of a namespace let the workers of a run reach each other. Pure.

Workers connect to worker 0 by name on a fixed port, and to each other on ports that the kernel chooses. A
policy that forbids any of it makes a gang wait for ever; the check-up warns before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, Literal

from echelon.engines.kubernetes import names
from echelon.model.engine.finding import Finding

Policy = Mapping[str, Any]
Direction = Literal["Ingress", "Egress"]
_RULES = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}
_CHOSEN_PORTS = (32768, 60999)  # Linux' ephemeral ports by default
_ANYWHERE = ("0.0.0.0/0", "::/0")
_DNS = 53
# Lets the selected pods reach each other and DNS, and forbids nothing that other policies allow.
ALLOWING: dict[str, Any] = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "echelon"},
    "spec": {
        "podSelector": {"matchLabels": {names.MANAGED_BY: "echelon"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {names.MANAGED_BY: "echelon"}}}]}],
        "egress": [
            {"to": [{"podSelector": {"matchLabels": {names.MANAGED_BY: "echelon"}}}]},
            {"ports": [{"port": _DNS, "protocol": "UDP"}, {"port": _DNS, "protocol": "TCP"}]},
        ],
        "policyTypes": ["Ingress", "Egress"],
    },
}


def check_policies(
    policies: Sequence[Policy], namespace: str, namespace_labels: Mapping[str, str]
) -> Finding:
    """The line about a namespace's policies."""
    worker = {**names.labels_of("?", "?", names.WORKER), names.ROLE: "worker", names.NO_SIDECAR: "false"}
    selecting = [each for each in policies if _selects(each["spec"].get("podSelector") or {}, worker)]
    what = "network policies"
    troubles = []
    for direction in ("Ingress", "Egress"):
        isolating = [each for each in selecting if direction in _types(each)]
        if isolating and not _reach_each_other(isolating, direction, worker, namespace_labels):
            way = "be reached by" if direction == "Ingress" else "reach"
            troubles.append(f"{_names(isolating)}: workers may not {way} each other on all ports")
        if direction == "Egress" and isolating and not _names_resolve(isolating):
            troubles.append(f"{_names(isolating)}: workers may not ask for names (port 53)")
    if not troubles:
        about = (
            f"{len(selecting)} of {len(policies)} concern runs, and let workers talk" if policies else "none"
        )
        return Finding(level="ok", what=what, found=about)
    allow = json.dumps(ALLOWING, separators=(",", ":"))
    return Finding(
        level="degraded",
        what=what,
        found="; ".join(troubles),
        fix=f"runs with several workers: echo '{allow}' | kubectl -n {quote(namespace)} apply -f -",
    )


def _types(policy: Policy) -> Sequence[str]:
    spec = policy["spec"]
    if spec.get("policyTypes"):
        return list(spec["policyTypes"])
    return ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _reach_each_other(
    policies: Sequence[Policy],
    direction: Direction,
    worker: Mapping[str, str],
    namespace_labels: Mapping[str, str],
) -> bool:
    rules, peers = _RULES[direction]
    open_ports: list[tuple[int, int]] = []
    for policy in policies:
        for rule in policy["spec"].get(rules) or ():
            allowed = rule.get(peers)
            if not allowed or any(_includes(peer, worker, namespace_labels) for peer in allowed):
                open_ports += _ports(rule, "TCP")
    return _covers(open_ports, (names.PORT, names.PORT)) and _covers(open_ports, _CHOSEN_PORTS)


def _names_resolve(policies: Sequence[Policy]) -> bool:
    """Whether a rule lets workers reach a name server, which is in another namespace or on the node."""
    for policy in policies:
        for rule in policy["spec"].get("egress") or ():
            peers = rule.get("to")
            outside = not peers or any("namespaceSelector" in peer or "ipBlock" in peer for peer in peers)
            if outside and _covers(list(_ports(rule, "UDP")), (_DNS, _DNS)):
                return True
    return False


def _includes(
    peer: Mapping[str, Any], worker: Mapping[str, str], namespace_labels: Mapping[str, str]
) -> bool:
    if "ipBlock" in peer:
        # The addresses of pods are unknown; only "everywhere" is sure to include them.
        return peer["ipBlock"].get("cidr") in _ANYWHERE and not peer["ipBlock"].get("except")
    if "namespaceSelector" in peer and not _selects(peer["namespaceSelector"] or {}, namespace_labels):
        return False
    return _selects(peer.get("podSelector") or {}, worker)


def _ports(rule: Mapping[str, Any], protocol: str) -> Iterator[tuple[int, int]]:
    if not rule.get("ports"):
        yield 0, 65535
    for port in rule.get("ports") or ():
        if port.get("protocol", "TCP") == protocol:
            first = port.get("port")
            if first is None:
                yield 0, 65535
            elif isinstance(first, int):  # a named port is one that containers declare; ours declare none
                yield first, int(port.get("endPort") or first)


def _covers(ranges: Sequence[tuple[int, int]], wanted: tuple[int, int]) -> bool:
    reached = wanted[0]
    for first, last in sorted(ranges):
        if first <= reached <= last:
            reached = last + 1
    return reached > wanted[1]


def _selects(selector: Mapping[str, Any], found: Mapping[str, str]) -> bool:
    """Whether a label selector matches these labels; an empty one matches everything."""
    if any(found.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for term in selector.get("matchExpressions") or ():
        value, values = found.get(term["key"]), term.get("values") or ()
        fits = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not fits.get(term.get("operator", ""), False):
            return False
    return True


def _names(policies: Sequence[Policy]) -> str:
    return ", ".join(sorted(each["metadata"]["name"] for each in policies))
