"""Whether a run may be forgotten: not while its workers keep results that were not fetched."""

from __future__ import annotations

import time
from collections.abc import Callable

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.results.seen import can_be_fetched
from echelon.engines.kubernetes.record import Collected, Stored
from echelon.engines.machine import Submissions
from echelon.errors import StateTrouble

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
    began, told = time.monotonic(), False
    patience = patience_for(stored.collected, time.time())
    while (held := can_be_fetched(api, ref)) and time.monotonic() - began < patience:
        if not told and time.monotonic() - began >= _SILENT:
            told = True
            host = stored.collected.host if stored.collected is not None else ""
            tell(f"{host or 'another machine'} has fetched the results: waiting until the workers have left")
        time.sleep(_LOOK)
    if held and api.may("create", "Pod", subresource="exec"):
        raise StateTrouble(
            f"the results of run {ref.name!r} were not fetched yet, and would be lost",
            hint=f"`echelon get {ref.name}` brings them, and lets the workers go",
        )


def patience_for(collected: Collected | None, now: float) -> float:
    """The seconds that workers may still take to leave: they are told to when their results are fetched, so
    that those which stay long after that stay for another reason. Pure.
    """
    if collected is None:
        return 0.0
    return min(max(collected.at + _LEAVING - now, _AT_LEAST), _LEAVING)
