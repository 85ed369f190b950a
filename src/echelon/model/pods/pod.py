"""What a user may request of the pods of a run's workers, and the parsers of these settings.

`PodOptions` is a field of the Job. Engines without pods ignore it, so that one job file, or one
`[tool.echelon]`, serves this machine and a cluster. Each parser raises an InvalidJob that names the setting,
the value and the fix.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from echelon.errors import InvalidJob
from echelon.model.resources import parse_duration, parse_duration_or_zero, parse_size
from echelon.values import frozen

LINGER = 300.0
KEEP = 86400.0
KEEP_SIZE = 20 * 2**30
TTL = 7 * 86400.0
SIDECAR = "sidecar.istio.io/inject"
KUBEFLOW_KIND = "training.kubeflow.org/job-kind"  # the annotation with the kind that a run was submitted as
NOT_DOWNLOADED = (
    "trainer.kubeflow.org/not-downloaded"  # the annotation with what initializers would have, in lines
)
_RESERVED = (
    *(f"app.kubernetes.io/{name}" for name in ("name", "instance", "component", "managed-by")),
    SIDECAR,
)
_LONGEST_ANNOTATION = 16_384
SECRETS_TTL = 3 * 86400.0  # of a detached run with secrets: no command may be there to remove them
NEW_SIZE = 10 * 2**30
JOB = "job"  # of `job_kind`: Kubernetes' own
NATIVE = "native"  # of `job_kind`: what the user wrote down for Kubeflow's controller, as it is
_IN_QUEUES = (JOB, "pytorchjob", "tfjob")  # kinds that can wait in Kueue's
IMAGE = "image"  # of `code`: it lies in the image
OURS = "/echelon"  # the folder in a pod that belongs to the agent

Kind = Literal["pvc", "configmap", "secret", "nfs", "hostPath", "emptydir"]
KINDS: tuple[Kind, ...] = ("pvc", "configmap", "secret", "nfs", "hostPath", "emptydir")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_LONGEST_TTL = 2**31 - 1
_OUTPUT = "{output}"
_LOGS = "logs"  # the folder of the results in which agents write
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:\d+/)|\[[0-9a-fA-F:]+\])(?::\d+)?"
_STEP = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_STEP}(?:/{_STEP})*(?::[A-Za-z0-9_][\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?",
    re.ASCII,
)
_USER_IN_ADDRESS = re.compile(r"(\w+)://([^/@\s]+)@")


@frozen
class Mount:
    """A volume or folder that every worker mounts at `path`.

    `source` is NAME[/path] of a claim, NAME of a ConfigMap or Secret, SERVER:/export, a folder of the node,
    or the size of an empty folder ("" for any).
    """

    kind: Kind
    source: str
    path: str
    read_only: bool = False


@frozen
class VolumePath:
    """A folder on a claim; "" is its root."""

    claim: str
    path: str = ""


@frozen
class Output:
    """Where results go: a folder on a claim that exists, or, without `claim`, one made for the run."""

    claim: str | None = None
    path: str = ""
    size: int = NEW_SIZE
    storage_class: str | None = None


@frozen
class Toleration:
    """A taint that the pods tolerate; None as its value or effect stands for any."""

    key: str
    value: str | None = None
    effect: str | None = None


@frozen
class Keeper:
    """A small pod that takes the results when the run ends, at most `size` bytes, and holds them for `keep`
    seconds, or until they are fetched.
    """

    keep: float = KEEP
    size: int = KEEP_SIZE


@frozen
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
    queue: str | None = None  # of Kueue's, which then admits the run
    job_kind: str = JOB  # what workers are made of: a dialect of the engine
    scale_up: bool = False  # the cluster adds nodes for pods that wait
    shm: int | None = None
    code: VolumePath | None = None
    code_volume: VolumePath | None = None
    pip: tuple[str, ...] = ()
    requirements: str | None = None
    output: Output | None = None
    linger: float = LINGER
    keeper: Keeper | None = None
    checkpoints: str | None = None  # the folder below the results whose entries outlive their pod
    ttl: float = TTL
    collect: tuple[str, ...] = ()
    template: Mapping[str, Any] = field(default_factory=dict)
    patch: Mapping[str, Any] = field(default_factory=dict)  # applied to the pods last
    labels: Mapping[str, str] = field(default_factory=dict)  # and annotations: of every object of the run
    annotations: Mapping[str, str] = field(default_factory=dict)


def parse_job_kind(text: str, *, queue: str | None = None) -> str:
    """Check what workers are to be made of, and that it can wait in a queue of Kueue's."""
    if text == NATIVE:
        hint = "it belongs to -f FILE with a job of Kubeflow's"
        raise InvalidJob("as", text, "has nothing to submit", hint=hint)
    if queue is not None and text not in _IN_QUEUES:
        hint = f"leave --local-queue or --as out; these can: {', '.join(_IN_QUEUES)}"
        raise InvalidJob("as", text, "cannot wait in a queue of Kueue's here", hint=hint)
    return text


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


def write_mount(mount: Mount) -> str:
    """Write a mount as it is read."""
    return f"{mount.kind}:{mount.source}:{mount.path}{':ro' * mount.read_only}"


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


def write_volume_path(on: VolumePath) -> str:
    """Write a folder on a claim as it is read."""
    return f"pvc:{on.claim}/{on.path}".rstrip("/")


def split_claim(field_name: str, source: str) -> VolumePath:
    """Read NAME[/path], the part after pvc: of every setting."""
    claim, _, path = source.partition("/")
    parse_object_name(field_name, claim)
    path = path.strip("/")
    if path and (".." in path.split("/") or posixpath.normpath(path) != path):
        hint = "write a plain path below the volume's root, without . and .."
        raise InvalidJob(field_name, source, "is not a path on a volume", hint=hint)
    return VolumePath(claim=claim, path=path)


def parse_output(text: str, field_name: str = "output") -> Output:
    """Read pvc:NAME[/path], or new:[SIZE][@CLASS] for a claim that is made for the run."""
    kind, _, rest = text.partition(":")
    if kind == "pvc" and rest:
        on = parse_volume_path(field_name, text)
        return Output(claim=on.claim, path=on.path)
    if kind != "new":
        hint = "write pvc:NAME/path for a volume that exists, or new:10Gi for one made for the run"
        raise InvalidJob(field_name, text, "is not a place for results", hint=hint)
    size, _, storage_class = rest.replace(":", "@", 1).partition("@")  # it was written new:SIZE:CLASS once
    return Output(
        size=parse_size(field_name, size) if size else NEW_SIZE,
        storage_class=parse_object_name(field_name, storage_class) if storage_class else None,
    )


def write_output(output: Output) -> str:
    """Write a place for results as it is read."""
    if output.claim is not None:
        return write_volume_path(VolumePath(claim=output.claim, path=output.path))
    return f"new:{output.size}{'' if output.storage_class is None else f'@{output.storage_class}'}"


def parse_checkpoints(text: str) -> str:
    """Read a folder below the results, with or without {output} before it: a relative path."""
    hint = "name a folder below the results, for example --checkpoints ckpt for {output}/ckpt"
    inside = text.removeprefix(_OUTPUT)
    if inside == text and text.startswith("/"):
        raise InvalidJob("checkpoints", text, "is not below the results", hint=hint)
    if inside != text and inside and not inside.startswith("/"):
        raise InvalidJob("checkpoints", text, "is not below {output}", hint=hint)
    path = posixpath.normpath(inside.lstrip("/"))
    if ".." in inside.split("/"):
        raise InvalidJob("checkpoints", text, "is not a plain path", hint=hint)
    if path == ".":
        raise InvalidJob("checkpoints", text, "is not a folder below the results", hint=hint)
    if path.split("/")[0] == _LOGS:
        raise InvalidJob("checkpoints", text, "is where the ranks' logs are", hint=hint)
    return path


def parse_node_selector(labels: Mapping[str, object]) -> dict[str, str]:
    """Check labels that nodes must have."""
    for key, value in labels.items():
        _check_label("node_selector", f"{key}={value}", key, str(value), "as in kubernetes.io/arch=amd64")
    return {key: str(value) for key, value in labels.items()}


def is_reserved(key: str) -> bool:
    """Whether a label or annotation is echelon's or the Job controller's own."""
    return key.startswith(("echelon.dev/", "batch.kubernetes.io/")) or key in _RESERVED


def parse_labels(labels: Mapping[str, object]) -> dict[str, str]:
    """Check labels for the objects of a run."""
    for key, value in labels.items():
        _check_label(
            "label", f"{key}={value}", key, str(value), "as in team=vision or example.com/team=vision"
        )
        _check_reserved("label", key)
    return {key: str(value) for key, value in labels.items()}


def parse_annotations(annotations: Mapping[str, object]) -> dict[str, str]:
    """Check annotations for the objects of a run; their values may be any text."""
    for key, value in annotations.items():
        _check_label("annotation", f"{key}={value}", key, "", "as in example.com/cost-centre=4711")
        _check_reserved("annotation", key)
        if len(str(value)) > _LONGEST_ANNOTATION:
            raise InvalidJob("annotation", key, "is too long", hint=f"at most {_LONGEST_ANNOTATION} letters")
    return {key: str(value) for key, value in annotations.items()}


def _check_reserved(field_name: str, key: str) -> None:
    if is_reserved(key):
        raise InvalidJob(field_name, key, "is echelon's own", hint="choose another name")


def parse_toleration(text: str) -> Toleration:
    """Read KEY[=VALUE][:EFFECT]."""
    taint, separator, effect = text.partition(":")
    hint = "write KEY[=VALUE][:EFFECT], for example dedicated=training:NoSchedule"
    if separator and effect not in EFFECTS:
        raise InvalidJob("toleration", text, f"has no effect among {', '.join(EFFECTS)}", hint=hint)
    key, has_value, value = taint.partition("=")
    _check_label("toleration", text, key, value, hint)
    return Toleration(key=key, value=value if has_value else None, effect=effect or None)


def write_toleration(given: Toleration) -> str:
    """Write a toleration as it is read."""
    value = "" if given.value is None else f"={given.value}"
    return f"{given.key}{value}{f':{given.effect}' if given.effect else ''}"


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


def parse_keep(text: object) -> tuple[float, int | None]:
    """Read a time, and a size if there is one (`24h:20Gi`); with 0 as either there is no keeper."""
    time, colon, size = str(text).partition(":")
    seconds = parse_duration_or_zero("keep", time if colon else text)
    if not colon:
        return seconds, None
    return seconds, 0 if size.strip() == "0" else parse_size("keep", size)


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
