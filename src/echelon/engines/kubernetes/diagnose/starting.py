"""Why a pod that has its node does not start its container. Pure.

The kubelet reports it in the container's state, and, for volumes and the sandbox, only in events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

from echelon.engines.kubernetes.diagnose.cluster_events import ClusterEvent, last_of
from echelon.engines.kubernetes.diagnose.pulling import read_pull_error
from echelon.engines.kubernetes.diagnose.trouble import Finding, Kind
from echelon.engines.kubernetes.fields import moment, one_line
from echelon.engines.kubernetes.pods import Pod, Waiting
from echelon.engines.kubernetes.state.workers import (
    container_state,
    node_name,
    start_error,
    worker_container,
    worker_of,
)

_PULL_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
_SET_UP = ("Pulling", "Pulled", "Created", "Started")  # come after the volumes and the sandbox
_SILENCE = 20.0  # seconds within which a node takes up a pod that was given to it
_UNTOLD = 4.0  # seconds after which a pod that is being set up is reported where events may not be read
_KEY = re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>ConfigMap|Secret) [^/\s]+/(?P<name>\S+)")
_OBJECT = re.compile(r'(?P<kind>configmap|secret) "(?P<name>[^"]+)" not found')
_REFERENCE = re.compile(r"references non-existent (?:config|secret) key: (?P<key>\S+)")
_COMMAND = re.compile(
    r'exec: \\?"(?P<command>[^"\\]+)\\?": '
    r"(?P<why>executable file not found|stat \S+: no such file|permission denied)"
)
_NO_FILE = re.compile(r"exec (?P<command>\S+): no such file or directory")
# Of a volume: what no waiting will change.
_FOR_GOOD = re.compile(
    r"type check failed|access denied|permission denied|no such file or directory|wrong fs type"
    r"|does not exist"
)
_SANDBOX_ID = re.compile(r' (?:for|of) (?:pod )?sandbox "[0-9a-f]{16,}"')
_VOLUME = re.compile(r'for volume "(?P<name>[^"]+)"')


def waiting_trouble(pod: Pod, events: Sequence[ClusterEvent], now: float) -> Finding | None:
    """What keeps the container of a pod that has its node from starting; None if it runs or has run."""
    state = container_state(pod)
    if state.running is not None or state.terminated is not None:
        return None
    waiting = state.waiting or Waiting()
    reason, message = one_line(waiting.reason), one_line(waiting.message)
    if reason == "InvalidImageName":
        return _finding(
            pod,
            "invalid-image",
            f"{_image(pod)!r} is not the name of an image",
            "as in docker.io/library/python:3.12; give it with --image",
            moment(pod.status.start_time),
        )
    if reason in _PULL_REASONS:
        return _pull(pod, reason, message, events)
    if reason == "CreateContainerConfigError":
        return _config(pod, message, events)
    if reason in ("CreateContainerError", "RunContainerError", "PreCreateHookError", "PreStartHookError"):
        return start_trouble(pod, message, _first(pod, events, "Failed"), again=True)
    if reason == "CrashLoopBackOff":
        return _finding(
            pod,
            "crash-loop",
            f"the container of {{who}} ends again and again: {message}",
            f"`kubectl logs --previous {pod.metadata.name}` shows its last lines",
            None,
            healable=True,
        )
    for each in pod.status.init_container_statuses:
        why = each.state.waiting or Waiting()
        if why.reason not in ("", "PodInitializing", "ContainerCreating"):
            # Put there by the cluster (a mesh, a policy): the user can do little but ask.
            reason = one_line(why.message) or why.reason
            text = f"init container {each.name}, which the cluster has added, keeps {{who}} waiting: {reason}"
            hint = "the cluster's administrators know what it is for"
            return _finding(pod, "create", text, hint, _since(pod, ()), healable=True)
    return _setting_up(pod, events, now)


def untold_trouble(pod: Pod, now: float) -> Finding | None:
    """That a pod is being set up, where the events that say with what may not be read."""
    begun = moment(pod.status.start_time)
    if begun is None or now - begun < _UNTOLD:
        return None
    return _finding(
        pod,
        "pulling",
        "{who} is not started yet: its image is being pulled, or a volume cannot be mounted; you may not "
        "list the events that say which",
        "`echelon doctor --on k8s` names the missing right",
        begun,
        healable=True,
    )


def start_trouble(pod: Pod, message: str, since: float | None, *, again: bool = False) -> Finding:
    """A container whose command cannot be started; `again` if its node goes on trying."""
    image, node = _image(pod), node_name(pod).removeprefix("its ")
    found = _COMMAND.search(message) or _NO_FILE.search(message)
    if found and (found.groupdict().get("why") or "") == "permission denied":
        text = f"{found['command']} in image {image} may not be executed: {{who}} cannot start"
        hint = "name another Python of the image with --python, or use another image"
    elif found:
        text = f"image {image} has no {found['command']}: {{who}} cannot start"
        hint = "use an image with Python 3.8 or newer, or say where its Python is with --python"
    elif "exec format error" in message:
        text = f"image {image} is not made for the processor of {node}"
        hint = "use one that is (or a node that fits, with --node-selector kubernetes.io/arch=amd64)"
    else:
        text = f"the container of {{who}} cannot start: {start_error(message) or 'no reason was given'}"
        hint = f"`kubectl describe pod {pod.metadata.name}` has more"
        # Another node, or the same one later, may do better; a pod that failed of it is replaced.
        return _finding(pod, "create" if again else "start", text, hint, since, healable=not again)
    return _finding(pod, "start", text, hint, since)


def _pull(pod: Pod, reason: str, message: str, events: Sequence[ClusterEvent]) -> Finding:
    failed = [each for each in events if each.reason == "Failed" and "pull image" in each.message]
    if reason == "ErrImageNeverPull":
        text = f"image {_image(pod)} is not on {node_name(pod).removeprefix('its ')}, and must not be pulled"
        return _finding(pod, "image", text, "use --pull missing", _since(pod, failed))
    if (not message or message.endswith(f'"{_image(pod)}"')) and failed:
        message = failed[-1].message  # before Kubernetes 1.30, a back-off does not name its cause
    missing = last_of(events, "FailedToRetrieveImagePullSecret")
    lost = re.search(r"\(([^)]*)\)", missing.message) if missing else None
    secrets = [each.name for each in pod.spec.image_pull_secrets]
    kind, text, hint = read_pull_error(_image(pod), message, secrets, lost[1] if lost else "")
    return _finding(pod, kind, text, hint, _since(pod, failed))


def _config(pod: Pod, message: str, events: Sequence[ClusterEvent]) -> Finding:
    since = _first(pod, events, "Failed")
    if found := _KEY.search(message):
        text = f"{found['kind'].lower()} {found['name']}, which {{who}} would read, has no key {found['key']}"
        return _finding(pod, "config", text, "add the key, or name another", since)
    if found := _OBJECT.search(message):
        text = f"{found['kind']} {found['name']}, which {{who}} would read, does not exist in the namespace"
        return _finding(
            pod, "config", text, f"make it: `kubectl create {_created(**found.groupdict())}`", since
        )
    if "runAsNonRoot" in message:
        text = f"image {_image(pod)} runs as root, which its pod forbids: {{who}} cannot start"
        hint = "use an image with a numeric user of its own, or a namespace with another Pod Security level"
        return _finding(pod, "config", text, hint, since)
    hint = f"`kubectl describe pod {pod.metadata.name}` has more"
    return _finding(pod, "config", f"the container of {{who}} cannot be made: {message}", hint, since)


def _setting_up(pod: Pod, events: Sequence[ClusterEvent], now: float) -> Finding | None:
    """Volumes, the sandbox, and an image on its way: only events show them."""
    done = last_of(events, *_SET_UP)
    late = [each for each in events if done is None or each.last > done.last]
    mount = last_of(late, "FailedMount", "FailedAttachVolume", "FailedMapVolume")
    if mount is not None:
        return _mount(pod, mount)
    sandbox = last_of(late, "FailedCreatePodSandBox", "NetworkNotReady", "FailedPrepareDynamicResources")
    if sandbox is not None:
        why = _SANDBOX_ID.sub("", start_error(sandbox.message.removeprefix("Failed to create pod sandbox: ")))
        hint = (
            f"the cluster's administrators can look at {node_name(pod).removeprefix('its ')}; it tries again"
        )
        text = f"{node_name(pod).removeprefix('its ')} cannot set up {{pod}}: {why}"
        return _finding(pod, "sandbox", text, hint, sandbox.first, healable=True)
    if done is not None and done.reason == "Pulling":
        text = f"image {_image(pod)} is being pulled for {{who}}"
        hint = "a large one takes minutes the first time on a node"
        return _finding(pod, "pulling", text, hint, done.last, healable=True)
    scheduled = pod.status.condition("PodScheduled")
    bound = moment(scheduled.last_transition_time) if scheduled is not None else None
    if pod.status.start_time or bound is None or now - bound < _SILENCE:
        return None
    text = f"{node_name(pod).removeprefix('its ')} has not taken up {{pod}} yet"
    hint = f"is the node well? `kubectl describe {node_name(pod).removeprefix('its ')}`"
    return _finding(pod, "silent", text, hint, bound, healable=True)


def _mount(pod: Pod, mount: ClusterEvent) -> Finding:
    named = _VOLUME.search(mount.message)
    what = _volume_named(pod, named["name"]) if named else "a volume"
    hint = f"`kubectl describe pod {pod.metadata.name}` has more"
    if "Multi-Attach" in mount.message:
        text = f"{what} is in use on another node, and cannot be mounted for {{who}} as well"
        hint = "a claim for several nodes needs the access mode ReadWriteMany; or wait until it is let go"
        return _finding(pod, "attach", text, hint, mount.first, healable=True)
    if found := _REFERENCE.search(mount.message):
        text = f"{what} has no key {found['key']}, and cannot be mounted for {{who}}"
        return _finding(pod, "mount", text, "add the key, or mount another", mount.first)
    if found := _OBJECT.search(mount.message):
        text = f"{found['kind']} {found['name']}, which {{who}} would mount, does not exist in the namespace"
        hint = f"make it (`kubectl create {_created(**found.groupdict())}`), or mount another with --mount"
        return _finding(pod, "mount", text, hint, mount.first)
    why = mount.message.partition(" : ")[2] or mount.message
    kind: Kind = "mount" if mount.reason != "FailedAttachVolume" and _FOR_GOOD.search(why) else "attach"
    return _finding(pod, kind, f"{what} cannot be mounted for {{who}}: {why}", hint, mount.first)


def _volume_named(pod: Pod, name: str) -> str:
    """A volume as the user gave it to --mount."""
    for volume in pod.spec.volumes:
        claim = volume.persistent_volume_claim
        if claim is not None and (volume.name == name or name.startswith("pvc-")):
            return f"volume claim {claim.claim_name}"
        if volume.name != name:
            continue
        if volume.nfs is not None:
            return f"nfs:{volume.nfs.server}:{volume.nfs.path}"
        if volume.host_path is not None:
            return f"hostPath:{volume.host_path.path}"
        if volume.config_map is not None:
            return f"configmap {volume.config_map.name}"
        if volume.secret is not None:
            return f"secret {volume.secret.secret_name}"
    return f"volume {name}"


def _created(kind: str, name: str) -> str:
    return f"{'secret generic' if kind == 'secret' else 'configmap'} {quote(name)} ..."


def _image(pod: Pod) -> str:
    return worker_container(pod.spec).image


def _first(pod: Pod, events: Sequence[ClusterEvent], reason: str) -> float | None:
    return _since(pod, [each for each in events if each.reason == reason])


def _since(pod: Pod, events: Sequence[ClusterEvent]) -> float | None:
    """When it was first reported; without events, when the kubelet took up the pod."""
    begun = moment(pod.status.start_time)
    return min((each.first for each in events), default=begun)


def _finding(
    pod: Pod, kind: Kind, text: str, hint: str, since: float | None, *, healable: bool = False
) -> Finding:
    return Finding(kind=kind, text=text, workers=(worker_of(pod),), hint=hint, healable=healable, since=since)
