"""The border between the API server's objects and the rest of the engine: what every object looks like.

Any user with rights in the namespace may have written an object, and what stands between here and the API
server may answer for it. Behind this border a field that the engine reads has the type that the API gives
it, or it is missing, which every reader copes with. What a text says is not checked here: its readers do
(`record` for records). Pure.

Objects with a shape of their kind (`shapes`, `pods`) are read into it at once (`decode`): one with a field of
another type is damaged, and hides no other. Others stay dictionaries (`admit`): what is of another type is
taken out, `metadata`, `spec` and `status` are always there, an entry of a list without what it is known by is
left out, and so is an object without a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from echelon.engines.decoding import convert, decoder_of
from echelon.errors import Refused

T = TypeVar("T")
Object = dict[str, Any]
Shape = Any  # a type, AMOUNT, a list with the shape of its entries, a mapping of fields, or an `Each`

_LARGEST = 2**63 - 1  # the largest number that the API knows


class Damaged(Refused):
    """An object that is not as its kind is."""


class Each(dict[str, Shape]):
    """The shape of a mapping with any keys: of labels, annotations, amounts."""


_ABSENT = object()
_AMOUNT = (str, int, float)
_TEXTS = Each(values=str)
_AMOUNTS = Each(values=_AMOUNT)

# A field with ! at its end is what an entry is known by: without it there is none.
_META: Shape = {
    "name!": str,
    "namespace": str,
    "uid": str,
    "resourceVersion": str,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "finalizers": [str],
    "ownerReferences": [{"uid!": str, "kind": str, "name": str, "apiVersion": str, "controller": bool}],
}
_NAMED: Shape = [{"name!": str}]
_CONDITIONS: Shape = [{"type!": str, "status": str, "reason": str, "message": str, "lastTransitionTime": str}]
_RESOURCES: Shape = {"requests": _AMOUNTS, "limits": _AMOUNTS}
_SELECTOR_TERMS: Shape = [{"matchExpressions": [{"key!": str, "operator": str, "values": [str]}]}]
_POD: Shape = {
    "nodeName": str,
    "containers": [
        {
            "name!": str,
            "image": str,
            "env": [{"name!": str, "value": str}],
            "resources": _RESOURCES,
        }
    ],
    "resources": _RESOURCES,
    "volumes": [
        {
            "name!": str,
            "persistentVolumeClaim": {"claimName!": str},
            "nfs": {"server": str, "path": str},
            "hostPath": {"path": str},
            "configMap": {"name": str},
            "secret": {"secretName": str},
        }
    ],
    "schedulingGates": _NAMED,
    "imagePullSecrets": _NAMED,
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str}],
    "nodeSelector": _TEXTS,
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _SELECTOR_TERMS}
        }
    },
}
_LABEL_SELECTOR: Shape = {
    "matchLabels": _TEXTS,
    "matchExpressions": [{"key!": str, "operator": str, "values": [str]}],
}
_PEERS: Shape = [
    {
        "podSelector": _LABEL_SELECTOR,
        "namespaceSelector": _LABEL_SELECTOR,
        "ipBlock": {"cidr": str, "except": [str]},
    }
]
_PORTS: Shape = [{"port": (int, str), "endPort": int, "protocol": str}]
_REVIEW = "SelfSubjectReview"  # a question to the API server, whose answer has no name
_KUBEFLOW: Shape = {
    "spec": {"runPolicy": {"suspend": bool, "ttlSecondsAfterFinished": int}},
    "status": {"conditions": _CONDITIONS, "startTime": str},
}
_SHAPES: Mapping[str, Shape] = {
    "ConfigMap": {"data": _TEXTS},
    "Deployment": {"spec": {"template": {"spec": _POD}}, "status": {"readyReplicas": int}},
    "EndpointSlice": {"endpoints": [{"addresses": [str], "conditions": {"ready": bool}}], "ports": _PORTS},
    **dict.fromkeys(("PyTorchJob", "TFJob", "MPIJob"), _KUBEFLOW),
    "TrainJob": {
        "spec": {"suspend": bool},
        "status": {"conditions": _CONDITIONS, "jobsStatus": _NAMED},
    },
    "Job": {
        "spec": {"suspend": bool, "completions": int, "template": {"spec": _POD}},
        "status": {"conditions": _CONDITIONS, "startTime": str},
    },
    "LimitRange": {
        "spec": {
            "limits": [
                {
                    "type": str,
                    "max": _AMOUNTS,
                    "min": _AMOUNTS,
                    "default": _AMOUNTS,
                    "defaultRequest": _AMOUNTS,
                }
            ]
        }
    },
    "NetworkPolicy": {
        "spec": {
            "podSelector": _LABEL_SELECTOR,
            "policyTypes": [str],
            "ingress": [{"from": _PEERS, "ports": _PORTS}],
            "egress": [{"to": _PEERS, "ports": _PORTS}],
        }
    },
    "ResourceQuota": {"spec": {"hard": _AMOUNTS}, "status": {"hard": _AMOUNTS, "used": _AMOUNTS}},
    _REVIEW: {"status": {"userInfo": {"username": str}}},
}


def decode(content: bytes | msgspec.Raw, shape: type[T]) -> T:
    """The object that the server wrote, in its shape: what the shape does not name is skipped, and
    a null is a field that is not there, as it is to the server. Raises Damaged for an object with a field of
    another type, or without one that it must have, and msgspec's errors for what is no JSON.
    """
    try:
        return decoder_of(shape).decode(content)
    except msgspec.ValidationError:
        return shaped(msgspec.json.decode(content), shape)


def shaped(obj: object, shape: type[T]) -> T:
    """The same of an object that was parsed before."""
    try:
        found: T = convert(_without_nulls(obj), shape, strict=True)
    except msgspec.ValidationError as error:
        raise Damaged(
            f"an object of the API server is not as its kind, {shape.__name__}, is: {error}",
            hint="was it written for another version of what defines it?",
        ) from None
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value if each is not None] if isinstance(value, list) else value


def fit(value: Any, shape: Shape) -> Any:
    """A value without what has another type than the shape says; None if it is of another type itself."""
    found = _fit(value, shape)
    return None if found is _ABSENT else found


def admit(kind: str, obj: object) -> Object | None:
    """An object of that kind as the rest of the engine reads it; None if it has no name. Changes `obj`."""
    own = _SHAPES.get(kind, {})
    about = {} if kind == _REVIEW else {"metadata!": _META}
    if not isinstance(obj, dict) or _fit_fields(obj, {**about, **own}) is _ABSENT:
        return None
    if about:
        obj["metadata"].setdefault("uid", obj["metadata"]["name"])
    for part in ("spec", "status"):
        if part in own:
            obj.setdefault(part, {})
    return obj


def admit_all(kind: str, objects: Iterable[object]) -> list[Object]:
    """Those of the objects that have a name."""
    return [found for each in objects if (found := admit(kind, each)) is not None]


def _fit(value: object, shape: Shape) -> object:
    """The value without what has another type; `_ABSENT` if it is of another type itself."""
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _ABSENT
        return [fitting for each in value if (fitting := _fit(each, shape[0])) is not _ABSENT]
    if isinstance(shape, Each):
        return _fit_each(value, shape["values"])
    if isinstance(shape, dict):
        return _fit_fields(value, shape)
    wanted = shape if isinstance(shape, tuple) else (shape,)
    # A boolean is a number to Python, but not to the API.
    fits = isinstance(value, wanted) and (not isinstance(value, bool) or bool in wanted)
    fits = fits and not (isinstance(value, int | float) and abs(value) > _LARGEST)
    return value if fits else _ABSENT


def _fit_fields(value: object, shape: Mapping[str, Shape]) -> object:
    if not isinstance(value, dict):
        return _ABSENT
    for field, inner in shape.items():
        name = field.removesuffix("!")
        found = _fit(value[name], inner) if value.get(name) is not None else _ABSENT
        if found is not _ABSENT:
            value[name] = found
        elif name != field:
            return _ABSENT
        else:
            value.pop(name, None)
    return value


def _fit_each(value: object, shape: Shape) -> object:
    if not isinstance(value, dict):
        return _ABSENT
    return {key: each for key, each in value.items() if _fit(each, shape) is not _ABSENT}
