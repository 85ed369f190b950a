"""Orders to a run from outside: to its leader's agent through `pods/exec`, and to its Jobs.

An order through the leader takes a second and lets ranks save; where the leader cannot be reached, the Job
controller ends the pods."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from echelon.agent.task import RUN_OVER
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.follow.troubles import find_troubles
from echelon.engines.kubernetes.follow.view import jobs_of, pods_of
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import workers
from echelon.engines.machine import process_name
from echelon.errors import Denied, EchelonError
from echelon.model.run import Record

_STARTING = 5.0  # seconds that a worker may take to start, once nothing keeps it from it
_ATTEND = 60.0  # seconds that workers wait for a client that fetches from one after another
_ANSWER = 20.0  # seconds within which an agent answers


def order_leader(api: Api, record: Record, pods: Sequence[Object], *order: str) -> bool:
    """Give the leader's agent an order; False if there is none, or it does not answer. Raises Denied without
    the right to do so.
    """
    leaders = [pod for pod in workers.leader_pods(pods) if workers.is_running(pod)]
    return bool(leaders) and order_pod(api, record, leaders[-1], *order)


def order_pod(api: Api, record: Record, pod: Object, *order: str) -> bool:
    """Give the agent in a pod an order; False if it does not answer. Raises Denied without the right."""
    command = names.control_command(record.job.python, *order)
    try:
        with api.exec(pod["metadata"]["name"], command, container=names.CONTAINER) as running:
            while running.read(timeout=_ANSWER) is not None:
                pass
            return bool(running.exit_code == 0)
    except Denied:
        raise
    except (EchelonError, TimeoutError):
        return False


@contextmanager
def attending(api: Api, record: Record, pods: Sequence[Object]) -> Iterator[Callable[[], None]]:
    """While this client fetches from worker after worker, keep all of them from leaving: neither their time
    to linger nor another client's release ends it. The function that it gives is to be called all the
    while; most calls do nothing.

    An order that does not reach the leader costs nothing but this: the copies themselves keep their own
    worker."""
    last: float | None = None

    def order(seconds: float) -> None:
        with suppress(EchelonError):
            details = {"client": process_name(), "seconds": seconds}
            order_leader(api, record, pods, "fetch", json.dumps(details))

    def attend() -> None:
        nonlocal last
        if last is None or time.monotonic() - last > _ATTEND / 3:
            last = time.monotonic()
            order(_ATTEND)

    try:
        yield attend
    finally:
        if last is not None:
            order(0.0)


def release_workers(api: Api, record: Record, jobs: Sequence[Object], pods: Sequence[Object]) -> None:
    """Let the workers go, whose results were fetched: by their leader or, where it is gone, one by one. Then
    the Jobs are ended as well, which would replace the leader. Without the right to it, they leave by
    themselves when their time is over.
    """
    order = "release", json.dumps({"client": process_name()})
    with suppress(EchelonError):
        if order_leader(api, record, pods, *order):
            return
        released = [order_pod(api, record, pod, *order) for pod in pods if workers.is_running(pod)]
        left = [end.exit_code for pod in workers.leader_pods(pods) if (end := workers.container_end(pod))]
        if any(released) and not {0, RUN_OVER}.intersection(left):
            end_jobs(api, jobs)


def reach_leader(api: Api, stored: Stored, *order: str) -> bool:
    """Give the leader an order though it may be about to start: a pod that is deleted while it starts misses
    SIGTERM, and lasts for its whole grace period.
    """
    deadline = time.monotonic() + _STARTING
    while True:
        jobs = jobs_of(api, stored)
        pods = pods_of(api, stored, jobs)
        if any(map(workers.is_running, workers.leader_pods(pods))):
            return order_leader(api, stored.run, pods, *order)
        if time.monotonic() > deadline or find_troubles(api, jobs, pods):
            return False
        time.sleep(0.2)


def end_jobs(api: Api, jobs: Sequence[Object]) -> None:
    """Let the controller end the pods; unlike a deletion, that leaves the record and the logs."""
    for job in jobs:
        api.patch(job["kind"], job["metadata"]["name"], dialects.of(job).ended())
