"""Ending a job whose controller heeds no deadline once it runs: it is suspended, which deletes its pods, and
marked, so that nothing takes it for a job that waits. Unlike a deletion that leaves record and logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.fields import conditions
from echelon.engines.kubernetes.render.dialects.kubeflow import to_end

if TYPE_CHECKING:
    from echelon.engines.kubernetes.render.dialects.end import End

Object = dict[str, Any]


def ending(suspension: Object) -> Object:
    """The change that suspends a job for good, from the one that suspends it."""
    return {"metadata": {"annotations": {names.ENDED: "true"}}, **suspension}


def is_marked(obj: Mapping[str, Any]) -> bool:
    """Whether a job is suspended for good."""
    return names.ENDED in (obj["metadata"].get("annotations") or {})


def end_by_suspension(obj: Mapping[str, Any]) -> End | None:
    """The end of a job that its controller has suspended for good; its pods may still be leaving."""
    found = conditions(obj).get("Suspended") if is_marked(obj) else None
    return None if found is None else to_end(found, succeeded=False, final=False)
