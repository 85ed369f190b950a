"""A claim for storage as Kubernetes wants it written. Pure.

Called by `manifests` for the results of a run, and by `volumes` for `echelon volume create`."""

from __future__ import annotations

from typing import Any

from echelon.engines.kubernetes.mounts import quantity

Object = dict[str, Any]


def new_claim(about: Object, *, mode: str, size: int, storage_class: str | None) -> Object:
    """A claim for `size` bytes, of the cluster's default class if none is named; `about` is its metadata."""
    spec: Object = {"accessModes": [mode], "resources": {"requests": {"storage": quantity(size)}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}
