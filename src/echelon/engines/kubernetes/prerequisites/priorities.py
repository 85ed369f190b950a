"""The highest priority that counts in a namespace: an administrator writes it there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echelon.engines.kubernetes import names


def most_priority(namespace: Mapping[str, Any] | None) -> int | None:
    """What a namespace's annotation says; None if it says nothing that can be read."""
    about = (namespace or {}).get("metadata") or {}
    try:
        return int((about.get("annotations") or {})[names.MOST_PRIORITY])
    except (KeyError, TypeError, ValueError):
        return None
