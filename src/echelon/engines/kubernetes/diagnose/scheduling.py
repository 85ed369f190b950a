"""Why the scheduler finds no node for a pod, from its message and from the nodes. Pure.

"0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu. preemption: ..."
becomes: which resource, how much is free where, which taint, which label."""

from __future__ import annotations

import re
from collections.abc import Sequence

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.diagnose.nodes import (
    capacity,
    large_enough,
    no_such_label,
    product_trouble,
    untolerated,
)
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.quantities import amount_of
from echelon.engines.kubernetes.state.workers import worker_container
from echelon.model.engine.cluster import Cluster, free_gpus
from echelon.model.resources import format_memory
from echelon.values import frozen

_WHOLE = re.compile(r"^0/(?P<total>\d{1,9}) nodes are available(?:: (?P<why>.*))?$")
# What the scheduler adds after its reasons: whether preemption would help.
_AFTER = re.compile(
    r"\.? ?(?:no new claims to deallocate|still not schedulable|plugin disabled|preemption: ).*$"
)
_REASON = re.compile(r"(?P<count>\d{1,9}) (?P<what>.+?)(?=, \d{1,9} |$)")
_TAINT = re.compile(r"had (?:untolerated )?taint \{(?P<key>[^:}]+): (?P<value>[^}]*)\}")
_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" (not found|is being deleted|bound to non-existent.*)')
_GPUS = names.GPUS
# Reasons that are reworded for users.
_PLAIN = {
    "were unschedulable": "cordoned (closed to new pods)",
    "had unknown conditions": "not known to be well",
    "didn't match pod anti-affinity rules": "kept for other pods (anti-affinity)",
    "exceed max volume count": "full of volumes",
    "didn't have free ports for the requested pod ports": "without the ports that are asked for",
    "did not have enough free storage": "short of storage for its volumes",
    "had no available volume zone": "in another zone than its volume",
}
# Reasons that are the same for every node.
_VOLUMES = {
    "ReadWriteOncePod": "a volume claim that it mounts is for one pod only, and another has it",
    "didn't find available persistent volumes": "no volume for its claim is there to be bound",
    "unbound immediate PersistentVolumeClaims": "a volume claim that it mounts has no volume yet",
}
_SCANT = {"fewer": "few", "less": "little"}
_TIED = ("PersistentVolume's node affinity", "volume node affinity conflict", "no available volume zone")


@frozen
class Unfit:
    """A scheduler's message: the number of nodes, and how many of them are unfit for each reason."""

    total: int
    reasons: tuple[tuple[int, str], ...]


def read_scheduler(message: str) -> Unfit:
    """The scheduler's reasons; a message of another form is one reason for all nodes."""
    found = _WHOLE.match(" ".join(message.split()))
    if found is None:
        return Unfit(total=0, reasons=((0, message),) if message else ())
    total, why = int(found["total"]), _AFTER.sub("", found["why"] or "").rstrip(". ")
    counted = tuple((int(each["count"]), each["what"]) for each in _REASON.finditer(why))
    if not counted and why:
        counted = ((total, why),)  # found before any node was examined
    return Unfit(total=total, reasons=counted)


def explain_unfit(
    unfit: Unfit,
    pod: Pod,
    nodes: Sequence[shapes.Node] | None,
    cluster: Cluster | None,
    tied_claims: Sequence[str] = (),
) -> tuple[str, str]:
    """Why no node takes the pod, as a clause, and a hint; `tied_claims` mount on one node at a time only."""
    if unfit.total == 0:
        reason = unfit.reasons[0][1] if unfit.reasons else ""
        if not reason or "no nodes available" in reason:
            return "the cluster has no node", "ask its administrators, or wait for its autoscaler"
        return reason, "`kubectl describe pod` has more"
    reasons = [
        _explain(count, what, unfit.total, pod, nodes, cluster, tied_claims) for count, what in unfit.reasons
    ]
    reasons.sort(key=lambda each: each[0])
    clauses = list(dict.fromkeys(clause for _, clause, _ in reasons))
    hint = next(
        (hint for _, _, hint in reasons if hint), "`kubectl describe pod` has the scheduler's own message"
    )
    return "; ".join(clauses), hint


def missing_claim(unfit: Unfit) -> str | None:
    """A claim that the scheduler did not find."""
    found = [_CLAIM.search(what) for _, what in unfit.reasons]
    return next((each[1] for each in found if each and each[2] == "not found"), None)


def lacks_room(unfit: Unfit) -> bool:
    """Whether some node would take the pod if more of it were free."""
    return any(what.startswith("Insufficient ") or what == "Too many pods" for _, what in unfit.reasons)


def _explain(
    count: int,
    what: str,
    total: int,
    pod: Pod,
    nodes: Sequence[shapes.Node] | None,
    cluster: Cluster | None,
    tied_claims: Sequence[str],
) -> tuple[int, str, str]:
    """One reason as (rank among reasons, clause, hint)."""
    if what.startswith("Insufficient "):
        return _shortage(count, what.removeprefix("Insufficient "), total, pod, nodes, cluster)
    if what == "Too many pods":
        return 1, _of(count, total, "has", "have") + " as many pods as it may", "wait until some have ended"
    if "taint" in what:
        return _taint(count, what, total, pod, nodes)
    if "node affinity/selector" in what or "didn't satisfy plugin" in what:
        return _labels(count, total, pod, nodes)
    if any(mark in what for mark in _TIED):
        claims = ", ".join(tied_claims)
        named = f"volume claim {claims}" if claims else "a volume of the pod"
        where = "any node" if count >= total else f"{count} of {total} nodes"
        hint = "use a claim with ReadWriteMany for workers on several nodes (`echelon volume ls`)"
        return 2, f"{named} cannot be mounted on {where}", hint
    if found := _CLAIM.search(what):
        return 2, f"volume claim {found[1]} {found[2]}", "`echelon volume ls` shows the claims there are"
    for mark, clause in _VOLUMES.items():
        if mark in what:
            return 2, clause, "`echelon volume ls` shows the claims, and who uses them"
    plain = next((clause for mark, clause in _PLAIN.items() if mark in what), None)
    if plain:
        return 4, f"{_of(count, total, 'is', 'are')} {plain}", ""
    return 5, f"{_of(count, total, 'says', 'say')}: {what.removeprefix('node(s) ')}", ""


def _shortage(
    count: int,
    resource: str,
    total: int,
    pod: Pod,
    nodes: Sequence[shapes.Node] | None,
    cluster: Cluster | None,
) -> tuple[int, str, str]:
    asked = _asked(pod, resource)
    flag, unit, few = {
        "cpu": ("--cpus", "CPUs", "fewer"),
        "memory": ("--memory", "of memory", "less"),
        "ephemeral-storage": ("--mount", "of disk", "less"),
        **dict.fromkeys(_GPUS, ("--gpus", "GPU" if asked == "1" else "GPUs", "fewer")),
    }.get(resource, ("--resource", resource, "fewer"))
    largest = max((capacity(node, resource) for node in nodes), default=0) if nodes else None
    if largest == 0:
        return 0, f"no node has {'a GPU' if resource in _GPUS else 'any ' + resource}", f"leave out {flag}"
    if largest is not None and asked and largest < amount_of(asked):
        return 0, f"no node has {asked} {unit} at all", f"ask for less for each worker with {flag}"
    have = _of(count, total, "has", "have")
    if not asked:
        clause = f"{have} too {_SCANT[few]} {unit} free"
    elif few == "fewer" and asked == "1":
        clause = f"{have} no {unit.removesuffix('s')} free"
    else:
        clause = f"{have} {few} than {asked} {unit} free" + _most_free(
            resource, amount_of(asked), cluster, everywhere=count >= total
        )
    hint = f"wait until more is free (`echelon top --on k8s` shows who has it), or ask for less with {flag}"
    return 0, clause, hint


def _taint(
    count: int, what: str, total: int, pod: Pod, nodes: Sequence[shapes.Node] | None
) -> tuple[int, str, str]:
    named = _TAINT.search(what)  # Kubernetes before 1.36 names it
    taints = untolerated(pod, nodes or ())
    if named:
        told = shapes.Taint(key=named["key"], value=named["value"].strip())
        taints = [each for each in taints if each.key == told.key] or [told]
    ours = _of(count, total, "is", "are")
    if not taints:
        return 3, f"{ours} tainted against it", "`kubectl describe nodes` shows the taints; see --toleration"
    unwell = [each for each in taints if each.key.startswith("node.kubernetes.io/")]
    if len(unwell) == len(taints):
        states = ", ".join(sorted({each.key.partition("/")[2] for each in unwell}))
        return 4, f"{ours} {states.replace('unschedulable', 'cordoned')}", ""
    texts = sorted({_taint_text(each) for each in taints if each not in unwell})
    # A taint on a node that is large enough is a better reason than the size of the others.
    inviting = [_taint_text(each) for each in untolerated(pod, large_enough(pod, nodes or ()))]
    best = next((each for each in texts if each in inviting), None)
    hint = f"--toleration {best or texts[0]} lets it run there"
    return (-1 if best else 3), f"{ours} tainted {', '.join(texts)}", hint


def _labels(count: int, total: int, pod: Pod, nodes: Sequence[shapes.Node] | None) -> tuple[int, str, str]:
    hint = "`kubectl get nodes --show-labels` shows what nodes have; see --node-selector"
    if nodes is not None:
        product = product_trouble(pod, nodes)
        if product:
            return 1, *product
        missing = no_such_label(pod, nodes)
        if missing:
            return 1, f"no node is labelled {missing}", hint
    return 2, f"{_of(count, total, 'does', 'do')} not have the labels that are asked for", hint


def _of(count: int, total: int, one: str, many: str) -> str:
    """`2 of 3 nodes have`, `the one node has`, `all 3 nodes have`."""
    if total == 1:
        return f"the only node {one}"
    if count >= total:
        return f"both nodes {many}" if total == 2 else f"all {total} nodes {many}"
    return f"{count} of {total} nodes {one if count == 1 else many}"


def _taint_text(taint: shapes.Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    effect = f":{taint.effect}" if taint.effect else ""
    return f"{taint.key}{value}{effect}"


def _asked(pod: Pod, resource: str) -> str:
    resources = worker_container(pod.spec).resources
    return str(((resources.limits or {}) | (resources.requests or {})).get(resource, ""))


def _most_free(resource: str, asked: int, cluster: Cluster | None, *, everywhere: bool) -> str:
    """Where most of a resource is free, and how much; empty if that is unknown or beside the point, since
    that node lacks something else. More than requested may have become free since the scheduler looked.
    """
    found = []
    for node in cluster.nodes if cluster is not None else ():
        if resource in _GPUS:
            free = free_gpus(node)
            found.append((float(free), f"{free} of {len(node.gpus)}", node.name))
        elif resource == "cpu":
            found.append((node.free_cpus, f"{node.free_cpus:.3g}", node.name))
        elif resource == "memory":
            found.append((node.free_memory, format_memory(node.free_memory), node.name))
    most, amount, name = max(found, default=(0.0, "", ""), key=lambda each: each[0])
    if most <= 0:
        return ""
    if most * 1000 < asked:
        return f" (at most {amount}, on {name})"
    return f" as the scheduler last saw it (by now {amount}, on {name})" if everywhere else ""
