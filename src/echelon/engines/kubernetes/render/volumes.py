"""What the user wants mounted, as volumes of a pod: `--mount`, `--code`, `--code-volume`, `--output`. Pure.

A claim that is wanted in several places is one volume with several mounts: a pod that names a claim twice
never starts with some storage drivers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from echelon.engines.kubernetes import names
from echelon.model.pods.pod import Mount, PodOptions, split_claim
from echelon.model.resources import parse_size
from echelon.values import frozen

Object = dict[str, Any]


@frozen
class Mounted:
    """The volumes of a pod, and where its container sees them."""

    volumes: list[Object]
    mounts: list[Object]


@frozen
class _Use:
    """A folder of a claim in one place of the pod."""

    claim: str
    folder: str
    path: str
    read_only: bool


def user_volumes(options: PodOptions, run: str) -> Mounted:
    """Everything that the user wants mounted in every worker of a run."""
    volumes: list[Object] = []
    mounts: list[Object] = []
    uses = list(_claims(options, run))
    for number, claim in enumerate(dict.fromkeys(use.claim for use in uses)):
        mine = [use for use in uses if use.claim == claim]
        source: Object = {"claimName": claim}
        if all(use.read_only for use in mine):
            source["readOnly"] = True  # a claim that may only be read is attached no other way
        volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": source})
        mounts += [_mount(f"claim-{number}", use.path, use.folder, read_only=use.read_only) for use in mine]
    for number, mount in enumerate(options.mounts):
        if mount.kind != "pvc":
            volumes.append({"name": f"mount-{number}", **_source(mount)})
            mounts.append(_mount(f"mount-{number}", mount.path, read_only=mount.read_only))
    return Mounted(volumes=volumes, mounts=mounts)


def results_claim(options: PodOptions, run: str) -> str | None:
    """The claim that the run's results go to, if they go to one."""
    if options.output is None:
        return None
    return options.output.claim or names.claim_name(run)


def quantity(size: int) -> str:
    """Bytes as Kubernetes writes them: in the largest unit that leaves no rest."""
    for unit, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size % factor == 0 and size:
            return f"{size // factor}{unit}"
    return str(size)


def _claims(options: PodOptions, run: str) -> Iterator[_Use]:
    if options.code is not None:
        yield _Use(
            claim=options.code.claim, folder=options.code.path, path=names.CODE_VOLUME, read_only=False
        )
    if options.code_volume is not None:
        on = options.code_volume
        yield _Use(claim=on.claim, folder=on.path, path=names.CODE_STORE, read_only=True)
    claim = results_claim(options, run)
    if claim is not None and options.output is not None:
        yield _Use(claim=claim, folder=options.output.path, path=names.RESULTS_VOLUME, read_only=False)
    for mount in options.mounts:
        if mount.kind == "pvc":
            on = split_claim("mount", mount.source)
            yield _Use(claim=on.claim, folder=on.path, path=mount.path, read_only=mount.read_only)


def _source(mount: Mount) -> Object:
    if mount.kind == "configmap":
        return {"configMap": {"name": mount.source}}
    if mount.kind == "secret":
        return {"secret": {"secretName": mount.source}}
    if mount.kind == "nfs":
        server, _, export = mount.source.rpartition(":/")
        return {"nfs": {"server": server, "path": f"/{export}", **_read_only(mount)}}
    if mount.kind == "hostPath":
        # Checked, or a path with a slip in it would silently be made, empty, on every node.
        return {"hostPath": {"path": mount.source, "type": "Directory"}}
    limit = {"sizeLimit": quantity(parse_size("mount", mount.source))} if mount.source else {}
    return {"emptyDir": limit}


def _read_only(mount: Mount) -> Object:
    return {"readOnly": True} if mount.read_only else {}


def _mount(name: str, path: str, folder: str = "", *, read_only: bool) -> Object:
    made: Object = {"name": name, "mountPath": path}
    if folder:
        made["subPath"] = folder
    if read_only:
        made["readOnly"] = True
    return made


def new_claim(about: Object, *, mode: str, size: int, storage_class: str | None) -> Object:
    """A claim for `size` bytes, of the cluster's default class if none is named; `about` is its metadata."""
    spec: Object = {"accessModes": [mode], "resources": {"requests": {"storage": quantity(size)}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}
