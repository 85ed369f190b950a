"""Objects that tests write by hand, as the API server's answers are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from echelon.engines.kubernetes.client.border import decode
from echelon.engines.kubernetes.pods import Pod

T = TypeVar("T")


def typed(shape: type[T], objects: Iterable[Mapping[str, Any]]) -> list[T]:
    """These objects in their shape."""
    return [decode(msgspec.json.encode(each), shape) for each in objects]


def as_pod(obj: Mapping[str, Any]) -> Pod:
    """A pod that was written by hand."""
    return typed(Pod, [obj])[0]
