"""Fields that any object of the API may have: a condition, a time, a message. Pure.

Read here only, so that a missing field means the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from echelon.model.event import LONGEST, cut


def moment(text: object) -> float | None:
    """A time as Kubernetes writes it (`2026-01-31T12:00:00Z`, with or without fractions), in seconds."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def clock(text: object) -> str:
    """A time of day for messages, in UTC as in the cluster's logs."""
    at = moment(text)
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC") if at is not None else "an unknown time"


def one_line(text: object) -> str:
    """A message without line breaks and without its final full stop; the beginning of one that is too long
    for a message, as anybody may have written.
    """
    written = str(text or "")
    found = " ".join(written[: 2 * LONGEST].split()).rstrip(".")
    return cut(found) if len(written) <= 2 * LONGEST else f"{found[:LONGEST]}..."


def conditions(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions that hold."""
    found = (obj.get("status") or {}).get("conditions") or []
    return {each["type"]: each for each in found if each.get("status") == "True"}


def has_conditions(obj: Mapping[str, Any]) -> bool:
    """Whether a controller has written a condition, whether it holds or not."""
    return bool((obj.get("status") or {}).get("conditions"))


def annotation(obj: Mapping[str, Any], name: str) -> str:
    """An annotation of an object; "" if it has none of that name."""
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))


def below(obj: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """What an object that others wrote has below these keys; nothing where that is no object."""
    found: object = obj
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def whole_number(text: object) -> int | None:
    """A count or a number of something, as annotations and variables write it; None for anything else."""
    written = str(text)
    return int(written) if written.isascii() and written.isdecimal() and len(written) <= 9 else None


def json_object(text: str) -> dict[str, Any]:
    """The JSON object in a text; an empty one if the text is anything else, or has what no JSON may have."""
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
