"""A small pod that mounts a volume, so that `echelon cp` can reach what is on it.

Kubernetes has no other way to a volume than from a pod. This one is a Job with nothing but the agent in it,
which waits; files go through `exec` (see `transfer`). Whoever copies removes it afterwards. If they cannot,
it ends by itself when nobody has copied for a while, and Kubernetes removes it and all that belongs to it."""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.diagnose import Trouble, gives_up, limit_words
from echelon.engines.kubernetes.files.reconnect import Opener
from echelon.engines.kubernetes.files.transfer import pod_opener
from echelon.engines.kubernetes.follow.troubles import find_troubles
from echelon.engines.kubernetes.pod_security import forbids_root, level_of
from echelon.engines.kubernetes.render.manifests import owner_reference
from echelon.engines.kubernetes.render.pod import to_toleration
from echelon.engines.kubernetes.state import workers
from echelon.errors import EchelonError, Refused, Unavailable
from echelon.model.pod import PodOptions
from echelon.model.volume import Volume

MOUNT = f"{names.ROOT}/volume"
IMAGE = "docker.io/library/python:3.12-slim"
IDLE = 300  # seconds without a copy after which it ends by itself
_LONGEST = 24 * 3600  # seconds after which it ends whatever happens
_UNBORN = 900  # the same for one that has not started: whoever wanted it may have been killed
_KEPT = 60  # seconds after its end until Kubernetes removes it
_PATIENCE = 600.0  # seconds that it may take to start
_LOOK, _WHY = 0.2, 2.0  # seconds between two looks at it, and before one asks why it does not start
_RESTRICTED = "restricted"
_SOMEBODY = 1000  # a user id that is nobody's in most images; the workers of runs have the same
_POD_NAME = "the pod that copies"


@dataclass(frozen=True, kw_only=True, slots=True)
class Courier:
    """What the pod is made of: the claim, the image, and whatever the namespace asks of pods."""

    name: str
    claim: str
    options: PodOptions
    owner: str
    writes: bool
    nodes: tuple[str, ...] = ()  # where the volume is in use, if it can be in one place only
    level: str = ""  # of Pod Security, that the namespace enforces


@contextlib.contextmanager
def reach_volume(
    api: Api,
    volume: Volume,
    options: PodOptions,
    *,
    owner: str,
    writes: bool,
    notice: Callable[[str], object] = lambda _: None,
) -> Iterator[Opener]:
    """Have a pod with the volume at MOUNT for as long as the body takes; `notice` hears what it waits for."""
    _check_free(volume)
    held = "ReadWriteOnce" in volume.modes and len(volume.modes) == 1
    courier = Courier(
        name=f"cp-{secrets.token_hex(4)}",
        claim=volume.name,
        options=options,
        owner=owner,
        writes=writes,
        nodes=volume.nodes if held else (),
        level=level_of(api) or "",
    )
    job: Object | None = None
    try:
        job = _make(api, courier)
        try:
            pod = _wait(api, job, notice)
        except _Forbidden:
            # The namespace's labels may not be read by everybody; what it forbids is heard soon enough.
            _remove(api, job, notice)
            courier = _as_somebody(courier)
            job = _make(api, courier)
            pod = _wait(api, job, notice)
        api.patch("Job", job["metadata"]["name"], {"spec": {"activeDeadlineSeconds": _LONGEST}})
        yield pod_opener(api, pod)
    finally:
        if job is not None:
            _remove(api, job, notice)


def objects_of(courier: Courier, agent: bytes) -> tuple[Object, Object]:
    """The Job, and the ConfigMap with the agent, which will belong to it. Pure."""
    about = {"name": courier.name, "labels": _labels(courier), "annotations": {names.OWNER: courier.owner}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _UNBORN,
            "ttlSecondsAfterFinished": _KEPT,
            "template": {
                "metadata": {
                    "labels": {**_labels(courier), names.NO_SIDECAR: "false"},
                    "annotations": {names.NO_SIDECAR: "false"},
                },
                "spec": _pod_spec(courier),
            },
        },
    }
    shipped = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": about,
        "immutable": True,
        "binaryData": {names.AGENT_KEY: base64.b64encode(agent).decode()},
    }
    return job, shipped


def _labels(courier: Courier) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "echelon",
        "app.kubernetes.io/instance": courier.name,
        names.COMPONENT: names.TRANSFER,
        names.MANAGED_BY: "echelon",
        names.OWNER: names.owner_slug(courier.owner),
    }


def _pod_spec(courier: Courier) -> Object:
    options = courier.options
    gpus = [{"key": key, "operator": "Exists"} for key in (names.GPU, names.AMD_GPU)]
    security: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
    if courier.level == _RESTRICTED:
        security |= {
            "runAsNonRoot": True,
            "runAsUser": _SOMEBODY,
            "runAsGroup": _SOMEBODY,
            "fsGroup": _SOMEBODY,
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    claim = {"claimName": courier.claim, **({} if courier.writes else {"readOnly": True})}
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security,
        # The volume may be tied to a node with GPUs, and this pod takes none of them.
        "tolerations": [*gpus, *map(to_toleration, options.tolerations)],
        "containers": [
            {
                "name": names.CONTAINER,
                "image": options.image or IMAGE,
                "imagePullPolicy": "Always" if options.pull == "always" else "IfNotPresent",
                "command": names.agent_command(None, "files", "hold", str(IDLE)),
                # Small, and said, since a quota may want to know.
                "resources": {
                    "requests": {"cpu": "100m", "memory": "64Mi"},
                    "limits": {"cpu": "1", "memory": "256Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "agent", "mountPath": names.BUNDLE_DIR, "readOnly": True},
                    {"name": "volume", "mountPath": MOUNT, "readOnly": not courier.writes},
                ],
            }
        ],
        "volumes": [
            {"name": "agent", "configMap": {"name": courier.name, "defaultMode": 0o444}},
            {"name": "volume", "persistentVolumeClaim": claim},
        ],
    }
    if courier.nodes:
        field = {"key": "metadata.name", "operator": "In", "values": list(courier.nodes)}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if options.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in options.pull_secrets]
    if options.service_account:
        spec["serviceAccountName"] = options.service_account
    return spec


class _Forbidden(Exception):
    """The namespace takes only pods that run as nobody in particular."""


def _make(api: Api, courier: Courier) -> Object:
    from echelon.bundle.zipapp import agent_archive

    job, shipped = objects_of(courier, agent_archive())
    made = api.create(job)
    try:
        about = {**shipped["metadata"], "ownerReferences": [owner_reference(made)]}
        api.create({**shipped, "metadata": about})
    except BaseException:
        api.delete("Job", courier.name, uid=made["metadata"]["uid"])
        raise
    return made


def _wait(api: Api, job: Object, notice: Callable[[str], object]) -> str:
    """Wait until the pod runs; returns its name. Says what it waits for, and gives up what cannot heal."""
    name = job["metadata"]["name"]
    selector = f"app.kubernetes.io/instance={name},{names.COMPONENT}={names.TRANSFER}"
    begun = asked = time.monotonic()
    told = ""
    while True:
        pods = api.list("Pod", selector=selector).items
        running = [pod for pod in pods if workers.is_running(pod)]
        if running:
            return str(running[0]["metadata"]["name"])
        now = time.monotonic()
        if now - asked >= _WHY:
            asked = now
            troubles = find_troubles(api, [job], pods, alone=_POD_NAME)
            _check(troubles, job, waited=now - begun)
            if troubles and troubles[0].sentence != told:
                told = troubles[0].sentence
                words = filter(None, (troubles[0].hint, limit_words(troubles[0])))
                notice(f"{told} ({'; '.join(words)})")
        time.sleep(_LOOK)


def _check(troubles: Sequence[Trouble], job: Object, waited: float) -> None:
    """Raise what makes waiting pointless."""
    restricted = "runAsNonRoot" in job["spec"]["template"]["spec"]["securityContext"]
    if not restricted and forbids_root(troubles):
        raise _Forbidden
    final = gives_up(troubles, time.time())
    if final is not None:
        raise Refused(final.sentence, hint=final.hint)
    if waited > _PATIENCE:
        first = troubles[0] if troubles else None
        raise Unavailable(
            first.sentence if first else f"{_POD_NAME} did not start within {_PATIENCE:g} s",
            hint=first.hint if first else "`kubectl get pods` shows it",
        )


def _as_somebody(courier: Courier) -> Courier:
    return replace(courier, name=f"cp-{secrets.token_hex(4)}", level=_RESTRICTED)


def _check_free(volume: Volume) -> None:
    if "ReadWriteOncePod" in volume.modes and volume.pods:
        raise Unavailable(
            f"volume {volume.name} may be used by one pod at a time, and pod {volume.pods[0]} has it",
            hint="copy when that pod has ended",
        )


def _remove(api: Api, job: Object, notice: Callable[[str], object]) -> None:
    about = job["metadata"]
    try:
        api.delete("Job", about["name"], uid=about["uid"])
    except EchelonError as error:
        notice(
            f"Job {about['name']} was not removed ({error.message}); it goes by itself in {IDLE // 60} min"
        )
