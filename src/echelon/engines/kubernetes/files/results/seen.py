"""A run's results as its workers, its keeper and its record tell of them at one moment. It only reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.results.shards import Shard, find_shards
from echelon.engines.kubernetes.follow.follow import read_events
from echelon.engines.kubernetes.follow.keeper import KeeperView, find_keeper
from echelon.engines.kubernetes.follow.view import View, look
from echelon.model.event import Event
from echelon.model.run import RunRef
from echelon.values import frozen


@frozen
class Seen:
    """A run at one moment, as far as its results are concerned."""

    view: View
    events: Sequence[Event]
    keeper: KeeperView | None

    def shards(self) -> list[Shard]:
        """What each worker should have, and where it is."""
        stored = self.view.stored
        known = [stored.end] if stored.end is not None else []
        return find_shards(stored.run.plan, [*known, *self.events], self.view.pods, self.keeper)


def see(api: Api, ref: RunRef) -> Seen:
    """Look at a run, at what its pods say and, if it is over, at its keeper."""
    view, events = look(api, ref), list(read_events(api, ref, of_pods=True))
    over = any(event.kind == "finished" for event in events)
    return Seen(view=view, events=events, keeper=find_keeper(api, view.stored) if over else None)


def are_held(api: Api, ref: RunRef) -> bool:
    """Whether workers, or the keeper, still keep results, as they say themselves."""
    return _say_held(read_events(api, ref, of_pods=True))


def can_be_fetched(api: Api, ref: RunRef) -> bool:
    """Whether results are kept, and a pod is left that could still give any of them."""
    seen = see(api, ref)
    held = _say_held(seen.events) and any(each.pod is not None for each in seen.shards())
    return held or may_be_saved(seen) is not None


def may_be_saved(seen: Seen) -> str | None:
    """The pod of the keeper, if it may have checkpoints of workers that cannot give them any more. It vouches
    for these when it knows that the run is over: from the leader, or from a client that fetches.
    """
    keeper, shards = seen.keeper, seen.shards()
    if keeper is None or seen.view.stored.run.job.pod.checkpoints is None:
        return None
    all_there = shards and all(each.pod is not None for each in shards)
    return None if all_there else keeper.pod


def _say_held(events: Iterable[Event]) -> bool:
    return any(event.kind in ("holding", "keeping") for event in events)
