"""The administrator's rules for the queue, from the manager's ConfigMap. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echelon.engines.kubernetes import names
from echelon.errors import InvalidJob
from echelon.model.queue import OVERTAKE, Limits, Rules
from echelon.model.resources import parse_duration

_KNOWN = ("overtake", "user", "namespace", "users", "namespaces")


def read_rules(obj: Mapping[str, Any] | None) -> Rules:
    """The rules in a ConfigMap, the usual ones without it; InvalidJob names the line that cannot be."""
    text = ((obj or {}).get("data") or {}).get(names.RULES_KEY) or ""
    import yaml

    try:
        found = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise _wrong("", "YAML", str(error)) from None
    if not isinstance(found, dict):
        raise _wrong("", text, "is no mapping")
    for key in found:
        if key not in _KNOWN:
            raise _wrong(str(key), found[key], f"is not known; {', '.join(_KNOWN)} are")
    return Rules(
        limits=Limits(
            user=_count("user", found.get("user")),
            namespace=_count("namespace", found.get("namespace")),
            users=_counts("users", found.get("users")),
            namespaces=_counts("namespaces", found.get("namespaces")),
        ),
        overtake=_time("overtake", found.get("overtake")),
    )


def _time(key: str, value: object) -> float:
    if value is None:
        return OVERTAKE
    return 0.0 if value in (0, "0", "0s") else parse_duration(key, value)


def _count(key: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(key, value, "is no number of GPUs")
    return value


def _counts(key: str, value: object) -> dict[str, int]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(key, value, "is no mapping of names to numbers of GPUs")
    return {str(name): _count(f"{key} {name}", each) or 0 for name, each in value.items()}


def _wrong(key: str, value: object, problem: str) -> InvalidJob:
    where = f"ConfigMap {names.QUEUE_RULES} in {names.MANAGER_NAMESPACE}"
    return InvalidJob(key or names.RULES_KEY, value, problem, hint=f"edit the {where}")
