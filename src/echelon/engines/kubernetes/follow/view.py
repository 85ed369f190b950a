"""All objects of a run at one moment, read from the API server. It only reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from echelon.engines.base import unknown_run
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.record import Stored, read
from echelon.engines.kubernetes.render import dialects
from echelon.errors import Refused, UnknownRun
from echelon.model.job import is_name
from echelon.model.run import RunRef


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A run's record, the objects that its workers are made of, and its pods, replaced ones too."""

    stored: Stored
    jobs: Sequence[Object]
    pods: Sequence[Object]


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


def is_record(obj: Object) -> bool:
    """Whether an object that carries the label of records can be one: what it is called is a run's name. With
    another name it would spoil the selectors that name runs, and no command could remove it. Pure.
    """
    name = obj["metadata"]["name"]
    return is_name(name) and (obj["metadata"].get("labels") or {}).get(names.RUN) == name


def find_record(api: Api, ref: RunRef) -> Stored | None:
    """A run's record; None if there is none."""
    found = find_object(api, ref.name)
    return None if found is None else read(found, ref)


def read_record(api: Api, ref: RunRef) -> Stored:
    """A run's record; raises UnknownRun, which suggests the nearest name."""
    found = find_record(api, ref)
    if found is None:
        raise missing(api, ref)
    return found


def look(api: Api, ref: RunRef) -> View:
    """A run as it is now."""
    stored = read_record(api, ref)
    jobs = jobs_of(api, stored)
    return View(stored=stored, jobs=jobs, pods=pods_of(api, stored, jobs))


def jobs_of(api: Api, stored: Stored) -> list[Object]:
    """The objects that a run's workers are made of."""
    selector = names.selector(stored.run.ref.name, names.WORKER)
    kinds = dialects.named(stored.dialect).KINDS
    return own_jobs(stored, [obj for kind in kinds for obj in api.list(kind, selector=selector).items])


def pods_of(api: Api, stored: Stored, jobs: Sequence[Object] | None = None) -> list[Object]:
    """A run's pods, those that were replaced too as long as they are there; `jobs` if they are known."""
    known = jobs_of(api, stored) if jobs is None and not stored.owners else jobs or ()
    found = api.list("Pod", selector=names.selector(stored.run.ref.name, names.WORKER)).items
    return own_pods(stored, known, found)


def own_jobs(stored: Stored, jobs: Iterable[Object]) -> list[Object]:
    """Of objects that carry a run's labels, which anybody may give, those that its plan names. Pure."""
    plan = stored.run.plan
    planned = names.job_names(stored.run.ref.name, plan.world) if plan is not None else ()
    return [job for job in jobs if job["metadata"]["name"] in planned]


def own_pods(stored: Stored, jobs: Iterable[Object], pods: Iterable[Object]) -> list[Object]:
    """Of pods that carry a run's labels, those that the controller made of the run's own objects. Pure."""
    makers = stored.owners | {job["metadata"]["uid"] for job in jobs}
    return [pod for pod in pods if _maker_of(pod) in makers]


def _maker_of(pod: Object) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each.get("controller")), None)


def run_names(api: Api) -> list[str]:
    """The names of all runs of the namespace."""
    records = api.list("ConfigMap", selector=f"{names.COMPONENT}={names.RECORD}").items
    return sorted(each["metadata"]["name"] for each in records if is_record(each))


def missing(api: Api, ref: RunRef) -> UnknownRun:
    """The error for a run that is not there, with the nearest name."""
    where = f"`echelon ps -a -A --on k8s` lists those of namespace {api.namespace}; --namespace names another"
    return unknown_run(ref.name, run_names(api), where)
