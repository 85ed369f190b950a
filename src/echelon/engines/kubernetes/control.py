"""What is said to a run from outside: to its leader's agent through `pods/exec`, to its record, to its Jobs.

The engine stops runs and lets workers go through here. A word in the record outlives whoever said it; the
leader hears of it within a second; where nobody can be told, the Job controller ends the pods."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.follow.troubles import find_troubles
from echelon.engines.kubernetes.state import workers
from echelon.errors import Denied, EchelonError
from echelon.model.run import Record

_STARTING = 5.0  # seconds that a worker may take to start, once nothing keeps it from it
_ANSWER = 20.0  # seconds within which an agent answers


def tell_leader(api: Api, record: Record, pods: Sequence[Object], *words: str) -> bool:
    """Say something to the leader's agent; False if there is none, or it does not hear. Raises Denied if we
    may not.
    """
    leaders = [pod for pod in workers.leader_pods(pods) if workers.is_running(pod)]
    if not leaders:
        return False
    command = names.control_command(record.job.python, *words)
    try:
        with api.exec(leaders[-1]["metadata"]["name"], command, container=names.CONTAINER) as talk:
            while talk.read(timeout=_ANSWER) is not None:
                pass
            return bool(talk.exit_code == 0)
    except Denied:
        raise
    except (EchelonError, TimeoutError):
        return False


def reach_leader(api: Api, record: Record, *words: str) -> bool:
    """Say something to the leader, which may be about to start: a pod that is deleted while it starts misses
    the signal to leave, and lasts for its whole time of grace.
    """
    selector = names.selector(record.ref.name, names.WORKER)
    deadline = time.monotonic() + _STARTING
    while True:
        pods = api.list("Pod", selector=selector).items
        if any(map(workers.is_running, workers.leader_pods(pods))):
            return tell_leader(api, record, pods, *words)
        if time.monotonic() > deadline or find_troubles(api, api.list("Job", selector=selector).items, pods):
            return False
        time.sleep(0.2)


def leave_word(api: Api, record: Record, word: Mapping[str, object]) -> None:
    """Write into the record that the run is to end."""
    change = {"metadata": {"annotations": {names.STOP: json.dumps(word)}}}
    api.patch("ConfigMap", record.ref.name, change)


def end_jobs(api: Api, jobs: Sequence[Object]) -> None:
    """Let the Job controller end the pods; unlike a deletion, that leaves the record and the logs."""
    for job in jobs:
        api.patch("Job", job["metadata"]["name"], {"spec": {"activeDeadlineSeconds": 1}})
