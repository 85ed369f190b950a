"""What a manifest refers to and does not hold: a runtime in the cluster, what an image starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from echelon.values import frozen

Words = tuple[str, ...]


def _no_runtime(_kind: str, _name: str) -> Mapping[str, Any] | None:
    return None


def _no_start(_image: str) -> tuple[Words, Words] | None:
    return None


@frozen
class Outside:
    """Where to look. `find_runtime` has the kind and the name of a training runtime; `find_start` has an
    image's name, and finds its entrypoint and its arguments, None where they cannot be known.
    """

    find_runtime: Callable[[str, str], Mapping[str, Any] | None] = _no_runtime
    find_start: Callable[[str], tuple[Words, Words] | None] = _no_start


NOWHERE = Outside()
