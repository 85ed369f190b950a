"""What a submission asks of the cluster: `Asked`, whatever its job is, while the job is being prepared, so
that the answers are there when the job is; and `Submission`, with what it has asked and made for one job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from echelon.engines.kubernetes.client import identity
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.client.beside import beside, in_turn
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.prerequisites import pod_security
from echelon.engines.kubernetes.record import Stored
from echelon.errors import Denied, Refused
from echelon.model.job import Job

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


class Submission:
    """One job on its way into the cluster. An answer that may become untrue is used once: a later call asks
    the cluster again.
    """

    job: Job
    may_execute: bool  # in pods
    level: Callable[[], str | None]  # of Pod Security
    who: Callable[[], str]  # the cluster takes us for
    seen: Callable[[], inventory.Seen | None]  # nodes, and what is taken of them; None: look again
    is_free: Callable[
        [], bool
    ]  # the job's name was when it was checked; one taken since is met when it is made
    made: Stored | None = None  # the record that this submission has just made, and has not started

    def __init__(
        self, api: Api, job: Job, asked: Asked, *, may_execute: bool, is_free: Callable[[], bool]
    ) -> None:
        self.job, self.may_execute = job, may_execute
        self.level = _once(asked.level, lambda: pod_security.level_of(api))
        self.who = _once(asked.who, lambda: identity.known_as(api))
        self.seen = _once(asked.seen, lambda: None)
        self.is_free = _once(is_free, lambda: False)

    def take_made(self) -> Stored | None:
        """The run, once, if its record was just made here: it need not be read, whatever has become of it
        since the first write to it tells.
        """
        made, self.made = self.made, None
        return made


def _once(first: Callable[[], T], anew: Callable[[], T]) -> Callable[[], T]:
    left = [first]

    def answer() -> T:
        return left.pop()() if left else anew()

    return answer


def unless_denied(look: Callable[[], T]) -> T | None:
    """What a look finds; None where it is denied."""
    try:
        return look()
    except (Denied, Refused):  # also by what authorizes in the API server's place, in words of its own
        return None
