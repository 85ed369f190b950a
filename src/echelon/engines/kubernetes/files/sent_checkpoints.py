"""The safe checkpoints of a run that is resumed, sent from home to its new keeper.

The leader starts no rank until the keeper has them (`echelon.agent.gang.checkpointing`), and every worker
gets them as one that replaces another does. Each part goes over in the protocol of every copy; what has
arrived is not sent again. The keeper takes them as safe only if all that came is what was chosen here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from echelon.agent.keep.entries import stock_mark
from echelon.engines.kubernetes import control, names
from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.engines.kubernetes.files.results import safe as at_home
from echelon.engines.kubernetes.files.transfer import Opener, Progress, pod_opener, send_tree
from echelon.engines.kubernetes.follow.keeper import find_job, pods_of_job
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state import workers
from echelon.engines.machine import SafeCheckpoints
from echelon.errors import StateTrouble
from echelon.model.pods.pod import PodOptions
from echelon.model.pods.way_home import keeps_checkpoints
from echelon.model.resources import format_memory

_LOOK = 1.0  # seconds between two looks for the keeper, and at whether it has all
_PATIENCE = 150.0  # seconds without a byte; the leader waits for a little longer
_TAKING = 120.0  # seconds in which the keeper looks at what came


def awaits_checkpoints(stored: Stored) -> bool:
    """Whether the first start of the run waits until they are sent."""
    return stored.run.job.earlier > 0 and keeps_checkpoints(stored.run.job.pod)


class Shipment:
    """What is sent to a run's keeper: the safe checkpoints that are at home, or none if there are none."""

    def __init__(self, options: PodOptions, safe: SafeCheckpoints | None) -> None:
        assert options.keeper is not None
        assert options.checkpoints is not None
        self._below = options.checkpoints
        self._safe = safe or SafeCheckpoints(path="")
        found = at_home.whole(self._safe, at_home.look(self._safe, self._below))
        self._parts = at_home.fitting(found, options.keeper.size)
        self._mark = stock_mark(self._parts)

    def describe(self) -> str:
        """What is sent, for a person."""
        parts = list(at_home.one_by_one(self._parts))
        count = len({found.name for _worker, found in parts})
        size = format_memory(sum(found.size for _worker, found in parts))
        return f"sending {count} safe checkpoint{'s' * (count != 1)}, {size}, to the run's keeper"

    def order(self) -> tuple[str, str]:
        """The order to the keeper to take it; a link is told, since no copy takes it alone."""
        links = [
            [worker, found.name, found.link]
            for worker, found in at_home.one_by_one(self._parts)
            if found.link
        ]
        return "stock", json.dumps({"mark": self._mark, "links": links})

    def send(self, opener: Opener, progress: Callable[[Progress], object]) -> None:
        """Send every part, or what is lacking of it."""
        for worker, found in at_home.one_by_one(self._parts):
            if not found.link:
                source = at_home.folder_of(self._safe, worker, self._below) / found.name
                target = names.sent_checkpoint(self._mark, worker, found.name)
                send_tree(opener, source, target, progress=progress, patience=_PATIENCE)

    @property
    def folder(self) -> Path:
        """Where they are at home."""
        return Path(self._safe.path)


def send_checkpoints(
    api: Api,
    stored: Stored,
    shipment: Shipment,
    progress: Callable[[Progress], object],
    tell: Callable[[str], object],
    is_over: Callable[[], bool],
) -> None:
    """Send what a run goes on from to its keeper, once that is there; to the next one if it goes. Nothing
    more of a run that `is_over`. Raises what keeps it from being sent.
    """
    said = False
    while not is_over():
        pod = _running_keeper(api, stored)
        if pod is not None and control.order_keeper(api, stored.run, pod, *shipment.order()):
            return
        if pod is not None:
            if not said:
                said = True
                tell(shipment.describe())
            with suppress(NotThere):  # another keeper takes its place
                shipment.send(pod_opener(api, pod, python=stored.run.job.python), progress)
                _wait_until_taken(api, stored, shipment, pod)
        time.sleep(_LOOK)


def _wait_until_taken(api: Api, stored: Stored, shipment: Shipment, pod: str) -> None:
    deadline = time.monotonic() + _TAKING
    while not control.order_keeper(api, stored.run, pod, *shipment.order()):
        if _running_keeper(api, stored) != pod:
            return
        if time.monotonic() > deadline:
            raise StateTrouble(
                f"the keeper did not find them as they are in {shipment.folder}",
                hint="were they changed meanwhile? resume the run again",
            )
        time.sleep(_LOOK)


def _running_keeper(api: Api, stored: Stored) -> str | None:
    job = find_job(api, stored)
    pods = [] if job is None else [pod for pod in pods_of_job(api, stored, job) if workers.is_running(pod)]
    return max((pod.metadata.name for pod in pods), default=None)
