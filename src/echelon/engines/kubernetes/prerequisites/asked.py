"""What a submission asks of the cluster whatever its job is: it can be asked while the job is being prepared,
so that the answers are there when the job is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from echelon.engines.kubernetes.client import identity
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.client.beside import beside, in_turn
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.prerequisites import pod_security
from echelon.errors import Denied, Refused

T = TypeVar("T")
_FRESH = 2.0  # seconds after which answers may have become untrue: to pack a large project takes longer


class Asked:
    """Questions that are under way; each function waits for its answer, and raises what kept it from coming.
    What may not be asked is None.
    """

    quotas: Callable[[], Sequence[Object] | None]  # of the namespace
    may_execute: Callable[[], bool | None]  # in pods
    level: Callable[[], str | None]  # of Pod Security
    who: Callable[[], str]  # the cluster takes us for
    seen: Callable[[], inventory.Seen]  # nodes, and what is taken of them

    def __init__(self, api: Api) -> None:
        self._at = time.monotonic()
        self.seen = beside(lambda: inventory.see(api))
        self.quotas, self.may_execute, self.level, self.who = in_turn(
            lambda: unless_denied(lambda: api.list("ResourceQuota").items),
            lambda: unless_denied(lambda: api.may("create", "Pod", subresource="exec")),
            lambda: pod_security.level_of(api),
            lambda: identity.known_as(api),
        )

    def is_fresh(self) -> bool:
        """Whether the answers are as good as new ones."""
        return time.monotonic() - self._at < _FRESH


def unless_denied(look: Callable[[], T]) -> T | None:
    """What a look finds; None where it is denied."""
    try:
        return look()
    except (Denied, Refused):  # also by what authorizes in the API server's place, in words of its own
        return None
