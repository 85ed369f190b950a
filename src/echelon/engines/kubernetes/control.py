"""Orders to a run from outside: to its leader's agent through `pods/exec`, and to its Jobs.

An order through the leader takes a second and lets ranks save; where the leader cannot be reached, the Job
controller ends the pods."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from echelon.agent.task import RUN_OVER
from echelon.engines.kubernetes import names, objects
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.client.beside import beside
from echelon.engines.kubernetes.follow.keeper import find_job, pods_of_job
from echelon.engines.kubernetes.follow.view import jobs_of, pods_of
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stop, Stored, stopping
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import workers
from echelon.engines.machine import process_name
from echelon.errors import Denied, EchelonError
from echelon.model.pods.way_home import way_home
from echelon.model.run import Record

_STARTING = 20.0  # seconds that a worker may take to start, once nothing keeps it from it
_LISTENING = 5.0  # seconds from the start of its container until its agent takes orders
_AT_WORK = 60.0  # seconds that a worker waits at least for a client that is at work
_AT_ONCE = 8  # agents that are given an order at the same time
_ANSWER = 20.0  # seconds within which an agent answers


def order_leader(api: Api, record: Record, pods: Sequence[Pod], *order: str) -> bool:
    """Give the leader's agent an order; False if there is none, or it does not answer. Raises Denied without
    the right to do so.
    """
    leaders = [pod for pod in workers.leader_pods(pods) if workers.is_running(pod)]
    return bool(leaders) and order_pod(api, record, leaders[-1], *order)


def order_pod(api: Api, record: Record, pod: Pod, *order: str) -> bool:
    """Give the agent in a pod an order; False if it does not answer. Raises Denied without the right."""
    return _order(api, record, pod.metadata.name, *order, container=workers.container_name(pod))


def _order_each(api: Api, record: Record, pods: Sequence[Pod], *order: str) -> list[bool]:
    """Give the agents of all pods that run an order, several at once: one on a dead node takes its time."""
    from concurrent.futures import ThreadPoolExecutor

    running = [pod for pod in pods if workers.is_running(pod)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda pod: order_pod(api, record, pod, *order), running))


def _order(api: Api, record: Record, pod: str, *order: str, container: str = names.CONTAINER) -> bool:
    command = names.control_command(record.job.python, *order)
    try:
        with api.exec(pod, command, container=container) as running:
            while running.read(timeout=_ANSWER) is not None:
                pass
            return bool(running.exit_code == 0)
    except Denied:
        raise
    except (EchelonError, TimeoutError):
        return False


@contextmanager
def at_work(api: Api, record: Record, pods: Sequence[Pod], keeper: str | None = None) -> Iterator[None]:
    """While this client fetches from worker after worker, each of them, and the pod of the keeper, is told
    again and again that it is at work: neither the end of its time nor another client's release ends it.
    Those that hold for a short time only have been told when this begins.
    """
    order = "fetch", json.dumps({"client": process_name(), "seconds": _AT_WORK})
    asked = [(pod.metadata.name, workers.container_name(pod)) for pod in pods if workers.is_running(pod)]
    asked += [(keeper, names.CONTAINER)] if keeper is not None else []
    done = threading.Event()

    def renew(mine: Sequence[tuple[str, str]], told: threading.Event) -> None:
        try:
            while not done.is_set():
                for pod, container in mine:
                    if not done.is_set():
                        _order(api, record, pod, *order, container=container)
                told.set()
                done.wait(_AT_WORK / 3)
        finally:
            told.set()

    all_told = [threading.Event() for _ in range(min(_AT_ONCE, len(asked)))]
    for number, told in enumerate(all_told):
        beside(partial(renew, asked[number::_AT_ONCE], told))
    try:
        if way_home(record.job.pod).hold < _AT_WORK:
            for told in all_told:
                told.wait(_ANSWER)
        yield
    finally:
        done.set()


def order_keeper(api: Api, record: Record, keeper: str, *order: str) -> bool:
    """Give the run's keeper, by its pod, an order; False if it refuses or does not answer. Raises Denied
    without the right.
    """
    return _order(api, record, keeper, *order)


def tell_keeper(api: Api, record: Record, keeper: str) -> bool:
    """Tell the run's keeper, given by its pod, that this client fetches; False if it does not answer, though
    it had the time to start. Raises Denied without the right.
    """
    order = "fetch", json.dumps({"client": process_name(), "seconds": _AT_WORK})
    deadline = time.monotonic() + _LISTENING
    while not (told := order_keeper(api, record, keeper, *order)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return told


def release_workers(api: Api, record: Record, jobs: Sequence[Object], pods: Sequence[Pod]) -> None:
    """Let the workers go, whose results were fetched: by their leader or, where it is gone, one by one. Then
    the Jobs are ended as well, which would replace the leader. Without the right to it, they leave by
    themselves when their time is over.
    """
    order = "release", json.dumps({"client": process_name()})
    with suppress(EchelonError):
        if order_leader(api, record, pods, *order):
            return
        released = _order_each(api, record, pods, *order)
        left = [end.exit_code for pod in workers.leader_pods(pods) if (end := workers.container_end(pod))]
        if any(released) and not {0, RUN_OVER}.intersection(left):
            end_jobs(api, jobs)


def release_keeper(api: Api, stored: Stored, jobs: Sequence[Object]) -> None:
    """Let the run's keeper go, whose results were fetched; one that cannot be told so is ended. From now on
    the run may be forgotten when its user wants: its Jobs were to last as long as the keeper.
    """
    record = stored.run
    if record.job.pod.keeper is None:
        return
    with suppress(EchelonError):
        lasts = int(record.job.pod.ttl)
        for job in jobs:
            if (change := dialects.of(job).lasting(job, lasts)) is not None:
                api.patch(job["kind"], job["metadata"]["name"], change, uid=job["metadata"]["uid"])
        keeper = find_job(api, stored)
        if keeper is None:
            return
        running = [pod for pod in pods_of_job(api, stored, keeper) if workers.is_running(pod)]
        order = "release", json.dumps({"client": process_name()})
        if not running or not all(order_pod(api, record, pod, *order) for pod in running):
            end_jobs(api, [keeper])


def end_keeper(api: Api, stored: Stored) -> None:
    """Let the controller end the run's keeper, if it has one."""
    if stored.run.job.pod.keeper is not None:
        with suppress(NotThere, Denied):
            keeper = find_job(api, stored)
            end_jobs(api, [keeper] if keeper is not None else [])


def reach_leader(api: Api, stored: Stored, *order: str) -> bool:
    """Give the leader an order though it may be about to start: a pod that is deleted while it starts misses
    SIGTERM, and lasts for its whole grace period.
    """
    from echelon.engines.kubernetes.follow.troubles import find_troubles

    deadline = time.monotonic() + _STARTING
    refused = 0.0  # when a leader that runs did not answer for the first time
    while True:
        jobs = jobs_of(api, stored)
        pods = pods_of(api, stored, jobs)
        if any(map(workers.is_running, workers.leader_pods(pods))):
            if order_leader(api, stored.run, pods, *order):
                return True
            refused = refused or time.monotonic()
            if time.monotonic() > refused + _LISTENING:
                return False
        elif time.monotonic() > deadline or dialects.end_of(jobs) or find_troubles(api, jobs, pods):
            return False
        time.sleep(0.2)


def give_up(api: Api, stored: Stored, jobs: Sequence[Object], reason: str) -> None:
    """End a run as failed: `reason` keeps it from running."""
    stop = Stop(at=round(time.time(), 3), reason=reason, outcome="failed")
    api.patch("ConfigMap", stored.run.ref.name, stopping(stop), uid=stored.uid)
    end_run(api, stored, jobs)


def end_run(api: Api, stored: Stored, jobs: Sequence[Object]) -> None:
    """Let the controllers end all that runs of a run; what waits for Kueue is deleted. The record stays."""
    from echelon.engines.kubernetes.diagnose.kueue import waits_in  # a start needs no diagnosis

    if waits_in(jobs):
        objects.take_back(api, stored, jobs)
    else:
        end_jobs(api, jobs)
    end_keeper(api, stored)


def end_jobs(api: Api, jobs: Sequence[Object]) -> None:
    """Let the controller end the pods; unlike a deletion, that leaves the record and the logs. A keeper that
    waits has none, and goes with the record.
    """
    for job in jobs:
        dialect = dialects.of(job)
        is_keeper = (job["metadata"].get("labels") or {}).get(names.COMPONENT) == names.KEEPER
        if is_keeper and dialect.is_suspended(job):
            continue
        change = dialect.withdrawn() if dialect.is_suspended(job) else dialect.ended()
        with suppress(NotThere):
            api.patch(job["kind"], job["metadata"]["name"], change, uid=job["metadata"]["uid"])
