"""A pod template of the user: what it may contain, and how it is merged with echelon's own pod. Pure.

Kubernetes has more settings than echelon has opinions. A template passes them through untouched (annotations,
tolerations, security, volumes, containers beside the ranks'). Where both set something, echelon's pod holds,
since the agent must be able to live in it; what would be lost that way without a trace is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from echelon.errors import InvalidJob

CONTAINER = "worker"
"""The container of the agent and the ranks; a template's other containers run beside it."""

_SETTINGS = {
    "image": "image: of the role, or --image",
    "command": "command: of the role",
    "args": "args: of the role",
    "resources": "gpus:, cpus: and memory: of the role, which placement knows",
}
_NAMES = ("mountPath", "name")  # by which an item of a list is known: a volume may be mounted twice
_WHOLE = ("seccompProfile",)  # mappings of which half is no use


def check_template(where: str, template: Mapping[str, Any]) -> None:
    """Raise InvalidJob for what is no pod template, and for what echelon has a setting for."""
    for key, part in template.items():
        if key not in ("metadata", "spec") or not isinstance(part, Mapping):
            hint = "as in a pod: metadata: {...} and spec: {...}"
            raise InvalidJob(where, key, "is not part of a pod template", hint=hint)
    spec = template.get("spec", {})
    affinity = spec.get("affinity")
    if isinstance(affinity, Mapping) and "nodeAffinity" in affinity:
        raise InvalidJob(
            where, "nodeAffinity", "is set by echelon itself", hint="say nodeSelector, or --node-selector"
        )
    containers = spec.get("containers", [])
    if not isinstance(containers, Sequence) or not all(
        isinstance(each, Mapping) and each.get("name") for each in containers
    ):
        hint = f"each has a name; {CONTAINER!r} is the ranks', the others run beside it"
        raise InvalidJob(where, "containers", "is not a list of containers", hint=hint)
    for container in containers:
        for key, instead in _SETTINGS.items() if container["name"] == CONTAINER else ():
            if key in container:
                raise InvalidJob(
                    where, f"{CONTAINER}: {key}", "is set by echelon itself", hint=f"say {instead}"
                )


def merge_under(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Both descriptions in one; where they differ, ours holds.

    Mappings are merged key by key. In lists ours come first; of theirs, what ours do not name follows. Only
    containers are merged with their namesakes: half a volume and half of another would be none."""
    merged = dict(ours)
    for key, value in theirs.items():
        mine = ours.get(key)
        if key not in ours:
            merged[key] = value
        elif isinstance(mine, Mapping) and isinstance(value, Mapping) and key not in _WHOLE:
            merged[key] = merge_under(value, mine)
        elif isinstance(mine, list) and isinstance(value, Sequence):
            named = [_name(each) for each in mine]
            others = [each for each in value if _name(each) not in named]
            if key == "containers":
                namesakes = {each["name"]: each for each in value}
                mine = [merge_under(namesakes.get(each["name"], {}), each) for each in mine]
            merged[key] = [*mine, *others]
    return merged


def _name(item: Any) -> Any:
    """What identifies an item of a list: its name, or all of it."""
    if not isinstance(item, Mapping):
        return item
    return next((item[key] for key in _NAMES if key in item), item)
