"""A small pod that mounts a volume, so that `echelon cp` can reach what is on it.

Kubernetes has no other way to a volume than from a pod. This one has nothing but the agent in it, which
waits; files go through `exec` (see `transfer`). The command that copies removes it afterwards. If that fails,
as when the command was killed, the pod ends by itself a minute after the last byte of a copy, and Kubernetes
removes the Job and all that belongs to it. Whatever else happens, the Job has a deadline: minutes while its
pod has not started, a day afterwards."""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.files.reconnect import Channel, Opener
from echelon.engines.kubernetes.files.transfer import pod_opener
from echelon.engines.kubernetes.one_pod import OnePod, Patience, job_object, metadata
from echelon.engines.kubernetes.render.image import PLAIN
from echelon.engines.kubernetes.render.manifests import owner_reference
from echelon.engines.kubernetes.render.pod import to_toleration
from echelon.engines.kubernetes.state import workers
from echelon.errors import EchelonError, Unavailable
from echelon.model.engine.volume import Volume
from echelon.model.pods.pod import PodOptions
from echelon.values import frozen

MOUNT = f"{names.ROOT}/volume"
IDLE = 60  # seconds without a copy that moves after which it ends by itself
_LONGEST = 24 * 3600  # seconds after which it ends whatever happens
_UNBORN = 900  # the same for one that has not started: the command that made it may have been killed
_KEPT = 60  # seconds after its end until Kubernetes removes it
PATIENCE = Patience(
    whole=600.0,
    stuck=45.0,
    kinds=("claim", "volume", "mount", "attach", "config", "image", "login", "registry"),
    ends="the copy",
)


@frozen
class CopyPod:
    """What the pod is made of: the claim, the image, and where it may be."""

    claim: str
    options: PodOptions
    owner: str
    writes: bool
    nodes: tuple[str, ...] = ()  # where the volume is in use, if it can be in one place only


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
    """Have a pod with the volume at MOUNT for as long as the body takes; `notice` gets what it waits for.

    It is made again when it has ended while the cluster could not be reached: the copy goes on from there."""
    _check_free(volume)
    held = "ReadWriteOnce" in volume.modes and len(volume.modes) == 1
    nodes = volume.nodes if held else ()
    wanted = CopyPod(claim=volume.name, options=options, owner=owner, writes=writes, nodes=nodes)
    pod = OnePod(api, "the pod that copies", PATIENCE, notice)
    current: Opener | None = None

    def opener(arguments: Sequence[str]) -> AbstractContextManager[Channel]:
        nonlocal current
        try:
            if current is not None:
                return current(arguments)
        except NotThere:
            current = None
            _remove(pod, notice)
        current = _make(api, pod, wanted)
        return current(arguments)

    try:
        current = _make(api, pod, wanted)
        yield opener
    finally:
        _remove(pod, notice)


def _make(api: Api, pod: OnePod, wanted: CopyPod) -> Opener:
    from echelon.engines.kept_agent import shipped_agent

    agent = shipped_agent()

    def render(level: str) -> Object:
        return job_of(f"cp-{secrets.token_hex(4)}", wanted, level)

    made = pod.make(render, workers.is_running, lambda job: api.create(agent_of(job, wanted.owner, agent)))
    about = pod.job["metadata"]
    api.patch("Job", about["name"], {"spec": {"activeDeadlineSeconds": _LONGEST}}, uid=about["uid"])
    return pod_opener(api, made.metadata.name)


def _remove(pod: OnePod, notice: Callable[[str], object]) -> None:
    try:
        pod.remove()
    except EchelonError as error:
        notice(
            f"the pod that copies was not removed ({error.message}); it goes by itself in {IDLE // 60} min"
        )


def agent_of(job: Object, owner: str, agent: bytes) -> Object:
    """The ConfigMap with the agent, which belongs to the Job. Pure."""
    about = metadata(job["metadata"]["name"], names.TRANSFER, owner)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**about, "ownerReferences": [owner_reference(job)]},
        "immutable": True,
        "binaryData": {names.AGENT_KEY: base64.b64encode(agent).decode()},
    }


def job_of(name: str, wanted: CopyPod, level: str) -> Object:
    """The Job, for a namespace of a level of Pod Security. Pure."""
    options = wanted.options
    gpus = [{"key": key, "operator": "Exists"} for key in names.GPUS]
    claim = {"claimName": wanted.claim, **({} if wanted.writes else {"readOnly": True})}
    container: Object = {
        "image": options.image or PLAIN,
        "imagePullPolicy": "Always" if options.pull == "always" else "IfNotPresent",
        "command": names.agent_command(None, "files", "hold", str(IDLE)),
        # Small, and stated, since a quota may require it.
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"cpu": "1", "memory": "256Mi"},
        },
        "securityContext": {"readOnlyRootFilesystem": True},
        "volumeMounts": [
            {"name": "agent", "mountPath": names.BUNDLE_DIR, "readOnly": True},
            {"name": "volume", "mountPath": MOUNT, "readOnly": not wanted.writes},
        ],
    }
    pod: Object = {
        "terminationGracePeriodSeconds": 5,
        # The volume may be tied to a node with GPUs, and this pod takes none of them.
        "tolerations": [*gpus, *map(to_toleration, options.tolerations)],
        "volumes": [
            {"name": "agent", "configMap": {"name": name, "defaultMode": 0o444}},
            {"name": "volume", "persistentVolumeClaim": claim},
        ],
    }
    if wanted.nodes:
        field = {"key": "metadata.name", "operator": "In", "values": list(wanted.nodes)}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if options.pull_secrets:
        pod["imagePullSecrets"] = [{"name": each} for each in options.pull_secrets]
    if options.service_account:
        pod["serviceAccountName"] = options.service_account
    about = metadata(name, names.TRANSFER, wanted.owner)
    lasts = {"activeDeadlineSeconds": _UNBORN, "ttlSecondsAfterFinished": _KEPT}
    return job_object(about, container, level=level, pod=pod, job=lasts)


def _check_free(volume: Volume) -> None:
    if "ReadWriteOncePod" in volume.modes and volume.pods:
        raise Unavailable(
            f"volume {volume.name} may be used by one pod at a time, and pod {volume.pods[0]} has it",
            hint="copy when that pod has ended",
        )
