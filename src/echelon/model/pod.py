"""What a user may request of the pods of a run's workers, and the parsers of these settings.

`PodOptions` is a field of the Job. Engines without pods ignore it, so that one job file, or one
`[tool.echelon]`, serves this machine and a cluster. Each parser raises an InvalidJob that names the setting,
the value and the fix.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from echelon.errors import InvalidJob
from echelon.model.resources import parse_duration, parse_size

LINGER = 300.0
TTL = 7 * 86400.0
NEW_SIZE = 10 * 2**30
OURS = "/echelon"  # the folder in a pod that belongs to the agent

Kind = Literal["pvc", "configmap", "secret", "nfs", "hostPath", "emptydir"]
KINDS: tuple[Kind, ...] = ("pvc", "configmap", "secret", "nfs", "hostPath", "emptydir")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_LONGEST_TTL = 2**31 - 1
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:\d+/)|\[[0-9a-fA-F:]+\])(?::\d+)?"
_STEP = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_STEP}(?:/{_STEP})*(?::[A-Za-z0-9_][\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?",
    re.ASCII,
)
_USER_IN_ADDRESS = re.compile(r"(\w+)://([^/@\s]+)@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A volume or folder that every worker mounts at `path`.

    `source` is NAME[/path] of a claim, NAME of a ConfigMap or Secret, SERVER:/export, a folder of the node,
    or the size of an empty folder ("" for any).
    """

    kind: Kind
    source: str
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePath:
    """A folder on a claim; "" is its root."""

    claim: str
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where results go: a folder on a claim that exists, or, without `claim`, one made for the run."""

    claim: str | None = None
    path: str = ""
    size: int = NEW_SIZE
    storage_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A taint that the pods tolerate; None as its value or effect stands for any."""

    key: str
    value: str | None = None
    effect: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """The settings of the pods. Times are in seconds, sizes in bytes; None leaves it to the engine."""

    image: str | None = None
    pull: Literal["missing", "always"] = "missing"
    pull_secrets: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    service_account: str | None = None
    priority_class: str | None = None
    shm: int | None = None
    code: VolumePath | None = None
    pip: tuple[str, ...] = ()
    requirements: str | None = None
    output: Output | None = None
    linger: float = LINGER
    ttl: float = TTL
    collect: tuple[str, ...] = ()
    template: Mapping[str, Any] = field(default_factory=dict)


def parse_image(text: str) -> str:
    """Check an image's reference by the rules of container runtimes."""
    if not _IMAGE.fullmatch(text):
        hint = "write it as REGISTRY/NAME:TAG, the name in lower case; for example docker.io/my/torch:2.9"
        raise InvalidJob("image", text, "is not an image's name", hint=hint)
    return text


def parse_object_name(field_name: str, text: str) -> str:
    """Check the name of a Kubernetes object."""
    if len(text) > 253 or not _OBJECT.fullmatch(text):
        hint = f"lower case letters, digits, - and .; as in {field_name}: {_nearest_name(text)}"
        raise InvalidJob(field_name, text, "cannot be the name of a Kubernetes object", hint=hint)
    return text


def parse_mount(text: str) -> Mount:
    """Read KIND:SOURCE:/path[:ro]; the source of an empty folder is its size, or left out."""
    hint = "write KIND:SOURCE:/path[:ro], for example pvc:data:/data or hostPath:/mnt/data:/data:ro"
    kind_said, _, rest = text.partition(":")
    kind = next((each for each in KINDS if each.lower() == kind_said.lower()), None)
    if kind is None:
        raise InvalidJob("mount", text, f"is not one of {', '.join(KINDS)}", hint=hint)
    pieces = rest.split(":")
    read_only = pieces[-1] == "ro"
    if pieces[-1] in ("ro", "rw"):
        pieces.pop()
    if not pieces or not pieces[-1].startswith("/"):
        raise InvalidJob("mount", text, "does not say where, as an absolute path", hint=hint)
    source = ":".join(pieces[:-1])
    path = "/" + posixpath.normpath(pieces[-1]).lstrip("/")  # POSIX keeps two leading slashes
    _check_place(text, path, pieces[-1])
    _check_source(text, kind, source, hint)
    return Mount(kind=kind, source=source, path=path, read_only=read_only)


def check_mounts(mounts: tuple[Mount, ...]) -> None:
    """Refuse two mounts with the same path."""
    seen: set[str] = set()
    for mount in mounts:
        if mount.path in seen:
            raise InvalidJob("mount", mount.path, "is given twice", hint="give each a path of its own")
        seen.add(mount.path)


def parse_volume_path(field_name: str, text: str) -> VolumePath:
    """Read pvc:NAME[/path]."""
    kind, _, source = text.partition(":")
    if kind != "pvc" or not source:
        hint = f"write pvc:NAME/path, as in {field_name}: pvc:work/project"
        raise InvalidJob(field_name, text, "is not a folder on a volume", hint=hint)
    return split_claim(field_name, source)


def split_claim(field_name: str, source: str) -> VolumePath:
    """Read NAME[/path], the part after pvc: of every setting."""
    claim, _, path = source.partition("/")
    parse_object_name(field_name, claim)
    path = path.strip("/")
    if path and (".." in path.split("/") or posixpath.normpath(path) != path):
        hint = "write a plain path below the volume's root, without . and .."
        raise InvalidJob(field_name, source, "is not a path on a volume", hint=hint)
    return VolumePath(claim=claim, path=path)


def parse_output(text: str) -> Output:
    """Read pvc:NAME[/path], or new:[SIZE][:CLASS] for a claim that is made for the run."""
    kind, _, rest = text.partition(":")
    if kind == "pvc" and rest:
        on = parse_volume_path("output", text)
        return Output(claim=on.claim, path=on.path)
    if kind != "new":
        hint = "write pvc:NAME/path for a volume that exists, or new:10Gi for one made for the run"
        raise InvalidJob("output", text, "is not a place for results", hint=hint)
    size, _, storage_class = rest.partition(":")
    return Output(
        size=parse_size("output", size) if size else NEW_SIZE,
        storage_class=parse_object_name("output", storage_class) if storage_class else None,
    )


def parse_node_selector(labels: Mapping[str, object]) -> dict[str, str]:
    """Check labels that nodes must have."""
    for key, value in labels.items():
        _check_label("node_selector", f"{key}={value}", key, str(value), "as in kubernetes.io/arch=amd64")
    return {key: str(value) for key, value in labels.items()}


def parse_toleration(text: str) -> Toleration:
    """Read KEY[=VALUE][:EFFECT]."""
    taint, separator, effect = text.partition(":")
    hint = "write KEY[=VALUE][:EFFECT], for example dedicated=training:NoSchedule"
    if separator and effect not in EFFECTS:
        raise InvalidJob("toleration", text, f"has no effect among {', '.join(EFFECTS)}", hint=hint)
    key, has_value, value = taint.partition("=")
    _check_label("toleration", text, key, value, hint)
    return Toleration(key=key, value=value if has_value else None, effect=effect or None)


def parse_package(text: str) -> str:
    """Check an argument for pip: a package, not an option, and without a password."""
    if text.startswith("-"):
        hint = (
            "name packages here and files with --requirements; options of pip are variables: --env PIP_PRE=1"
        )
        raise InvalidJob("pip", text, "is an option of pip, not a package", hint=hint)
    refuse_password("pip", text)
    return text


def refuse_password(field_name: str, text: str) -> None:
    """Refuse a URL with a password: it would be in a ConfigMap that every user of the namespace can read."""
    found = _USER_IN_ADDRESS.search(text)
    if found and (":" in found[2] or not found[1].endswith("ssh")):
        hint = "keep it out of sight: --secret PIP_INDEX_URL, which pip reads from the environment"
        raise InvalidJob(field_name, f"{found[1]}://…@…", "has a password in the open", hint=hint)


def parse_linger(text: object) -> float:
    """Read a time; 0 means to leave at once."""
    return 0.0 if str(text).strip() in ("0", "0s", "0.0") else parse_duration("linger", text)


def parse_ttl(text: object) -> float:
    """Read a time that fits Kubernetes' 32 bits."""
    seconds = parse_duration("ttl", text)
    if seconds > _LONGEST_TTL:
        raise InvalidJob("ttl", text, "is longer than Kubernetes can count", hint="at most 24855d")
    return seconds


def _check_source(text: str, kind: Kind, source: str, hint: str) -> None:
    if kind == "pvc":
        split_claim("mount", source)
    elif kind in ("configmap", "secret"):
        parse_object_name("mount", source)
    elif kind == "hostPath" and (not source.startswith("/") or ".." in source.split("/")):
        raise InvalidJob("mount", text, "does not name a folder of the node by its full path", hint=hint)
    elif kind == "nfs":
        server, separator, export = source.rpartition(":/")
        if not server or not separator or ".." in export.split("/"):
            fix = "write nfs:SERVER:/export:/path, for example nfs:10.0.0.5:/data:/data"
            raise InvalidJob("mount", text, "does not name a server and its export", hint=fix)
    elif kind == "emptydir" and source:
        parse_size("mount", source)


def _check_place(text: str, path: str, written: str) -> None:
    if path == "/dev/shm":  # noqa: S108 - a place in the pod
        raise InvalidJob("mount", text, "is where shared memory is", hint="--shm SIZE sets its size")
    if path in ("/", "/dev", "/proc", "/sys") or (path + "/").startswith(OURS + "/"):
        raise InvalidJob("mount", text, f"takes {path}, which is needed", hint="choose another path")
    if ".." in written.split("/") or "\0" in written:
        raise InvalidJob("mount", text, "is not a plain path", hint="write it without ..")


def _check_label(field_name: str, text: str, key: str, value: str, hint: str) -> None:
    prefix, separator, name = key.rpartition("/")
    good = len(name) <= 63 and _LABEL.fullmatch(name) is not None
    if separator:
        good = good and len(prefix) <= 253 and _OBJECT.fullmatch(prefix) is not None
    if not good:
        raise InvalidJob(field_name, text, "has no label's name before the =", hint=hint)
    if len(value) > 63 or (value and not _LABEL.fullmatch(value)):
        fix = "at most 63 letters, digits, -, _ and ., the first and last a letter or digit"
        raise InvalidJob(field_name, text, "has a value that no label can have", hint=fix)


def _nearest_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:253].strip("-") or "name"
