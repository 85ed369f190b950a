"""How often the pods of a job were started again. Pure.

The training operator says that a job is restarting in a condition, until it runs again. It deletes a pod that
it replaces and makes another of the same name, with no number: who follows the job counts those that it sees
come (`Replacements`). mpi-operator and Trainer have no such condition: their pods are those of Jobs, which
start containers again, or replace failed pods beside which they leave the old ones; and a JobSet that starts
over deletes all of its Jobs, and numbers the attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.engines.kubernetes.fields import whole_number
from echelon.engines.kubernetes.ownership.kubeflow_labels import JOBSET
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.watched.kinds import container_of


def of_latest_attempt(pods: Sequence[Pod], attempts: int) -> list[Pod]:
    """Without the pods of attempts that a JobSet has given up, which it is about to delete."""
    return [pod for pod in pods if _attempt(pod) >= attempts]


def count_restarts(earlier: Sequence[Pod], newest: Sequence[Pod]) -> int:
    """Containers that were started again, and pods that were replaced after a failure."""
    return sum(map(has_failed, earlier)) + sum(map(_of_containers, newest))


class Replacements:
    """Pods that took the place of others while a job was looked at."""

    def __init__(self) -> None:
        self._uids: dict[int, str] = {}
        self._count = 0

    def count(self, newest: Mapping[int, Pod], *, suspended: bool) -> int:
        """How many there were so far; `newest` are the pods now, by the number of their worker. Pods of a job
        that was suspended come anew, and replace none.
        """
        if suspended:
            self._uids.clear()
        for number, pod in newest.items():
            uid = pod.metadata.uid
            self._count += self._uids.get(number, uid) != uid
            self._uids[number] = uid
        return self._count


def has_failed(pod: Pod) -> bool:
    """Whether the pod is over, and was not to be."""
    return pod.status.phase == "Failed"


def _of_containers(pod: Pod) -> int:
    name = container_of(pod)
    counts = (each.restart_count for each in pod.status.container_statuses if each.name == name)
    return max(counts, default=0)


def _attempt(pod: Pod) -> int:
    return whole_number(pod.metadata.labels.get(f"{JOBSET}restart-attempt")) or 0
