"""One short pod that shows whether an image can be pulled, has a Python, and resolves names.

The only check that creates something, and only when an image is named. It is a Job with a time to live, so
that Kubernetes removes it if the client cannot."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from echelon.engines.findings import mpi_finding
from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.diagnose import Trouble, diagnose
from echelon.engines.kubernetes.fields import json_object
from echelon.engines.kubernetes.state.workers import container_end, container_state
from echelon.errors import Denied, EchelonError, Unreachable
from echelon.model.engine.finding import Finding

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Api

Object = dict[str, Any]
_PATIENCE = 180.0  # seconds to pull a large image
_SURE = 3.0  # seconds that a problem must last before it counts
_PAUSE = 0.5
_OLDEST = (3, 8)  # the oldest Python that the agent supports
_JOB_NAME = "batch.kubernetes.io/job-name"
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
    name = f"echelon-doctor-{secrets.token_hex(4)}"
    try:
        api.create(probe_job(name, image, ["python3", "-c", _SCRIPT], _PATIENCE))
    except (Denied, EchelonError) as error:
        if isinstance(error, Unreachable):
            raise
        yield Finding(level="degraded", what="image", found=error.message, fix=f"--image: {error.hint}")
        return
    try:
        yield from _watch(api, name, image, time.monotonic() + _PATIENCE)
    finally:
        with suppress(EchelonError):  # its time to live removes it then
            api.delete("Job", name)


def _watch(api: Api, name: str, image: str, deadline: float) -> Iterator[Finding]:
    found = await_pod(api, name, deadline, lambda pod: container_end(pod) is not None)
    if isinstance(found, dict):
        yield from _judge(api, found, image)
    else:
        yield not_started(found, image)


def await_pod(
    api: Api, name: str, deadline: float, is_ready: Callable[[Object], bool]
) -> Object | Trouble | None:
    """The pod of a Job once it is ready, or what keeps it from starting; None if it took too long."""
    trouble: Trouble | None = None
    worried = 0.0
    while time.monotonic() < deadline:
        jobs = [job for job in [api.find("Job", name)] if job is not None]
        pods = api.list("Pod", selector=f"{_JOB_NAME}={name}").items
        if pods and is_ready(pods[-1]):
            return pods[-1]
        running = any(container_state(pod).get("running") for pod in pods)
        found = [] if running else diagnose(jobs=jobs, pods=pods, now=time.time(), events=_events(api, name))
        hopeless = next((each for each in found if not each.healable or each.kind == "unschedulable"), None)
        if hopeless is None or trouble is None or hopeless.sentence != trouble.sentence:
            trouble, worried = hopeless, time.monotonic()
        elif time.monotonic() - worried > _SURE:
            break
        time.sleep(_PAUSE)
    return trouble


def not_started(trouble: Trouble | None, image: str) -> Finding:
    """The line for a pod that did not start."""
    if trouble is not None:
        return Finding(
            level="degraded" if trouble.kind == "unschedulable" else "missing",
            what="image",
            found=trouble.sentence,
            fix=f"--image: {trouble.hint}",
        )
    return Finding(
        level="degraded",
        what="image",
        found=f"{image} was not there in time",
        fix="the first run waits for it too; a smaller image, or one on a nearer registry, comes faster",
    )


def _judge(api: Api, pod: Object, image: str) -> Iterator[Finding]:
    end = container_end(pod)
    assert end is not None
    said = json_object(b"".join(api.logs(pod["metadata"]["name"], container=names.CONTAINER)).decode())
    version = tuple(said.get("python") or ())
    pulled = [each for each in _events(api, pod["metadata"]["name"]) if each.reason == "Pulled"]
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


def probe_job(
    name: str, image: str, command: Sequence[str], patience: float, *, memory: str = "256Mi"
) -> Object:
    """A Job of one pod that runs a short script, and goes by itself."""
    own = {names.MANAGED_BY: "echelon", names.COMPONENT: "doctor", names.NO_SIDECAR: "false"}
    container = {
        "name": names.CONTAINER,
        "image": image,
        "command": list(command),
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"cpu": "1", "memory": memory},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    # The settings that the strictest Pod Security level requires; the script needs no more.
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": security,
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": own},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(patience) + 30,
            "ttlSecondsAfterFinished": 30,
            "template": {"metadata": {"labels": own}, "spec": spec},
        },
    }
