"""The manager as Kubernetes objects, for `echelon install` and its dry run. Pure."""

from __future__ import annotations

from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.install.rights import IN_CLUSTER, IN_OWN, OF_EVERYBODY, Right, to_rules

Object = dict[str, Any]

PORT = 8080  # of the probes
_NAME = names.MANAGER_LEASE
_READERS = f"{_NAME}-visible"  # that everybody may see whether a manager runs
_RBAC = "rbac.authorization.k8s.io"
_LABELS = {
    "app.kubernetes.io/name": "echelon",
    "app.kubernetes.io/instance": _NAME,
    names.COMPONENT: "manager",
    names.MANAGED_BY: "echelon",
}
_USER = 65532  # any but root's; the image needs no user of that number
_COMMAND = ("python3", "-m", "echelon.cli.main", "manager")
RULES = """\
# How long a run may be overtaken by later ones that fit, from its submission on.
overtake: 10m
# GPUs that the runs of one user, and of one namespace, hold at a time; leave a line out for no limit.
# user: 16
# namespace: 64
# users: {ann: 32}
# namespaces: {team-a: 128}
"""


def render(image: str, *, replicas: int = 2) -> list[Object]:
    """Every object, in the order in which they are made."""
    return [
        _object("v1", "Namespace", names.MANAGER_NAMESPACE, namespace=False, labels=_restricted()),
        _object("v1", "ServiceAccount", _NAME),
        _object(f"{_RBAC}/v1", "ClusterRole", _NAME, namespace=False, rules=to_rules(IN_CLUSTER)),
        _binding("ClusterRole", _NAME, _account(), namespace=False),
        *_role(_NAME, IN_OWN, _account()),
        *_role(_READERS, OF_EVERYBODY, _everybody()),
        _object("coordination.k8s.io/v1", "Lease", _NAME),
        _object("v1", "ConfigMap", names.QUEUE_RULES, data={names.RULES_KEY: RULES}),
        _object("apps/v1", "Deployment", _NAME, spec=_deployment(image, replicas)),
    ]


def _role(name: str, rights: tuple[Right, ...], subject: Object) -> list[Object]:
    role = _object(f"{_RBAC}/v1", "Role", name, rules=to_rules(rights))
    return [role, _binding("Role", name, subject)]


def _binding(kind: str, name: str, subject: Object, *, namespace: bool = True) -> Object:
    return _object(
        f"{_RBAC}/v1",
        f"{kind}Binding",
        name,
        namespace=namespace,
        roleRef={"apiGroup": _RBAC, "kind": kind, "name": name},
        subjects=[subject],
    )


def _account() -> Object:
    return {"kind": "ServiceAccount", "name": _NAME, "namespace": names.MANAGER_NAMESPACE}


def _everybody() -> Object:
    return {"apiGroup": _RBAC, "kind": "Group", "name": "system:authenticated"}


def _object(
    version: str,
    kind: str,
    name: str,
    *,
    namespace: bool = True,
    labels: dict[str, str] | None = None,
    **more: Any,
) -> Object:
    about: Object = {"name": name, "labels": {**_LABELS, **(labels or {})}}
    if namespace:
        about["namespace"] = names.MANAGER_NAMESPACE
    return {"apiVersion": version, "kind": kind, "metadata": about, **more}


def _restricted() -> dict[str, str]:
    return {names.SECURITY_LEVEL: "restricted"}


def _deployment(image: str, replicas: int) -> Object:
    chosen = {names.COMPONENT: "manager", "app.kubernetes.io/instance": _NAME}
    container = {
        "name": "manager",
        "image": image,
        # A container that starts again in the same pod takes its own Lease up at once.
        "command": [*_COMMAND, "--port", str(PORT), "--identity", "$(POD_NAME)"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - a volume of the pod
        ],
        "ports": [{"name": "probes", "containerPort": PORT}],
        "livenessProbe": _probe("/livez", period=20),
        "readinessProbe": _probe("/readyz", period=10),
        "resources": {
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a volume of the pod
    }
    apart = {
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": chosen},
        },
        "weight": 100,
    }
    return {
        "replicas": replicas,
        "selector": {"matchLabels": chosen},
        "template": {
            "metadata": {"labels": dict(_LABELS)},
            "spec": {
                "serviceAccountName": _NAME,
                "enableServiceLinks": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": _USER,
                    "runAsGroup": _USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
                "containers": [container],
                "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
            },
        },
    }


def _probe(path: str, *, period: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "probes"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
        "initialDelaySeconds": 5,
    }
