"""A notebook server as Kubernetes objects. Pure.

The Job is made first. The Secret belongs to it and goes with it; the claim stays, with the user's files. A
pod that is lost with its node is replaced by the Job controller."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from typing import Any

import msgspec

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.one_pod import job_object, metadata
from echelon.engines.kubernetes.render.manifests import owner_reference
from echelon.engines.kubernetes.render.pod import (
    chosen_by_user,
    resources_of,
    security_context,
    tolerations_of,
)
from echelon.engines.kubernetes.render.volumes import Mounted, new_claim, quantity, user_volumes
from echelon.engines.notebook_servers import ServerSettings
from echelon.errors import InvalidJob
from echelon.model.pods.pod import Mount, PodOptions
from echelon.values import frozen

Object = dict[str, Any]

NO_JUPYTER = 64  # the exit code of a server whose image has none
_GROUP = 1000  # owns the files, so that any user of an image can write them
_FAILURES = 6  # of the pod, before the Job controller makes no other
_AWAY = 300  # seconds before a pod on a node that is silent is replaced: kernels have state
_TERMINATION = 30  # seconds for kernels to end
_TOKEN_DIR = f"{names.ROOT}/token"
_RUNTIME_DIR = f"{names.ROOT}/runtime"  # where Jupyter writes the token too: it goes with the pod
# The image's own Jupyter, in the order of preference.
_START = f"""\
import importlib.util, os, sys
there = [name for name in ("jupyterlab", "notebook", "jupyter_server") if importlib.util.find_spec(name)]
if not there:
    print("the image has no Jupyter: none of jupyterlab, notebook and jupyter_server", file=sys.stderr)
    sys.exit({NO_JUPYTER})
flags = ["--ip=127.0.0.1", "--port={names.NOTEBOOK_PORT}", "--no-browser", "--allow-root"]
os.execv(sys.executable, [sys.executable, "-m", there[0], *flags, "--ServerApp.port_retries=0"])
"""


@frozen
class Surrounding:
    """What the cluster and the user's login add to what is asked for."""

    owner: str
    gpu_resource: str
    level: str = ""  # of Pod Security, that the namespace enforces
    claim: str = ""  # the uid of the claim for the files, if it is known to be made for them


def claim_object(name: str, asked: ServerSettings, owner: str) -> Object | None:
    """The claim for the server's files, if one is to be made."""
    files = asked.files
    if files is None or files.claim is not None:
        return None
    about = {**_about(name, asked.pod, owner), "name": names.server_claim(name)}
    return new_claim(about, mode="ReadWriteOnce", size=files.size, storage_class=files.storage_class)


def server_object(name: str, asked: ServerSettings, around: Surrounding) -> Object:
    """The Job whose pod is the server."""
    about = _about(name, asked.pod, around.owner)
    # A pod that the cluster took away counts as no failure.
    taken_away = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    made = job_object(
        about,
        _container(name, asked, around),
        level=around.level,
        pod=_pod_spec(name, asked, around),
        job={"backoffLimit": _FAILURES, "podFailurePolicy": {"rules": [taken_away]}},
        notes={names.STAYS: "false"},
    )
    claim = {names.CLAIM_UID: around.claim} if around.claim else {}
    notes = {**about["annotations"], names.ASKED: digest_of(asked), **claim}
    return {**made, "metadata": {**about, "annotations": notes}}


def secret_object(name: str, owner: str, job: Object, token: str) -> Object:
    """The Secret with the token, which goes with the Job."""
    made = _secret(name, owner)
    made["metadata"]["ownerReferences"] = [owner_reference(job)]
    made["data"] = {names.TOKEN_KEY: base64.b64encode(token.encode()).decode()}
    return made


def previewed(name: str, asked: ServerSettings, around: Surrounding) -> list[Object]:
    """Everything that would be made; the token is only named."""
    secret = _secret(name, around.owner)
    secret["metadata"]["annotations"][names.OMITTED] = names.TOKEN_KEY
    claim = claim_object(name, asked, around.owner)
    return [*([claim] if claim is not None else []), server_object(name, asked, around), secret]


def token_of(secret: Object) -> str:
    """The token in the Secret; "" if there is none."""
    written = (secret.get("data") or {}).get(names.TOKEN_KEY)
    return base64.b64decode(written).decode(errors="replace") if isinstance(written, str) else ""


def digest_of(asked: ServerSettings) -> str:
    """What was asked for, in short: a server that was made for something else has another. What is not given
    does not count, so that a later version with more settings finds the same.
    """
    given = _given(msgspec.to_builtins(asked))
    return hashlib.sha256(msgspec.json.encode(given, order="sorted")).hexdigest()[:16]


def _given(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: found for key, each in value.items() if (found := _given(each))}


def _secret(name: str, owner: str) -> Object:
    about = _about(name, PodOptions(), owner)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "immutable": True}


def _about(name: str, options: PodOptions, owner: str) -> Object:
    return metadata(names.server_name(name), names.NOTEBOOK, owner, options)


def _container(name: str, asked: ServerSettings, around: Surrounding) -> Object:
    options, need = asked.pod, asked.resources
    if options.image is None:
        raise InvalidJob("image", None, "must be given", hint="--image with one that has Jupyter in it")
    env = {
        "HOME": names.NOTEBOOK_HOME,  # what is installed or configured there stays, for any user of an image
        "JUPYTER_TOKEN_FILE": f"{_TOKEN_DIR}/{names.TOKEN_KEY}",
        "JUPYTER_RUNTIME_DIR": _RUNTIME_DIR,
        # CUDA images ask for all GPUs of the node, and without a device plugin in between they get them.
        **({} if need.gpus or need.other else {"NVIDIA_VISIBLE_DEVICES": "void"}),
        **asked.env,
    }
    return {
        "image": options.image,
        "imagePullPolicy": "Always" if options.pull == "always" else "IfNotPresent",
        "command": ["python3", "-c", _START],
        "workingDir": names.NOTEBOOK_HOME,
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": resources_of(need, around.gpu_resource),
        "volumeMounts": [
            {"name": "token", "mountPath": _TOKEN_DIR, "readOnly": True},
            {"name": "runtime", "mountPath": _RUNTIME_DIR},
            {"name": "shm", "mountPath": names.SHM},
            *_volumes_of_user(name, asked).mounts,
        ],
    }


def _pod_spec(name: str, asked: ServerSettings, around: Surrounding) -> Object:
    options = asked.pod
    shm = {} if options.shm is None else {"sizeLimit": quantity(options.shm)}
    return {
        "terminationGracePeriodSeconds": _TERMINATION,
        "automountServiceAccountToken": options.service_account is not None,
        "securityContext": {**security_context(around.level), "fsGroup": _GROUP},
        "tolerations": list(tolerations_of(options, [asked.resources], around.gpu_resource, away=_AWAY)),
        "volumes": [
            {"name": "token", "secret": {"secretName": names.server_name(name), "defaultMode": 0o440}},
            {"name": "runtime", "emptyDir": {"medium": "Memory"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", **shm}},
            *_volumes_of_user(name, asked).volumes,
        ],
        **chosen_by_user(options),
    }


def _volumes_of_user(name: str, asked: ServerSettings) -> Mounted:
    """What the user mounts, with the server's folder among it, so that a claim is named once."""
    files, mounts = asked.files, asked.pod.mounts
    if any(mount.path == names.NOTEBOOK_HOME for mount in mounts):
        return user_volumes(asked.pod, names.server_name(name))
    if files is None:
        home = Mount(kind="emptydir", source="", path=names.NOTEBOOK_HOME)
    else:
        claim = files.claim or names.server_claim(name)
        source = f"{claim}/{files.path}" if files.path else claim
        home = Mount(kind="pvc", source=source, path=names.NOTEBOOK_HOME)
    return user_volumes(replace(asked.pod, mounts=(home, *mounts)), names.server_name(name))
