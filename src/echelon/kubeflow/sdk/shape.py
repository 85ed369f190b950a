"""Objects with the attributes of Kubeflow's and Kubernetes' Python models, made of plain documents, and back.
Neither library is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_BY_NAME = frozenset(
    {
        "annotations",
        "labels",
        "limits",
        "nodeSelector",
        "pytorchReplicaSpecs",
        "replicaStatuses",
        "requests",
        "tfReplicaSpecs",
        "jaxReplicaSpecs",
        "mpiReplicaSpecs",
        "xgbReplicaSpecs",
    }
)
"""Fields whose keys are names that users chose: they stay dicts."""


class Shape:
    """A document whose fields are attributes in snake case; a field that it lacks is None. Fields that are
    set change the document, those of inner objects too.
    """

    _document: dict[str, Any]

    def __init__(self, document: Mapping[str, Any]) -> None:
        made = document if isinstance(document, dict) else dict(document)
        object.__setattr__(self, "_document", made)

    def __setattr__(self, name: str, value: Any) -> None:
        key = next((each for each in self._document if _snake(each) == name), _camel(name))
        self._document[key] = as_document(value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        for key, value in self._document.items():
            if _snake(key) == name:
                return _shaped(key, value)
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and other._document == self._document

    __hash__ = None  # type: ignore[assignment]  # as a dict has none

    def __dir__(self) -> Iterator[str]:
        return iter(["to_dict", *map(_snake, self._document)])

    def __repr__(self) -> str:
        return f"{self._document.get('kind', 'Shape')}({self._document!r})"

    def to_dict(self) -> dict[str, Any]:
        """The same with keys in snake case, as Kubeflow's models give it."""
        return {_snake(key): _plain(_shaped(key, value)) for key, value in self._document.items()}


def as_document(value: Any) -> Any:
    """The document of a model (of Kubeflow's or Kubernetes' library), a Shape, or plain data."""
    if isinstance(value, Shape):
        return value._document  # noqa: SLF001 - its own class
    if isinstance(value, Mapping):
        return {key: as_document(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [as_document(each) for each in value]
    names = getattr(value, "attribute_map", None)
    if isinstance(names, Mapping):
        fields = {key: getattr(value, name, None) for name, key in names.items()}
        return {key: as_document(each) for key, each in fields.items() if each is not None}
    return value


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def _shaped(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        if key in _BY_NAME and not any(isinstance(each, Mapping) for each in value.values()):
            return value
        if key in _BY_NAME:
            return {name: Shape(each) if isinstance(each, Mapping) else each for name, each in value.items()}
        return Shape(value)
    if isinstance(value, list):
        return [Shape(each) if isinstance(each, Mapping) else each for each in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Shape):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
