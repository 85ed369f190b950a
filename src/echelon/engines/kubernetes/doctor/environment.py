"""What a namespace and its cluster offer to runs, one line per subject, from the objects alone. Pure.

Where the user may not look (None instead of objects) the line says so, and the consequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.prerequisites.quotas import limits_filled_in
from echelon.engines.kubernetes.quantities import amount_of
from echelon.engines.kubernetes.storage import DEFAULT_CLASS, is_default, shared_classes
from echelon.model.display import some_of
from echelon.model.engine.cluster import Cluster, Devices, Node, free_gpus, name_devices
from echelon.model.engine.finding import Finding
from echelon.model.resources import format_memory

Object = Mapping[str, Any]
OLDEST = (1, 29)  # of Kubernetes: a Job restarts single workers, and counts restarts per worker
TESTED = (1, 31)  # the oldest on which all cluster tests were run
_NAMED = 4
_LEVELS = {
    "": "privileged (no level is set)",
    "privileged": "privileged",
    "baseline": "baseline: --mount hostPath is refused",
    "restricted": "restricted: workers run as user 1000, --mount hostPath is refused",
}


def check_version(version: Object) -> Finding:
    """The API server's version."""
    try:
        number = int(str(version["major"])), int(str(version["minor"]).rstrip("+"))
    except (KeyError, ValueError):
        number = TESTED
    found = str(version.get("gitVersion") or "of an unknown version")
    if number < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Finding(
            level="missing",
            what="Kubernetes",
            found=found,
            fix=f"restarts of single workers: upgrade the cluster to {oldest} or later",
        )
    if number < TESTED:
        tested = ".".join(map(str, TESTED))
        fix = f"it may work, but echelon is tested with {tested} and later"
        return Finding(level="degraded", what="Kubernetes", found=found, fix=fix)
    return Finding(level="ok", what="Kubernetes", found=found)


def check_nodes(cluster: Cluster | None) -> Finding:
    """Which nodes take workers."""
    if cluster is None:
        return Finding(
            level="degraded",
            what="nodes",
            found="unknown: you may not list them",
            fix="see the right to nodes",
        )
    shut = [f"{each.node.name} ({each.why})" for each in cluster.left_out]
    out = f"; {len(shut)} left out: {some_of(shut, _NAMED)}" if shut else ""
    cpus, memory = sum(node.cpus for node in cluster.nodes), sum(node.memory for node in cluster.nodes)
    if not cluster.nodes:
        fix = "anything: `kubectl get nodes` shows what they lack; `kubectl uncordon NODE` opens a closed one"
        return Finding(level="missing", what="nodes", found=f"none takes workers{out}", fix=fix)
    found = f"{len(cluster.nodes)}, with {cpus:g} CPUs and {format_memory(memory)}{out}"
    return Finding(level="ok", what="nodes", found=found)


def check_gpus(
    cluster: Cluster | None,
    nodes: Sequence[shapes.Node],
    devices: Sequence[Devices] = (),
    *,
    free_known: bool,
) -> Iterator[Finding]:
    """GPUs, by model and node; and devices of drivers, which may be GPUs and are asked for otherwise."""
    if cluster is None:
        yield Finding(
            level="degraded",
            what="GPUs",
            found="unknown: you may not list nodes",
            fix="--gpus works; whether and where there are free ones is not known: see the right to nodes",
        )
        return
    models: dict[str, list[Node]] = {}
    for node in cluster.nodes:
        if node.gpus:
            models.setdefault(node.gpus[0].model, []).append(node)
    for model, having in sorted(models.items()):
        yield _gpus_of(model, having, free_known=free_known)
    silent = [node.metadata.name for node in nodes if _should_have_gpus(node)]
    if silent:
        yield Finding(
            level="degraded",
            what="GPUs",
            found=f"none on {some_of(silent, _NAMED)}, though the label {names.GPU_PRESENT} is there",
            fix="--gpus there: the device plugin does not run: kubectl get pods -A | grep device-plugin",
        )
    elif not models:
        yield Finding(
            level="degraded",
            what="GPUs",
            found="no node that takes workers offers any" + (" as a resource" if devices else ""),
            fix="--gpus: install NVIDIA's GPU operator or device plugin; ranks run on the CPU",
        )
    if devices:
        found = f"{name_devices(devices)}, by resource claims (DRA), which --gpus does not ask for"
        yield Finding(level="ok", what="devices", found=found)


def _gpus_of(model: str, having: Sequence[Node], *, free_known: bool) -> Finding:
    total = sum(len(node.gpus) for node in having)
    free = {node.name: free_gpus(node) for node in having}
    where = [
        f"{node.name} ({f'{free[node.name]} of ' if free_known else ''}{len(node.gpus)})" for node in having
    ]
    spare = f"{sum(free.values())} free" if free_known else "free: unknown"
    found = f"{total} {model or 'of an unknown model'}, {spare}: {some_of(where, _NAMED)}"
    if model:
        return Finding(level="ok", what="GPUs", found=found)
    command = f"kubectl label node {having[0].name} {names.GPU_PRODUCT}=MODEL"
    return Finding(
        level="degraded",
        what="GPUs",
        found=found,
        fix=f"--gpu-type: install gpu-feature-discovery, or {command}",
    )


def _should_have_gpus(node: shapes.Node) -> bool:
    offered = node.status.allocatable.get(names.GPU, 0)
    return node.metadata.labels.get(names.GPU_PRESENT) == "true" and amount_of(offered) == 0


def check_storage(
    classes: Sequence[shapes.StorageClass] | None, claims: Sequence[shapes.Claim]
) -> Iterator[Finding]:
    """Storage classes: is there a default, and does one serve several nodes at once?"""
    what = "storage classes"
    if classes is None:
        yield Finding(
            level="degraded",
            what=what,
            found="unknown: you may not list them",
            fix="--output new: and volume create use the cluster's default: see the right to storageclasses",
        )
        return
    if not classes:
        yield Finding(
            level="degraded",
            what=what,
            found="none",
            fix="--output new: and volume create: install a provisioner; until then use claims made by hand",
        )
        return
    default = [each.metadata.name for each in classes if is_default(each)]
    named = some_of([f"{each.metadata.name} ({each.provisioner or '?'})" for each in classes], _NAMED)
    if default:
        yield Finding(level="ok", what=what, found=f"{named}; default: {', '.join(default)}")
    else:
        note = f'{{"metadata":{{"annotations":{{"{DEFAULT_CLASS}":"true"}}}}}}'
        command = f"kubectl patch storageclass {classes[0].metadata.name} -p '{note}'"
        yield Finding(
            level="degraded", what=what, found=f"{named}; no default", fix=f"--output new: {command}"
        )
    shared = shared_classes(classes, claims)
    if shared:
        yield Finding(
            level="ok", what="shared volumes", found=f"ReadWriteMany with class {', '.join(shared)}"
        )
    else:
        yield Finding(
            level="degraded",
            what="shared volumes",
            found="no class is known to serve several nodes at once",
            fix="--output new: with several workers: install an NFS or CephFS provisioner; "
            "without it each worker's results are fetched from its pod",
        )


def check_names(slices: Sequence[Object] | None) -> Finding:
    """Whether a name server is ready to answer pods."""
    if slices is None:
        return Finding(
            level="ok",
            what="DNS",
            found="unknown: you may not look into kube-system; --image REF tries it in a pod",
        )
    ready = sum(
        (point.get("conditions") or {}).get("ready") is not False
        for each in slices
        for point in each.get("endpoints") or ()
    )
    if ready:
        return Finding(level="ok", what="DNS", found=f"{ready} name server{'s' * (ready != 1)} ready")
    found = "no name server is ready" if slices else "no service of name servers was found in kube-system"
    return Finding(
        level="degraded",
        what="DNS",
        found=found,
        fix="runs with several workers, unless names are served in another way (--image REF tries it): "
        "kubectl -n kube-system get pods -l k8s-app=kube-dns",
    )


def check_security(namespace: Object | None, name: str) -> Finding:
    """The Pod Security level that the namespace enforces."""
    what = "Pod Security"
    if namespace is None:
        return Finding(
            level="degraded",
            what=what,
            found=f"unknown: you may not read the namespace {name}",
            fix="where it is `restricted`, pods are refused: see the right to namespaces",
        )
    level = (namespace["metadata"].get("labels") or {}).get(names.SECURITY_LEVEL, "")
    return Finding(level="ok", what=what, found=_LEVELS.get(level, level))


def check_quotas(quotas: Sequence[Object] | None, ranges: Sequence[Object] | None) -> Iterator[Finding]:
    """What the namespace may still use."""
    if quotas is None:
        yield Finding(
            level="ok", what="quota", found="unknown: you may not list quotas; a refusal would name them"
        )
        return
    if not quotas:
        yield Finding(level="ok", what="quota", found="none")
    for quota in quotas:
        hard = (quota.get("status") or {}).get("hard") or quota["spec"].get("hard") or {}
        used = (quota.get("status") or {}).get("used") or {}
        left = {name: amount_of(most) - amount_of(used.get(name, 0)) for name, most in hard.items()}
        spent = sorted(name for name, amount in left.items() if amount <= 0 and amount_of(hard[name]) > 0)
        amounts = [f"{name} {_amount(name, max(0, left[name]))} of {hard[name]}" for name in sorted(hard)]
        yield Finding(
            level="degraded" if spent else "ok",
            what="quota",
            found=f"{_name(quota)}: left {', '.join(amounts)}",
            fix=f"more of {', '.join(spent)} is refused: end something, or have the quota raised"
            if spent
            else "",
        )
    demanded = [] if ranges is None else _demanded(quotas, ranges)
    if demanded:
        yield Finding(
            level="degraded",
            what="quota",
            found=f"every pod must have limits: {' and '.join(demanded)}",
            fix="say --cpus REQUEST:LIMIT and --memory REQUEST:LIMIT, or have a LimitRange set defaults",
        )


def _demanded(quotas: Sequence[Object], ranges: Sequence[Object]) -> list[str]:
    """What every pod must limit, since a quota counts it and no LimitRange fills it in. Requests are always
    made.
    """
    counted = {name for each in quotas for name in each["spec"].get("hard") or {}}
    filled = limits_filled_in(ranges)
    return [name for name in ("cpu", "memory") if f"limits.{name}" in counted and name not in filled]


def _amount(name: str, thousandths: int) -> str:
    if "memory" in name or "storage" in name:
        return format_memory(thousandths / 1000)
    return f"{thousandths / 1000:g}"


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
