"""A take-over waits for the process that looks after the run: it may be fetching the results.

It waits as long as that process lives and there is something that it can fetch, says for whom, and ends as
that process does. A process that is gone or silent loses its claim, and this one takes the run over."""

from __future__ import annotations

import time
from typing import Protocol

from echelon.engines.base import TakeOver
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.fields import one_line
from echelon.engines.kubernetes.files.results.seen import are_held
from echelon.engines.kubernetes.files.results.shards import check_complete
from echelon.engines.kubernetes.files.results.whereabouts import has_own_claim, keeps_results
from echelon.engines.kubernetes.follow.view import read_alone
from echelon.engines.kubernetes.record import Claim
from echelon.engines.machine import describe_process
from echelon.errors import ResultsIncomplete, RunTimedOut
from echelon.model.run import RunRef
from echelon.values import frozen

_LOOK = 1.0  # seconds between two looks at who fetches a run's results
_SILENCE = 90.0  # seconds that a process may take to say what it has of workers that are gone


class Taking(Protocol):
    """A claim that is tried for."""

    held: bool

    def take(self) -> bool:
        """Take it, if it is free."""
        ...

    def release(self) -> None:
        """Give it up."""
        ...


@frozen
class Wanted:
    """A claim that another process has, and how the user wants it to be waited for."""

    tender: Taking
    asked: TakeOver


def wait_for_owner(api: Api, ref: RunRef, wanted: Wanted) -> None:
    """Wait until this process has the claim, or the one that holds it has fetched the results and let the
    workers go. What the record says of that, anybody may have written: while workers hold results, they are
    not fetched. Raises what is missing of them, as the owner does; ResultsIncomplete when nothing holds any
    and the owner does not say that it has them; RunTimedOut.
    """
    told, at_work = "", time.monotonic()
    while not wanted.tender.take():
        stored = read_alone(api, ref)
        if not keeps_results(stored.run) and not has_own_claim(stored.run):
            return  # they are on a volume of the user's, and stay there
        held = are_held(api, ref)
        if stored.collected is not None and not held:
            check_complete(ref, stored.collected.missing)
            return
        now, who = time.monotonic(), _owner(stored.claim)
        if held or has_own_claim(stored.run):  # on a volume they are there without the workers
            at_work = now
        if now - at_work > _SILENCE:
            raise ResultsIncomplete(
                f"the results of run {ref.name!r} are not here: nothing holds them any more, and {who} looks "
                "after the run and does not say that it has them",
                hint="that process may know more; --keep keeps results for longer",
            )
        if wanted.asked.until is not None and now >= wanted.asked.until:
            raise RunTimedOut(
                f"run {ref.name!r} is over, and {who} still fetches its results", hint="wait longer, or there"
            )
        if who != told:
            told = who
            wanted.asked.tell(
                f"waiting for {who}, which looks after run {ref.name} and may be fetching its results"
            )
        time.sleep(_LOOK)


def _owner(claim: Claim | None) -> str:
    return "another process" if claim is None else describe_process(one_line(claim.holder))
