"""All objects of a run at one moment, read from the API server. It only reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from echelon.engines.base import unknown_run
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.ledger import waiting_jobs, with_jobs
from echelon.engines.kubernetes.ownership.belonging import belongs
from echelon.engines.kubernetes.ownership.between import (
    Between,
    Pair,
    have_between,
    maker_pair,
    pairs_of,
    read_between,
)
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored, identity, read
from echelon.engines.kubernetes.render import dialects
from echelon.errors import EchelonError, Refused, UnknownRun, Unreachable
from echelon.model.job import is_name
from echelon.model.run import RunRef
from echelon.values import frozen


@frozen
class View:
    """A run's record, the objects that its workers are made of, and its pods, replaced ones too. Of a run
    that is not admitted, the objects are `waiting`.
    """

    stored: Stored
    jobs: Sequence[Object]
    pods: Sequence[Pod]
    waiting: Sequence[Object] = ()


def find_object(api: Api, name: str) -> Object | None:
    """The object of a run's record, unread; None if there is none."""
    found = api.find("ConfigMap", name)
    ours = found is not None and (found["metadata"].get("labels") or {}).get(names.RUN) == name
    if found is not None and not ours:
        raise Refused(
            f"a ConfigMap named {name!r} is in the namespace, and it is not echelon's",
            hint="choose another name for the run with --name",
        )
    return found


def get_object(api: Api, ref: RunRef) -> Object:
    """The object of a run's record, unread; raises UnknownRun, which suggests the nearest name."""
    found = find_object(api, ref.name)
    if found is None:
        raise missing(api, ref)
    return found


def is_record(obj: Object) -> bool:
    """Whether an object that carries the label of records can be one: what it is called is a run's name. With
    another name it would spoil the selectors that name runs, and no command could remove it. Pure.
    """
    name = obj["metadata"]["name"]
    return is_name(name) and (obj["metadata"].get("labels") or {}).get(names.RUN) == name


def find_record(api: Api, ref: RunRef) -> Stored | None:
    """A run's record, with what its Jobs say; None if there is none."""
    found = find_object(api, ref.name)
    if found is None:
        return None
    stored = read(found, ref)
    known = stored.dialect in dialects.DIALECTS  # else its own commands tell
    return with_jobs(stored, _listed(api, stored)) if known else stored


def find_alone(api: Api, ref: RunRef) -> Stored | None:
    """A run's record by itself; None if there is none."""
    found = find_object(api, ref.name)
    return None if found is None else read(found, ref)


def read_alone(api: Api, ref: RunRef) -> Stored:
    """The same; raises UnknownRun, which suggests the nearest name."""
    return read(get_object(api, ref), ref)


def read_record(api: Api, ref: RunRef) -> Stored:
    """A run's record, with what its Jobs say; raises UnknownRun, which suggests the nearest name."""
    found = find_record(api, ref)
    if found is None:
        raise missing(api, ref)
    return found


def look(api: Api, ref: RunRef, *, pods: bool = True) -> View:
    """A run as it is now; without its pods, where they do not matter."""
    stored = read(get_object(api, ref), ref)
    listed = _listed(api, stored)
    selector = names.selector(ref.name, names.WORKER)
    matter = pods and with_jobs(stored, listed).may_have_run
    theirs = api.list_shapes("Pod", Pod, selector=selector) if matter else ()
    return to_view(stored, listed, theirs, find_between(api, stored, theirs))


def to_view(
    stored: Stored, jobs: Sequence[Object], pods: Iterable[Pod], between: Between | None = None
) -> View:
    """A run, from its record, from the objects that carry its labels and from what is between them. Pure."""
    stored = with_jobs(stored, jobs)
    mine = own_jobs(stored, jobs)
    own = own_pods(stored, mine, pods, between)
    return View(stored=stored, jobs=mine, pods=own, waiting=waiting_jobs(stored, jobs))


def find_between(api: Api, stored: Stored, pods: Iterable[Pod]) -> Between | None:
    """What controllers made between a run's objects and its pods; None where there is nothing, or it may not
    be read.
    """
    if not have_between(stored.dialect, pods):
        return None
    return read_between(api, stored.dialect, [stored.run.ref.name])


class BetweenRead:
    """What is between a run's objects and its pods, for a follower: read when a pod comes whose maker is new,
    not at every look.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._makers: frozenset[Pair] = frozenset()  # that were asked about
        self._found: Between | None = None

    def of(self, stored: Stored, pods: Sequence[Pod]) -> Between | None:
        """As `find_between`; what is known already while the API server is away."""
        makers = frozenset(map(maker_pair, pods))
        if not makers <= self._makers:
            with suppress(Unreachable):
                self._found = find_between(self._api, stored, pods)
                self._makers |= makers
        return self._found


def jobs_of(api: Api, stored: Stored) -> list[Object]:
    """The objects that a run's workers are made of, once it is admitted."""
    return own_jobs(stored, _listed(api, stored))


def _listed(api: Api, stored: Stored) -> list[Object]:
    selector = names.selector(stored.run.ref.name, names.WORKER)
    found: list[Object] = []
    for kind in dialects.named(stored.dialect).KINDS:
        with suppress(NotThere):  # the cluster had it when the run began
            found += api.list(kind, selector=selector).items
    return found


def pods_of(api: Api, stored: Stored, jobs: Sequence[Object] | None = None) -> list[Pod]:
    """A run's pods, those that were replaced too as long as they are there; `jobs` if they are known."""
    known = jobs_of(api, stored) if jobs is None else jobs
    found = api.list_shapes("Pod", Pod, selector=names.selector(stored.run.ref.name, names.WORKER))
    return own_pods(stored, known, found, find_between(api, stored, found))


def own_jobs(stored: Stored, jobs: Iterable[Object]) -> list[Object]:
    """Of objects that carry a run's labels, which anybody may give, its own that its plan names. Pure."""
    plan, mine = stored.run.plan, identity(stored)
    planned = names.job_names(stored.run.ref.name, plan.world) if plan is not None else ()
    return [job for job in jobs if job["metadata"]["name"] in planned and belongs(job, mine)]


def own_pods(
    stored: Stored, jobs: Iterable[Object], pods: Iterable[Pod], between: Between | None = None
) -> list[Pod]:
    """Of pods that carry a run's labels, those that the controller made of the run's own objects, `jobs`, or
    of what is `between`. Pods outlive an object that is deleted: then the record knows its uid, which the
    plan's name must go with. Pure.

    Pods of a run that waits again, since not all of them found a place, are on their way out."""
    name, plan = stored.run.ref.name, stored.run.plan
    if plan is None and stored.shape is not None:
        return []
    planned = names.job_names(name, plan.world) if plan is not None else (name,)
    there = pairs_of(jobs)
    gone = set(planned).difference(each for each, _ in there)
    left = {(each, uid) for each in gone for uid in stored.owners}
    seen = between or Between()
    makers = seen.makers(there | left)
    named = dialects.makers_of(stored.dialect, name, plan.world) if plan is not None else ()

    def is_own(pod: Pod) -> bool:
        if maker_pair(pod) in makers:
            return True
        return not seen.refutes(pod) and _is_named_so(pod, named, stored)

    return [pod for pod in pods if is_own(pod)]


def _is_named_so(pod: Pod, named: Collection[str], stored: Stored) -> bool:
    """Whether a Job in between made the pod that cannot be read: it is gone, or the user lacks the right. It
    has a name of its own, and the pod shows when its run was recorded, which no earlier run of the name has
    in common with it.
    """
    maker = pod.metadata.maker
    of_job = maker.kind == "Job" and maker.name in named
    return of_job and pod.metadata.annotations.get(names.CREATED) == str(stored.run.created)


def run_names(api: Api) -> list[str]:
    """The names of all runs of the namespace."""
    records = api.list("ConfigMap", selector=f"{names.COMPONENT}={names.RECORD}").items
    return sorted(each["metadata"]["name"] for each in records if is_record(each))


def missing(api: Api, ref: RunRef) -> UnknownRun:
    """The error for a run that is not there, with the nearest name."""
    where = f"`echelon ps -a -A --on k8s` lists those of namespace {api.namespace}; --namespace names another"

    def there() -> list[str]:
        try:
            return run_names(api)
        except EchelonError:  # they may not be listed: the hint does without
            return []

    return unknown_run(ref.name, there, where)
