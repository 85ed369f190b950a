"""One short pod that shows whether an image can be pulled, has a Python, and resolves names.

The only check that creates something, and only when an image is named. It is a Job with a time to live, so
that Kubernetes removes it if the client cannot."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from echelon.engines.base import current_user
from echelon.engines.findings import mpi_finding
from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.fields import json_object
from echelon.engines.kubernetes.one_pod import OnePod, Patience, job_object, metadata
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state.workers import container_end
from echelon.errors import Denied, EchelonError, Refused, Unreachable
from echelon.model.engine.finding import Finding

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api

Object = dict[str, Any]
_PATIENCE = 180.0  # seconds to pull a large image
_SURE = 3.0  # seconds that a problem must last before it counts
_OLDEST = (3, 8)  # the oldest Python that the agent supports
_SCRIPT = """
import json, shutil, socket, subprocess, sys
try:
    named = bool(socket.getaddrinfo("kubernetes.default.svc", 443))
except OSError:
    named = False
mpi = shutil.which("mpirun")
if mpi is not None:
    try:
        mpi = subprocess.check_output([mpi, "--version"], stderr=subprocess.DEVNULL, timeout=20)
        mpi = mpi.decode("utf-8", "replace")[:2000]
    except (OSError, subprocess.SubprocessError):
        mpi = ""
print(json.dumps({"python": list(sys.version_info[:3]), "names": named, "mpi": mpi}))
"""


def probe_image(api: Api, image: str) -> Iterator[Finding]:
    """Pull the image in a pod and report the result. Nothing stays behind."""
    about = metadata(f"echelon-doctor-{secrets.token_hex(4)}", names.DOCTOR, current_user())
    command = ["python3", "-c", _SCRIPT]
    pod = OnePod(api, "a pod with the image", patience(_PATIENCE))
    try:
        ended = pod.make(lambda level: probe_object(about, image, command, _PATIENCE, level), has_ended)
        yield from _judge(api, ended, image)
    except Unreachable:
        raise
    except EchelonError as error:
        yield not_started(error)
    finally:
        with suppress(EchelonError):  # its time to live removes it then
            pod.remove()


def patience(whole: float) -> Patience:
    """A check-up does not wait until somebody has mended what is wrong, or until others have ended."""
    return Patience(whole=whole, stuck=_SURE, kinds=("unschedulable",), hopeless=_SURE)


def has_ended(pod: Pod) -> bool:
    """Whether the script in a pod has ended."""
    return container_end(pod) is not None


def not_started(error: EchelonError) -> Finding:
    """The line for a pod that did not start."""
    return Finding(
        level="missing" if isinstance(error, Refused) else "degraded",
        what="image",
        found=error.message,
        fix=f"--image: {error.hint}",
    )


def _judge(api: Api, pod: Pod, image: str) -> Iterator[Finding]:
    end = container_end(pod)
    assert end is not None
    said = json_object(b"".join(api.logs(pod.metadata.name, container=names.CONTAINER)).decode())
    version = tuple(said.get("python") or ())
    pulled = [each for each in _events(api, pod.metadata.name) if each.reason == "Pulled"]
    took = re.search(r"in ([\d.]+m?s)", pulled[-1].message) if pulled else None
    how = f", pulled in {took[1]}" if took else ", on the node already" if pulled else ""
    if not version:
        yield Finding(
            level="missing",
            what="image",
            found=f"{image} is there, but python3 does not start in it: {end.message or end.reason}",
            fix="runs with this image: use one with Python 3.8 or later, or name its Python with --python",
        )
        return
    named = ".".join(map(str, version))
    if version < _OLDEST:
        fix = "runs with this image: use one with Python 3.8 or later"
        yield Finding(level="missing", what="image", found=f"{image} has Python {named}", fix=fix)
    else:
        yield Finding(level="ok", what="image", found=f"{image}, Python {named}{how}")
        yield mpi_finding(said.get("mpi"), place="in the image")
    if said.get("names"):
        yield Finding(level="ok", what="DNS", found="a pod finds kubernetes.default.svc")
    else:
        yield Finding(
            level="missing",
            what="DNS",
            found="a pod does not find kubernetes.default.svc",
            fix="runs with several workers: kubectl -n kube-system get pods -l k8s-app=kube-dns",
        )


def _events(api: Api, name: str) -> list[shapes.Event]:
    """The events of the Job and of its pod, whose name begins with the Job's."""
    try:
        found = api.list_shapes("Event", shapes.Event)
    except Denied:
        return []
    return [each for each in found if each.involved_object.name.startswith(name)]


def probe_object(
    about: Object,
    image: str,
    command: Sequence[str],
    seconds: float,
    level: str,
    *,
    memory: str = "256Mi",
    env: Sequence[Object] = (),
    **pod: object,
) -> Object:
    """A Job of one pod that runs a short script, and goes by itself; `pod` are further fields of the pod."""
    container = {
        "image": image,
        "command": list(command),
        "env": list(env),
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"cpu": "1", "memory": memory},
        },
    }
    ends = {"activeDeadlineSeconds": int(seconds) + 30, "ttlSecondsAfterFinished": 30}
    pod = {"terminationGracePeriodSeconds": 1, **pod}
    return job_object(about, container, level=level, pod=pod, job=ends)
