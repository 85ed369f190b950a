"""A small pod that mounts a volume, so that `echelon cp` can reach what is on it.

Kubernetes has no other way to a volume than from a pod. This one is a Job with nothing but the agent in it,
which waits; files go through `exec` (see `transfer`). The command that copies removes it afterwards. If that
fails, as when the command was killed, the pod ends by itself a minute after the last byte of a copy, and
Kubernetes removes the Job and all that belongs to it. Whatever else happens, the Job has a deadline: minutes
while its pod has not started, a day afterwards."""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.diagnose import Trouble, gives_up
from echelon.engines.kubernetes.diagnose.trouble import Kind
from echelon.engines.kubernetes.files.reconnect import Channel, Opener
from echelon.engines.kubernetes.files.transfer import pod_opener
from echelon.engines.kubernetes.follow.troubles import find_troubles
from echelon.engines.kubernetes.ownership.belonging import is_made_by
from echelon.engines.kubernetes.prerequisites.pod_security import forbids_root, level_of
from echelon.engines.kubernetes.render.image import PLAIN
from echelon.engines.kubernetes.render.manifests import owner_reference
from echelon.engines.kubernetes.render.pod import RESTRICTED, security_context, to_toleration
from echelon.engines.kubernetes.state import workers
from echelon.errors import EchelonError, Refused, Unavailable
from echelon.model.engine.volume import Volume
from echelon.model.pods.pod import PodOptions
from echelon.values import frozen

MOUNT = f"{names.ROOT}/volume"
IDLE = 60  # seconds without a copy that moves after which it ends by itself
_LONGEST = 24 * 3600  # seconds after which it ends whatever happens
_UNBORN = 900  # the same for one that has not started: the command that made it may have been killed
_KEPT = 60  # seconds after its end until Kubernetes removes it
_PATIENCE = 600.0  # seconds that it may take to start
_STUCK = 45.0  # the same while it waits for what hardly comes when a command has waited for so long
_STUCK_KINDS: tuple[Kind, ...] = (
    "claim",
    "volume",
    "mount",
    "attach",
    "config",
    "image",
    "login",
    "registry",
)
_LOOK, _WHY = 0.2, 2.0  # seconds between two looks at it, and before one asks why it does not start
_POD_NAME = "the pod that copies"


@frozen
class CopyPod:
    """What the pod is made of: the claim, the image, and what the namespace requires of pods."""

    name: str  # of its Job; each that is made has another
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
    """Have a pod with the volume at MOUNT for as long as the body takes; `notice` gets what it waits for."""
    _check_free(volume)
    held = "ReadWriteOnce" in volume.modes and len(volume.modes) == 1
    copy_pod = CopyPod(
        name="",
        claim=volume.name,
        options=options,
        owner=owner,
        writes=writes,
        nodes=volume.nodes if held else (),
        level=level_of(api) or "",
    )
    way = _Way(api, copy_pod, notice)
    try:
        way.make()
        yield way.open
    finally:
        way.remove()


class _Way:
    """The way to a volume: a pod, and another one if that has ended while the cluster could not be reached.
    The copy goes on from where it was, since what has arrived is kept.
    """

    def __init__(self, api: Api, pod: CopyPod, notice: Callable[[str], object]) -> None:
        self._api = api
        self._pod = pod
        self._notice = notice
        self._job: Object | None = None
        self._opener: Opener | None = None

    def open(self, arguments: Sequence[str]) -> AbstractContextManager[Channel]:
        """Open a connection to the agent in the pod."""
        try:
            if self._opener is not None:
                return self._opener(arguments)
        except NotThere:
            self.remove()
        return self.make()(arguments)

    def make(self) -> Opener:
        """Make the pod, and wait until it runs."""
        try:
            name = self._start()
        except _Forbidden:
            # Where the user may not read the namespace's labels, its refusal shows the level.
            self.remove()
            self._pod = replace(self._pod, level=RESTRICTED)
            name = self._start()
        assert self._job is not None
        limit = {"spec": {"activeDeadlineSeconds": _LONGEST}}
        about = self._job["metadata"]
        self._api.patch("Job", about["name"], limit, uid=about["uid"])
        self._opener = pod_opener(self._api, name)
        return self._opener

    def remove(self) -> None:
        """Remove the pod, if there is one."""
        job, self._job, self._opener = self._job, None, None
        if job is not None:
            _remove(self._api, job, self._notice)

    def _start(self) -> str:
        self._job = _make(self._api, replace(self._pod, name=f"cp-{secrets.token_hex(4)}"))
        return _wait(self._api, self._job, self._notice)


def objects_of(pod: CopyPod, agent: bytes) -> tuple[Object, Object]:
    """The Job, and the ConfigMap with the agent, which will belong to it. Pure."""
    about = {"name": pod.name, "labels": _labels(pod), "annotations": {names.OWNER: pod.owner}}
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
                    "labels": {**_labels(pod), names.NO_SIDECAR: "false"},
                    "annotations": {names.NO_SIDECAR: "false"},
                },
                "spec": _pod_spec(pod),
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


def _labels(pod: CopyPod) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "echelon",
        "app.kubernetes.io/instance": pod.name,
        names.COMPONENT: names.TRANSFER,
        names.MANAGED_BY: "echelon",
        names.OWNER: names.owner_slug(pod.owner),
    }


def _pod_spec(pod: CopyPod) -> Object:
    options = pod.options
    gpus = [{"key": key, "operator": "Exists"} for key in names.GPUS]
    claim = {"claimName": pod.claim, **({} if pod.writes else {"readOnly": True})}
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security_context(pod.level),
        # The volume may be tied to a node with GPUs, and this pod takes none of them.
        "tolerations": [*gpus, *map(to_toleration, options.tolerations)],
        "containers": [
            {
                "name": names.CONTAINER,
                "image": options.image or PLAIN,
                "imagePullPolicy": "Always" if options.pull == "always" else "IfNotPresent",
                "command": names.agent_command(None, "files", "hold", str(IDLE)),
                # Small, and stated, since a quota may require it.
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
                    {"name": "volume", "mountPath": MOUNT, "readOnly": not pod.writes},
                ],
            }
        ],
        "volumes": [
            {"name": "agent", "configMap": {"name": pod.name, "defaultMode": 0o444}},
            {"name": "volume", "persistentVolumeClaim": claim},
        ],
    }
    if pod.nodes:
        field = {"key": "metadata.name", "operator": "In", "values": list(pod.nodes)}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if options.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in options.pull_secrets]
    if options.service_account:
        spec["serviceAccountName"] = options.service_account
    return spec


class _Forbidden(Exception):
    """The namespace takes only pods that do not run as root."""


def _make(api: Api, pod: CopyPod) -> Object:
    from echelon.engines.kept_agent import shipped_agent

    job, shipped = objects_of(pod, shipped_agent())
    made = api.create(job)
    try:
        about = {**shipped["metadata"], "ownerReferences": [owner_reference(made)]}
        api.create({**shipped, "metadata": about})
    except BaseException:
        api.delete("Job", pod.name, uid=made["metadata"]["uid"])
        raise
    return made


def _wait(api: Api, job: Object, notice: Callable[[str], object]) -> str:
    """Wait until the pod runs; returns its name. Reports what it waits for, and raises what cannot heal."""
    name = job["metadata"]["name"]
    selector = f"app.kubernetes.io/instance={name},{names.COMPONENT}={names.TRANSFER}"
    own = {job["metadata"]["uid"]}
    begun = asked = time.monotonic()
    reported = ""
    while True:
        # Anybody may give a pod these labels: what is copied goes to one that this Job made.
        pods = [pod for pod in api.list("Pod", selector=selector).items if is_made_by(pod, own)]
        running = [pod for pod in pods if workers.is_running(pod)]
        if running:
            return str(running[0]["metadata"]["name"])
        now = time.monotonic()
        if now - asked >= _WHY:
            asked = now
            troubles = find_troubles(api, [job], pods, alone=_POD_NAME)
            _check(troubles, job, waited=now - begun)
            if troubles and troubles[0].sentence != reported:
                reported = troubles[0].sentence
                notice(_told(troubles[0]))
        time.sleep(_LOOK)


def _check(troubles: Sequence[Trouble], job: Object, waited: float) -> None:
    """Raise what makes waiting pointless."""
    restricted = "runAsNonRoot" in job["spec"]["template"]["spec"]["securityContext"]
    if not restricted and forbids_root(troubles):
        raise _Forbidden
    final = gives_up(troubles, time.time())
    if final is not None:
        raise Refused(final.sentence, hint=final.hint)
    first = troubles[0] if troubles else None
    if waited > (_STUCK if first is not None and first.kind in _STUCK_KINDS else _PATIENCE):
        raise Unavailable(
            first.sentence if first else f"{_POD_NAME} did not start within {_PATIENCE:g} s",
            hint=first.hint if first else "`kubectl get pods` shows it",
        )


def _told(trouble: Trouble) -> str:
    limit = f"the copy ends if it lasts {_STUCK:g} s" if trouble.kind in _STUCK_KINDS else ""
    more = "; ".join(filter(None, (trouble.hint, limit)))
    return f"{trouble.sentence} ({more})" if more else trouble.sentence


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
