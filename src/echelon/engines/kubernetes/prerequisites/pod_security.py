"""The Pod Security level of a namespace: read from its labels where we may, else found out by trying.

A user's Role can seldom read the namespace it is in, and only `restricted` asks for what an image may not
be ready for: a user id other than root's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.errors import Denied

if TYPE_CHECKING:
    from echelon.engines.kubernetes.diagnose import Trouble

_FIRST_PODS = 5.0  # seconds within which the Job controller has tried to make pods
_LOOK = 0.2


def level_of(api: Api) -> str | None:
    """The level that the namespace enforces, "" for none; None where we may not know."""
    try:
        found = api.find("Namespace", api.namespace)
    except Denied:
        return None
    return str((((found or {}).get("metadata") or {}).get("labels") or {}).get(names.SECURITY_LEVEL, ""))


def forbids_root(troubles: Sequence[Trouble]) -> bool:
    """Whether pods are refused because they do not name the user that they run as."""
    return any(each.kind == "restricted" for each in troubles)


def refuses(api: Api, jobs: Sequence[Object], selector: str) -> bool:
    """Whether the namespace turns out to be restricted: wait for the first pods of these Jobs, or for their
    refusal.
    """
    from echelon.engines.kubernetes.follow.troubles import find_troubles  # seldom needed

    deadline = time.monotonic() + _FIRST_PODS
    while time.monotonic() < deadline:
        if api.list_shapes("Pod", shapes.Named, selector=selector):
            return False
        if forbids_root(find_troubles(api, jobs, [])):
            return True
        time.sleep(_LOOK)
    return False
