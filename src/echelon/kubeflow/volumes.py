"""The volumes of a pod: as `--mount` where that can say it, else as they are, in the pod template. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from echelon.errors import InvalidJob
from echelon.kubeflow.nodes import Node, child, fields, is_true, items, optional_text, plain, refuse, text
from echelon.model.pods.patch import VOLUMES
from echelon.model.pods.pod import parse_mount
from echelon.values import frozen

_OWN_NAMES = (*VOLUMES, "shm")  # of volumes of echelon's own pods
_OWN_PREFIXES = ("claim-", "mount-")
_SHM = "/dev/shm"  # noqa: S108 - a place in the pod
_MOUNT_FIELDS = (
    "name",
    "mountPath",
    "subPath",
    "subPathExpr",
    "readOnly",
    "recursiveReadOnly",
    "mountPropagation",
)


@frozen
class Volume:
    """A volume at a path of the container.

    `kind` and `name` are the object's, for a person and to find a ConfigMap by; `mount` is what `--mount`
    says, "" where it cannot; `raw` and `source` are the mount and the volume as the manifest has them."""

    path: str
    kind: str
    name: str
    mount: str
    raw: Mapping[str, Any]
    source: Mapping[str, Any]
    memory: str | None = None  # of shared memory: its size, "" for any


def read_volumes(container: Node, spec: Node, *, shared: bool) -> list[Volume]:
    """The volumes that a container mounts; with `shared`, other containers of the pod mount them too."""
    volumes = {text(child(each, "name")): each for each in items(fields(spec).get("volumes"))}
    mounts = items(fields(container).get("volumeMounts"))
    found = [_volume(each, volumes) for each in mounts]
    several = [each for each in found if sum(one.source == each.source for one in found) > 1]
    return [
        replace(each, mount="") if each.memory is None and (shared or _is_scratch_of(each, several)) else each
        for each in found
    ]


def _is_scratch_of(volume: Volume, several: Sequence[Volume]) -> bool:
    """Whether it is an empty folder that is mounted at several places: `--mount` would make several."""
    return volume.kind == "emptyDir" and volume in several


def _volume(mount: Node, volumes: Mapping[str, Node]) -> Volume:
    parts = fields(mount, _MOUNT_FIELDS)
    name, path = text(child(mount, "name")), text(child(mount, "mountPath"))
    if name not in volumes:
        there = ", ".join(volumes) or "none"
        raise refuse(child(mount, "name"), "is not a volume of this pod", f"spec.volumes has {there}")
    volume = volumes[name]
    kind = next((key for key in fields(volume) if key != "name"), "emptyDir")
    source = fields(volume).get(kind)
    details = fields(source) if source is not None else {}
    raw = plain(mount.value)
    memory = None
    if kind == "emptyDir" and path == _SHM and optional_text(details.get("medium")) == "Memory":
        memory = optional_text(details.get("sizeLimit")) or ""
    about = {key: text(each) for key, each in details.items() if not isinstance(each.value, dict | list)}
    plainly = set(parts) <= {"name", "mountPath", "readOnly", "subPath"}
    written = _written(kind, about, set(details), parts) if plainly else ""
    if written:
        only = is_true(parts.get("readOnly")) or is_true(details.get("readOnly"))
        written = _checked(f"{written}:{path}{':ro' if only else ''}", path)
    shown = about.get("claimName") or about.get("name") or about.get("secretName") or about.get("path") or ""
    return Volume(
        path=path,
        kind=kind,
        name=shown,
        mount=written,
        raw=raw,
        source=plain(volume.value),
        memory=memory,
    )


def _written(kind: str, about: Mapping[str, str], details: set[str], mount: Mapping[str, Node]) -> str:
    """KIND:SOURCE of `--mount`; "" for what it cannot say."""
    inner = text(mount["subPath"]).strip("/") if "subPath" in mount else ""
    if kind == "persistentVolumeClaim" and details <= {"claimName", "readOnly"}:
        return f"pvc:{about.get('claimName', '')}{f'/{inner}' if inner else ''}"
    if inner:
        return ""
    if kind == "configMap" and details == {"name"}:
        return f"configmap:{about['name']}"
    if kind == "secret" and details == {"secretName"}:
        return f"secret:{about['secretName']}"
    if kind == "nfs" and details <= {"server", "path", "readOnly"} and {"server", "path"} <= details:
        return f"nfs:{about['server']}:{about['path']}"
    if kind == "hostPath" and (details == {"path"} or about.get("type") in ("", "Directory")):
        return f"hostPath:{about['path']}"
    if kind == "emptyDir" and details <= {"sizeLimit"}:
        return f"emptydir:{about.get('sizeLimit', '')}"
    return ""


def _checked(written: str, path: str) -> str:
    """What `--mount` refuses, such as a path that the agent needs, stays in the template for Kubernetes."""
    try:
        return written if parse_mount(written).path == path.rstrip("/") else ""
    except InvalidJob:
        return ""


def template_volumes(
    volumes: Sequence[Volume], rest: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts for a pod template: those that `--mount` does not say, and `rest`, the volumes of
    other containers. Names that echelon's own volumes have are changed.
    """
    wanted = {each.raw["name"]: each.source for each in volumes} | {each["name"]: each for each in rest}
    sources = [{**source, "name": free_name(name)} for name, source in wanted.items()]
    mounts = [{**each.raw, "name": free_name(str(each.raw["name"]))} for each in volumes]
    return sources, mounts


def free_name(name: str) -> str:
    """The volume's name, or one like it where echelon's own pods use it."""
    taken = name in _OWN_NAMES or name.startswith(_OWN_PREFIXES)
    return f"their-{name}" if taken else name
