"""Jobs of Kubeflow's controllers with the pods that are theirs, read from the API. It only reads.

Labels find pods, and prove nothing: a pod is a job's if a controller made it of the job, or of what is
between the two, by their uids. All jobs of a namespace take no more lists than one of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache

from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.ownership.between import Between, maker_pair, pairs_of, read_between
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.watched.kinds import KINDS, Address, Kind, labels_of, selector
from echelon.engines.kubernetes.watched.state import Seen, see
from echelon.errors import EchelonError


def read_one(api: Api, address: Address, job: Object) -> Seen:
    """A job that was read, with its pods."""
    found: Sequence[Pod] = ()
    for label in labels_of(address.kind):
        found = found or api.list_shapes("Pod", Pod, selector=selector(label, address.name))
    return _seen(address, job, found, read_between(api, address.kind.word, [address.name]))


def read_all(api: Api) -> list[Seen]:
    """Every job of every kind that the cluster serves, and that the user may list."""

    @cache
    def pods_with(label: tuple[str, str]) -> Mapping[str, Sequence[Pod]]:
        """Pods by the name of the job that they say they are of."""
        named: dict[str, list[Pod]] = {}
        for pod in api.list_shapes("Pod", Pod, selector=selector(label)):
            named.setdefault(pod.metadata.labels.get(label[0], ""), []).append(pod)
        return named

    found = []
    for kind in KINDS.values():
        for resource in kind.resources:
            with suppress(EchelonError):  # not served, or not for this user
                found += _all_of(api, kind, api.list(resource).items, pods_with)
                break
    return found


def _all_of(
    api: Api,
    kind: Kind,
    jobs: Sequence[Object],
    pods_with: Callable[[tuple[str, str]], Mapping[str, Sequence[Pod]]],
) -> list[Seen]:
    if not jobs:
        return []
    between = read_between(api, kind.word, [str(job["metadata"]["name"]) for job in jobs])
    found = []
    for job in jobs:
        name = str(job["metadata"]["name"])
        mine = (pods_with(label).get(name) for label in labels_of(kind))
        pods = next(filter(None, mine), ())
        found.append(_seen(Address(kind=kind, name=name), job, pods, between))
    return found


def _seen(address: Address, job: Object, pods: Sequence[Pod], between: Between | None) -> Seen:
    return see(address, job, own_pods(job, pods, between), attempts=_attempts(address, job, between))


def own_pods(job: Object, pods: Sequence[Pod], between: Between | None) -> list[Pod]:
    """Of pods with a job's labels, its own; where what is between may not be read (None), those of Jobs too.
    Pure.
    """
    makers = (between or Between()).makers(pairs_of([job]))
    unread = between is None
    return [pod for pod in pods if maker_pair(pod) in makers or (unread and pod.metadata.maker.kind == "Job")]


def _attempts(address: Address, job: Object, between: Between | None) -> int:
    """How often a TrainJob's JobSet has started over; the TrainJob does not say."""
    if between is None or address.kind.word != "trainjob":
        return 0
    mine = [each for each in between.tiers[0] if maker_pair(each) in pairs_of([job])]
    return max((each.status.restarts for each in mine), default=0)
