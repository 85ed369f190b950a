"""Volumes: a default class whose claims are node-affine local folders, and a class that all nodes share.

A small provisioner, which runs as a daemon of the cluster (`python -m testbed.storage`). It polls twice a
second instead of watching, so that an outage of the API server needs no handling.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from testbed import processes
from testbed.api import Api, Object
from testbed.kubectl import Kubectl
from testbed.paths import CHECKOUT, VOLUMES

PROVISIONER = "testbed/provisioner"
LOCAL, SHARED = "local", "shared"
PAUSE = 0.5
SELECTED = "volume.kubernetes.io/selected-node"


def start(kubectl: Kubectl) -> None:
    """Make the classes and start the provisioner."""
    kubectl.apply(
        _storage_class(LOCAL, "WaitForFirstConsumer", default=True), _storage_class(SHARED, "Immediate")
    )
    processes.start(
        "provisioner", [sys.executable, "-m", "testbed.storage"], environment={"PYTHONPATH": str(CHECKOUT)}
    )


def serve() -> None:
    """The provisioner's loop."""
    with Api("testbed:provisioner") as api:
        while True:
            try:
                look(api)
            except ConnectionError as error:
                print(error, flush=True)
            time.sleep(PAUSE)


def look(api: Api) -> None:
    """One round: make volumes for pending claims, remove volumes without a claim."""
    for claim in api.items("/api/v1/persistentvolumeclaims"):
        if claim.get("status", {}).get("phase") != "Pending" or claim["spec"].get("volumeName"):
            continue
        chosen = claim["spec"].get("storageClassName")
        node = claim["metadata"].get("annotations", {}).get(SELECTED, "")
        if chosen == SHARED or (chosen == LOCAL and node):
            volume = volume_for(claim, node if chosen == LOCAL else "")
            if isinstance(volume, str):
                _refuse(api, claim, volume)
            else:
                _path(volume).mkdir(parents=True, exist_ok=True, mode=0o777)
                _path(volume).chmod(0o777)
                api.call("POST", "/api/v1/persistentvolumes", volume)
    for volume in api.items("/api/v1/persistentvolumes"):
        ours = volume["metadata"].get("annotations", {}).get("pv.kubernetes.io/provisioned-by") == PROVISIONER
        if ours and volume.get("status", {}).get("phase") == "Released":
            shutil.rmtree(_path(volume), ignore_errors=True)
            api.call("DELETE", f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


def volume_for(claim: Object, node: str) -> Object | str:
    """The volume that serves a claim, or why none can."""
    modes = claim["spec"].get("accessModes", [])
    if node and any(mode in ("ReadWriteMany", "ReadOnlyMany") for mode in modes):
        return f"class {LOCAL} is ReadWriteOnce only, a folder of one node; class {SHARED} is shared"
    name = f"pvc-{claim['metadata']['uid']}"
    folder = str(VOLUMES / (node or SHARED) / name)
    spec: Object = {
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
        "accessModes": modes,
        "storageClassName": claim["spec"]["storageClassName"],
        "persistentVolumeReclaimPolicy": "Delete",
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim["metadata"]["namespace"],
            "name": claim["metadata"]["name"],
            "uid": claim["metadata"]["uid"],
        },
    }
    if node:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec |= {
            "local": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }
    else:
        spec |= {"hostPath": {"path": folder, "type": "DirectoryOrCreate"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": spec,
    }


def _refuse(api: Api, claim: Object, reason: str) -> None:
    """Record an event on the claim with the reason, once, as other provisioners do."""
    about = claim["metadata"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name']}.refused", "namespace": about["namespace"]},
        "involvedObject": {
            "kind": "PersistentVolumeClaim",
            "namespace": about["namespace"],
            "name": about["name"],
            "uid": about["uid"],
        },
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": reason,
        "source": {"component": PROVISIONER},
    }
    api.call("POST", f"/api/v1/namespaces/{about['namespace']}/events", event)


def _path(volume: Object) -> Path:
    spec = volume["spec"]
    return Path((spec.get("local") or spec["hostPath"])["path"])


def _storage_class(name: str, binding: str, *, default: bool = False) -> Object:
    marked = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": marked},
        "provisioner": PROVISIONER,
        "volumeBindingMode": binding,
        "reclaimPolicy": "Delete",
    }


if __name__ == "__main__":
    serve()
