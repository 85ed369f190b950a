"""The way to a real API server, and the smallest object to make there."""

from __future__ import annotations

from testbed.kubectl import Kubectl

from echelon.engines.kubernetes.client.api import Object
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.client.login.kubeconfig import load_access


def access_of(kubectl: Kubectl) -> Access:
    return load_access(namespace=kubectl.namespace, environment={"KUBECONFIG": str(kubectl.kubeconfig)})


def config_map(name: str, **data: str) -> Object:
    about = {"name": name, "labels": {"test": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
