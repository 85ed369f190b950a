"""What a caller of `update_job` wants changed, by the job as it is and as it is given. Pure.

A run goes on as it was submitted, so that of a job's fields only `runPolicy.suspend` can be changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from echelon.errors import InvalidJob

Change = Literal["suspend", "resume"]
SUSPEND = "spec.runPolicy.suspend"
_TEMPLATE = "template"  # of its fields, a job that is shown has only some


def find_change(current: Mapping[str, Any], given: Any) -> Change | None:
    """What is to be done, None if nothing is. Fields that `given` leaves out stay as they are, and those that
    only the API server sets are ignored.
    """
    if not isinstance(given, Mapping):
        raise InvalidJob("job", given, "is not a job", hint="give what get_job returns, with its changes")
    found = dict(_differences(_settable(current), _settable(given), ""))
    suspend = found.pop(SUSPEND, None)
    for path, value in found.items():
        hint = "only runPolicy.suspend can be changed; else delete_job, then create_job"
        raise InvalidJob(path, value, "cannot be changed in a job that exists", hint=hint)
    if suspend is None:
        return None
    if not isinstance(suspend, bool):
        raise InvalidJob(SUSPEND, suspend, "is neither true nor false")
    return "suspend" if suspend else "resume"


def _settable(document: Mapping[str, Any]) -> dict[str, Any]:
    about = document.get("metadata") or {}
    return {
        "kind": document.get("kind"),
        "metadata": {name: about.get(name) for name in ("name", "labels", "annotations")},
        "spec": document.get("spec") or {},
    }


def _differences(before: Any, after: Any, path: str, *, partly: bool = False) -> Iterator[tuple[str, Any]]:
    """The paths at which `after` says something else; `partly`, only of what `before` has."""
    if isinstance(after, Mapping) and isinstance(before, Mapping):
        for key, value in after.items():
            if value is None or (partly and key not in before):
                continue
            inner = f"{path}.{key}" if path else key
            yield from _differences(before.get(key), value, inner, partly=partly or key == _TEMPLATE)
    elif isinstance(after, list) and isinstance(before, list) and len(after) == len(before):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, f"{path}[{number}]", partly=partly)
    elif before != after and not (before is None and after in ({}, [])):
        yield path, after
