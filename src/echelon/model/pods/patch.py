"""A patch of the user's on the pods of a run: Kubernetes' strategic merge, and what it must leave alone.

A pod template (`template.py`) is merged under echelon's pod; a patch is applied last, over it, for what
echelon does not know or decides otherwise. What the agent needs to live and what echelon finds its pods by is
refused by its name, before anything is made. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from echelon.errors import InvalidJob
from echelon.model.pods.pod import OURS, is_reserved
from echelon.model.pods.template import CONTAINER

LIST_KEYS = {
    "containers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""By which field the items of a list are known to Kubernetes. Any other list is replaced as a whole."""
_DIRECTIVE = "$patch"
VOLUMES = ("bundle", "secret", "work")
"""Volumes of echelon's own, without which no agent starts."""
_FIXED = {
    "image": "say --image",
    "command": "say -- COMMAND",
    "args": "arguments go after the script",
    "resources": "say --cpus, --memory, --gpus or --resource, which placement knows",
    "terminationMessagePath": "the agent leaves the cause of a failure there",
    "terminationMessagePolicy": "the agent leaves the cause of a failure there",
}
_OWN_VARIABLES = "ECHELON_"


def apply_patch(patch: Mapping[str, Any], onto: Mapping[str, Any]) -> dict[str, Any]:
    """The object after the patch: null removes a key, `$patch: delete` an item of a list that has a key."""
    if patch.get(_DIRECTIVE) == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    made = dict(onto)
    for key, value in patch.items():
        before = made.get(key)
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping):
            made[key] = apply_patch(value, before if isinstance(before, Mapping) else {})
        elif key in LIST_KEYS and isinstance(value, Sequence) and isinstance(before, Sequence):
            made[key] = _merged(LIST_KEYS[key], value, before)
        else:
            made[key] = value
    return made


def _merged(key: str, patch: Sequence[Any], onto: Sequence[Any]) -> list[Any]:
    if any(isinstance(each, Mapping) and each.get(_DIRECTIVE) == "replace" for each in patch):
        return [each for each in patch if _DIRECTIVE not in each]
    made = list(onto)
    for each in patch:
        at = next((at for at, mine in enumerate(made) if mine.get(key) == each.get(key)), None)
        if each.get(_DIRECTIVE) == "delete":
            made = [mine for number, mine in enumerate(made) if number != at]
        elif at is None:
            made.append(each)
        else:
            made[at] = apply_patch(each, made[at])
    return made


def check_patch(where: str, patch: Mapping[str, Any]) -> None:
    """Raise InvalidJob for what is no patch of a pod template, and for what must stay as echelon sets it."""
    for key, part in patch.items():
        if key not in ("metadata", "spec") or not isinstance(part, Mapping):
            hint = "as in a pod: metadata: {...} and spec: {...}"
            raise InvalidJob(where, key, "is not part of a pod template", hint=hint)
    about, spec = patch.get("metadata", {}), patch.get("spec", {})
    for kind in ("labels", "annotations"):
        for key in about.get(kind) or {}:
            if is_reserved(key):
                raise _refused(where, f"metadata.{kind}: {key}", "echelon finds its pods by it")
    for key, its_key in LIST_KEYS.items():
        _check_items(where, key, its_key, spec)
    after = apply_patch(patch, _SKELETON).get("spec") or {}
    before = _SKELETON["spec"]
    if after.get("restartPolicy") != before["restartPolicy"]:
        raise _refused(where, "spec.restartPolicy", "the Job replaces pods, the agent restarts ranks")
    for name in VOLUMES:
        if _named(after.get("volumes"), name) != _named(before["volumes"], name):
            raise _refused(where, f"spec.volumes: {name}", "it is echelon's own")
    worker = _named(after.get("containers"), CONTAINER)
    if worker is None:
        raise _refused(where, f"spec.containers: {CONTAINER}", "the ranks run in it")
    _check_worker(where, worker, before["containers"][0])


def _check_worker(where: str, worker: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    for key, hint in _FIXED.items():
        if worker.get(key) != own.get(key):
            raise _refused(where, f"{CONTAINER}: {key}", hint)
    for each in worker.get("env") or []:
        if str(each.get("name")).startswith(_OWN_VARIABLES) and each not in own["env"]:
            raise _refused(where, f"{CONTAINER}: env: {each['name']}", "say --env for the ranks' variables")
    if own["env"][0] not in (worker.get("env") or []):
        raise _refused(where, f"{CONTAINER}: env", "echelon's own variables are in it")
    mounts = worker.get("volumeMounts") or []
    below = [each for each in mounts if f"{each.get('mountPath')}/".startswith(f"{OURS}/")]
    if below != own["volumeMounts"]:
        raise _refused(where, f"{CONTAINER}: volumeMounts: {OURS}", "it is echelon's own")


def _check_items(where: str, key: str, its_key: str, part: Mapping[str, Any]) -> None:
    """Every item of a list that is merged has its key; the lists in containers too."""
    items = part.get(key)
    if items is None:
        return
    good = isinstance(items, Sequence) and not isinstance(items, str)
    if not good or not all(
        isinstance(each, Mapping) and (its_key in each or _DIRECTIVE in each) for each in items
    ):
        raise InvalidJob(where, key, f"is not a list of items with {its_key}:", hint="as in a pod's spec")
    for each in items if key.lower().endswith("containers") else ():
        for inner in ("env", "ports", "volumeDevices", "volumeMounts"):
            _check_items(where, inner, LIST_KEYS[inner], each)


def _refused(where: str, what: str, why: str) -> InvalidJob:
    return InvalidJob(where, what, "must stay as echelon sets it", hint=why)


def _named(items: Any, name: str) -> Any:
    return next((each for each in items or [] if each.get("name") == name), None)


_OWN = {"own": True}  # stands for any value of echelon's
_SKELETON: dict[str, Any] = {
    "spec": {
        "restartPolicy": _OWN,
        "containers": [
            {
                "name": CONTAINER,
                **{key: _OWN for key in _FIXED if key != "args"},
                "env": [{"name": _OWN_VARIABLES, **_OWN}],
                "volumeMounts": [{"mountPath": OURS, **_OWN}],
            }
        ],
        "volumes": [{"name": name, **_OWN} for name in VOLUMES],
    }
}
