"""Which metrics of a run a page draws: there may be thousands of them."""

from __future__ import annotations

from typing import Any

import msgspec

from echelon.engines.decoding import decode
from echelon.metrics.curves import MOST_CHARTS
from echelon.ui.feed import Feed


class Charts(msgspec.Struct, frozen=True):
    """The first so many of those whose name has a text."""

    charts: str
    most: int = MOST_CHARTS


USUAL = Charts(charts="")


def read_charts(text: str) -> Charts | None:
    """What a page asks for; None for anything else."""
    try:
        found = decode(text, Charts)
    except msgspec.DecodeError:
        return None
    return Charts(charts=found.charts[:200], most=max(0, found.most))


def drawn(feed: Feed, rank: int | None, chosen: Charts) -> dict[str, Any]:
    """Curves as a page receives them: `found` metrics have the text, of `count`; `full` says that there were
    more than the server keeps.
    """
    return {
        "kind": "metrics",
        "metrics": feed.charts(rank, chosen.charts, chosen.most),
        "found": len(feed.curves.names(rank, chosen.charts)),
        "count": len(feed.curves.names(rank)),
        "full": feed.curves.full,
    }
