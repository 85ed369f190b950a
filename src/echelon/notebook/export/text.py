"""Objects of Kubernetes as YAML that every reader understands alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

_BOOLEANS_OF_SOME = frozenset("yYnN")  # Kubernetes' own reader takes them for true and false


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - none: a person reads it
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if text in _BOOLEANS_OF_SOME else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """One document for each object."""
    text = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )
    assert isinstance(text, str)
    return text
