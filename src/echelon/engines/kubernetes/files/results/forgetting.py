"""Whether a run may be forgotten: not while its workers, or a volume that would go with it, have results that
were not fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.results.seen import can_be_fetched
from echelon.engines.kubernetes.ownership.belonging import is_for
from echelon.engines.kubernetes.record import Collected, Stored, identity
from echelon.engines.kubernetes.shapes import Claim
from echelon.engines.machine import Submissions
from echelon.errors import Denied, StateTrouble

_LEAVING = 90.0  # seconds within which workers have left whose results were fetched: others may copy yet
_AT_LEAST = 10.0  # of them, however long ago another machine's clock says that it was
_LOOK = 1.0  # seconds between two looks at them
_SILENT = 2.0  # seconds of waiting that need no word


def check_fetched(
    api: Api, submissions: Submissions, stored: Stored, tell: Callable[[str], object] = lambda _: None
) -> None:
    """Refuse to forget a run whose workers still keep results that were not fetched, and could be. Those of
    which another machine has just got them are leaving: they are waited for, and `tell` gets that.
    """
    ref = stored.run.ref
    if submissions.fetched(stored.uid, stored.run.created) is not None:
        return
    if still_hold(lambda: can_be_fetched(api, ref), stored.collected, tell):
        raise StateTrouble(
            f"the results of run {ref.name!r} were not fetched yet, and would be lost",
            hint=f"`echelon get {ref.name}` brings them, and lets the workers go; "
            f"`echelon rm --force {ref.name}` deletes them",
        )


def still_hold(
    hold: Callable[[], bool], collected: Collected | None, tell: Callable[[str], object] = lambda _: None
) -> bool:
    """Whether workers hold results, by `hold`, when those have left of which a machine has just got them, as
    the record says: they are waited for, and `tell` gets that. Anybody may have written it: those which stay
    hold theirs.
    """
    began, told = time.monotonic(), False
    patience = patience_for(collected, time.time())
    while (held := hold()) and time.monotonic() - began < patience:
        if not told and time.monotonic() - began >= _SILENT:
            told = True
            host = collected.host if collected is not None else ""
            tell(f"{host or 'another machine'} has fetched the results: waiting until the workers have left")
        time.sleep(_LOOK)
    return held


def check_volume(api: Api, submissions: Submissions, stored: Stored) -> None:
    """Refuse to forget a run that this machine submitted, and whose results are on a volume of its own that
    were not brought here. One that no pod has had has none; for others the volume stays.
    """
    name = stored.run.ref.name
    if were_brought(submissions, stored) or submissions.results_of(stored.uid) is None:
        return
    claim = None
    with suppress(Denied):  # then it stays
        claim = api.find_shape("PersistentVolumeClaim", Claim, names.claim_name(name))
    if claim is None or not is_for(claim.metadata, identity(stored)):
        return
    if claim.status.phase != "Pending":
        raise StateTrouble(
            f"the results of run {name!r} are on the volume claim {names.claim_name(name)}, were not fetched "
            "yet, and would be lost with it",
            hint=f"`echelon get {name}` brings them; `echelon rm --force {name}` deletes them with the claim",
        )


def were_brought(submissions: Submissions, stored: Stored) -> bool:
    """Whether results of a run were brought to this machine: that all is known of them is not enough."""
    own = submissions.fetched(stored.uid, stored.run.created)
    return own is not None and bool(own.path)


def patience_for(collected: Collected | None, now: float) -> float:
    """The seconds that workers may still take to leave: they are told to when their results are fetched, so
    that those which stay long after that stay for another reason. Pure.
    """
    if collected is None:
        return 0.0
    return min(max(collected.at + _LEAVING - now, _AT_LEAST), _LEAVING)
