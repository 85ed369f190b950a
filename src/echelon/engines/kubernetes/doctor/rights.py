"""The rights that a user needs, verb by verb, and what each is for.

One table serves the check-up, which asks the API server about every verb, the Roles in documents and tests,
and the commands that grant a missing right."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from shlex import quote
from typing import Any, Literal

from echelon.engines.kubernetes.client.kinds import KINDS
from echelon.model.engine.finding import Finding
from echelon.values import frozen

_UNKNOWN = "what is free is unknown, and the scheduler alone finds a place"
_RBAC = "rbac.authorization.k8s.io/v1"
_AT_ONCE = 8  # concurrent requests; a cluster may be a continent away


@frozen
class Need:
    """Verbs on one kind of object. `without` is the level of a finding when one is missing.

    `role` is the Role that should grant them: the minimal one, the one for users who also handle volumes, or
    a ClusterRole, since they reach beyond the namespace."""

    kind: str
    verbs: tuple[str, ...]
    use: str
    subresource: str = ""
    lack: str = ""  # what happens without it
    without: Literal["missing", "degraded"] = "degraded"
    role: Literal["minimal", "volumes", "cluster"] = "minimal"

    @property
    def resource(self) -> str:
        """The resource as RBAC names it: `pods/exec`."""
        plural = KINDS[self.kind].plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


NEEDS = (
    Need(
        kind="Job",
        verbs=("get", "list", "watch", "create", "patch", "delete"),
        use="run, stop, rm",
        without="missing",
    ),
    Need(
        kind="ConfigMap",
        verbs=("get", "list", "watch", "create", "patch", "delete"),
        use="run, ps, stop, rm: records and shipped code",
        without="missing",
    ),
    Need(kind="Secret", verbs=("get", "create", "delete"), use="run, rm", without="missing"),
    Need(
        kind="Service",
        verbs=("get", "create", "delete"),
        use="run: how workers find each other",
        without="missing",
    ),
    Need(
        kind="Pod",
        verbs=("get", "list", "watch", "delete"),
        use="status, and replacing workers that are lost",
        without="missing",
    ),
    Need(kind="Pod", subresource="log", verbs=("get",), use="logs, status, wait", without="missing"),
    # A WebSocket is opened with GET, so `get` is needed; from 1.35 on `create` as well.
    Need(
        kind="Pod",
        subresource="exec",
        verbs=("get", "create"),
        use="results without a volume, a stop that lets scripts save, exec",
        lack="stop deletes the pods; use --output with a volume",
    ),
    Need(kind="Pod", subresource="portforward", verbs=("get", "create"), use="forward"),
    Need(kind="Event", verbs=("list",), use="why a run does not start"),
    Need(kind="Namespace", verbs=("get",), use="runs in a namespace of the level `restricted`"),
    Need(kind="Pod", subresource="status", verbs=("patch",), use="replacing workers of a dead node at once"),
    Need(
        kind="Lease",
        verbs=("get", "create", "patch"),
        use="runs with GPUs: one at a time is admitted",
        lack="of two that start at once, one may have to wait again",
    ),
    Need(
        kind="PersistentVolumeClaim",
        verbs=("get", "list", "create", "delete"),
        use="volume, --output new:",
        role="volumes",
    ),
    Need(kind="Pod", verbs=("create",), use="cp to and from volumes, doctor --image", role="volumes"),
    Need(kind="Node", verbs=("list",), use="placement, top", lack=_UNKNOWN, role="cluster"),
    Need(kind="Pod", verbs=("list",), use="placement, top", lack=_UNKNOWN, role="cluster"),
    Need(kind="Job", verbs=("list",), use="placement: what was just promised to runs", role="cluster"),
    Need(kind="StorageClass", verbs=("list",), use="which classes of volumes there are", role="cluster"),
    Need(kind="PersistentVolume", verbs=("list",), use="volume ls: what becomes of the data", role="cluster"),
)  # fmt: skip


def to_rules(needs: Iterable[Need]) -> list[dict[str, Any]]:
    """The rules of a Role that grants these needs, one for each resource."""
    granted: dict[tuple[str, str], list[str]] = {}
    for need in needs:
        verbs = granted.setdefault((KINDS[need.kind].group, need.resource), [])
        verbs += [verb for verb in need.verbs if verb not in verbs]
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        for (group, resource), verbs in granted.items()
    ]


# What runs need in their namespace; the same with volumes; what placement needs of the whole cluster.
MINIMAL_ROLE = to_rules(need for need in NEEDS if need.role == "minimal")
FULL_ROLE = to_rules(need for need in NEEDS if need.role != "cluster")
CLUSTER_ROLE = to_rules(need for need in NEEDS if need.role == "cluster")


def missing_verbs(may: Callable[[Need, str], bool]) -> list[tuple[Need, list[str]]]:
    """Every need of which a verb is denied, with the denied ones. Several threads call `may`."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = [[(verb, pool.submit(may, need, verb)) for verb in need.verbs] for need in NEEDS]
        denied = [[verb for verb, each in verbs if not each.result()] for verbs in answers]
    return [(need, verbs) for need, verbs in zip(NEEDS, denied, strict=True) if verbs]


def to_manifests(
    missing: Iterable[tuple[Need, Sequence[str]]], namespace: str, user: str
) -> list[dict[str, Any]]:
    """A Role, and a ClusterRole where needs reach beyond the namespace, that grant a user what is missing,
    each with its binding. Applying them takes nothing from anybody: see `_name`.
    """
    needs = [replace(need, verbs=tuple(verbs)) for need, verbs in missing]
    found: list[dict[str, Any]] = []
    for kind, chosen in (
        ("Role", [need for need in needs if need.role != "cluster"]),
        ("ClusterRole", [need for need in needs if need.role == "cluster"]),
    ):
        if not chosen:
            continue
        rules = to_rules(chosen)
        name = _name("echelon", user, rules)
        metadata = {"name": name, **({"namespace": namespace} if kind == "Role" else {})}
        found += [
            {"apiVersion": _RBAC, "kind": kind, "metadata": metadata, "rules": rules},
            {
                "apiVersion": _RBAC,
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": _RBAC.partition("/")[0], "kind": kind, "name": name},
                "subjects": [_subject_of(user)],
            },
        ]
    return found


def _name(family: str, user: str, rules: Sequence[Mapping[str, Any]]) -> str:
    """The name of a Role and its binding: one for each user and each set of rules, so that none replaces
    another user's, or what the same user was granted before. Where the API server does not tell the user's
    name, "USER" stands for it, here as in the subject.
    """
    from hashlib import sha256

    slug = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")[-40:].strip("-") if user else "USER"
    digest = sha256(json.dumps([user, rules], sort_keys=True).encode()).hexdigest()[:8]
    return "-".join(filter(None, (family, slug, digest)))


def _subject_of(user: str) -> dict[str, str]:
    prefix = "system:serviceaccount:"
    if user.startswith(prefix):
        namespace, _, name = user.removeprefix(prefix).partition(":")
        return {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    return {"apiGroup": _RBAC.partition("/")[0], "kind": "User", "name": user or "USER"}


def check_rights(may: Callable[[Need, str], bool], namespace: str, user: str) -> Iterator[Finding]:
    """A line for each need, in order. `may` asks about one verb; several threads call it."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = [[(verb, pool.submit(may, need, verb)) for verb in need.verbs] for need in NEEDS]
        for need, verbs in zip(NEEDS, answers, strict=True):
            yield right_finding(need, {verb: each.result() for verb, each in verbs}, namespace, user)


def right_finding(need: Need, allowed: Mapping[str, bool], namespace: str, user: str) -> Finding:
    """The line for one need, from the review of each of its verbs."""
    everywhere = " of all namespaces" if need.role == "cluster" and KINDS[need.kind].namespaced else ""
    granted = [verb for verb in need.verbs if allowed[verb]]
    denied = [verb for verb in need.verbs if not allowed[verb]]
    if not denied:
        found = f"{need.resource}: {', '.join(granted)}{everywhere} ({need.use})"
        return Finding(level="ok", what="rights", found=found)
    rest = f"; allowed: {', '.join(granted)}" if granted else ""
    lack = f" ({need.lack})" if need.lack else ""
    return Finding(
        level=need.without,
        what="rights",
        found=f"{need.resource}: {', '.join(denied)}{everywhere} denied{rest}",
        fix=f"{need.use}{lack}: {grant_command(need, denied, namespace, user)}",
    )


def grant_command(need: Need, verbs: Sequence[str], namespace: str, user: str) -> str:
    """The command with which an administrator grants a need."""
    group = KINDS[need.kind].group
    # kubectl names a subresource of a group as deployments.apps/scale.
    resource = f"{KINDS[need.kind].plural}{f'.{group}' if group else ''}"
    resource += f"/{need.subresource}" if need.subresource else ""
    family = "echelon" if need.role == "minimal" else f"echelon-{need.role}"
    name = _name(
        f"{family}-{need.resource.replace('/', '-')}", user, to_rules([replace(need, verbs=tuple(verbs))])
    )
    who = _subject(user)
    if need.role == "cluster":
        return (
            f"kubectl create clusterrole {name} --verb={','.join(verbs)} --resource={resource} && "
            f"kubectl create clusterrolebinding {name} --clusterrole={name} {who}"
        )
    return (
        f"kubectl -n {quote(namespace)} create role {name} --verb={','.join(verbs)} --resource={resource} && "
        f"kubectl -n {quote(namespace)} create rolebinding {name} --role={name} {who}"
    )


def _subject(user: str) -> str:
    prefix = "system:serviceaccount:"
    if user.startswith(prefix):
        return f"--serviceaccount={quote(user.removeprefix(prefix))}"
    return f"--user={quote(user or 'USER')}"
