"""Which runs are over while their workers stay for their results, and hold their GPUs: from the last lines of
their leaders' logs, as `ps` finds it. It only reads."""

from __future__ import annotations

from collections.abc import Mapping

from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.follow.borne_out import says_over
from echelon.errors import EchelonError

_AT_ONCE = 8
_MOST = 64  # runs that are looked at; `top` shows no more on any screen


def find_lingering(api: Api, leaders: Mapping[str, Object]) -> set[str]:
    """Of runs, given with the pods of their leaders, those that are over."""
    if not leaders:
        return set()
    from concurrent.futures import ThreadPoolExecutor

    def look(pod: Object) -> bool:
        try:
            return says_over(api, pod) is True
        except EchelonError:  # its pod has just gone, or its log may not be read
            return False

    runs = sorted(leaders)[:_MOST]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(look, [leaders[run] for run in runs])
        return {run for run, over in zip(runs, found, strict=True) if over}
