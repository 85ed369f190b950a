"""A run's Jobs are made: to wait for admission (`hold`), or to start at once (`start`).

With the first Job the run has its plan. The one Job of a run that starts at once is made so; several are made
to wait, and released when all are there, unless a client has stopped the run meanwhile. Then the record is
tied to them. Any step may be repeated by any client: a plan that a Job has is kept. So a client that is
killed in between leaves Jobs without pods, or half a gang that the next one which looks after the run, or
says the same command again, makes whole (`state/whole.py`).

A stop may be written at any moment. The answer to the last write, which ties the record, shows it: then the
Jobs that were made after it are ended here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from echelon.engines.kubernetes import control, ledger, names, objects, record
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.prerequisites import controllers, pod_security
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.render.keeper import level_of
from echelon.engines.kubernetes.render.manifests import Started
from echelon.engines.kubernetes.render.pod import RESTRICTED
from echelon.engines.kubernetes.suspended import is_suspended
from echelon.model.plan import Plan

_NONE: Mapping[str, Any] = MappingProxyType({})


def hold(
    api: Api, stored: Stored, plan: Plan, *, level: str = "", variables: Mapping[str, str] = _NONE
) -> list[Object]:
    """Make the Jobs of a run, which wait to be admitted, and tie its record to them. `variables` are for
    ranks whose user does not set them.
    """
    made = _make(api, stored, plan, _renderer(stored, level=level, variables=variables))
    objects.tie_record(api, ledger.with_jobs(stored, made), made)
    return made


def start(
    api: Api, stored: Stored, plan: Plan, *, level: str | None, variables: Mapping[str, str] = _NONE
) -> None:
    """Make the Jobs of a run, and let them start. `level` is of Pod Security, None where it may not be read:
    then it is known by whether pods are refused.
    """
    at = round(time.time(), 3)
    made = _made(api, stored, plan, _renderer(stored, level=level or "", variables=variables, at=at))
    selector = names.selector(stored.run.ref.name, names.WORKER)
    if level is None and pod_security.refuses(api, made, selector):
        render = _renderer(stored, level=RESTRICTED, variables=variables, at=at)
        objects.delete_jobs(api, made, stored, render(plan).beside)
        made = _made(api, stored, plan, render)
    controllers.check_taken_up(api, made)
    _finish(api, stored, made)


def complete(api: Api, stored: Stored, jobs: Sequence[Object]) -> None:
    """Do what a client that was cut off has left to do of a start."""
    plan = stored.run.plan
    if plan is not None and jobs:
        _finish(
            api,
            stored,
            _made(api, stored, plan, _renderer(stored, level=level_of(jobs[0]), at=stored.admitted)),
        )


def _renderer(
    stored: Stored, *, level: str, variables: Mapping[str, str] = _NONE, at: float | None = None
) -> Callable[[Plan], Started]:
    """What makes the objects of a plan: those of a run that is admitted `at` that moment, or that waits."""
    dialect = dialects.named(stored.dialect)

    def render(plan: Plan) -> Started:
        return manifests.started_objects(
            stored.run, plan, stored.shipped, dialect, security_level=level, variables=variables, at=at
        )

    return render


def _make(api: Api, stored: Stored, plan: Plan, render: Callable[[Plan], Started]) -> list[Object]:
    """Make what is to be made; what is there stays as it is, and a plan that the first Job has counts."""
    wanted = render(plan)
    for claim in wanted.claims:
        objects.create(api, claim, made_for=stored.uid)
    if wanted.task is not None:
        api.patch("ConfigMap", stored.run.ref.name, record.tasked(wanted.task), uid=stored.uid)
    first = objects.create_first(api, wanted, stored)
    there = ledger.with_jobs(stored, [first]).shape
    others = wanted.jobs if there in (None, plan) else render(there).jobs
    owner = objects.record_of(stored)
    return [first, *(objects.create(api, job, owner) for job in others[1:])]


def _made(api: Api, stored: Stored, plan: Plan, render: Callable[[Plan], Started]) -> list[Object]:
    """Make the Jobs of a run that starts at once, and let several go on that were made to wait for each
    other, unless the run was stopped.
    """
    jobs = _make(api, stored, plan, render)
    if len(jobs) > 1 and not _is_stopped(api, stored):
        return [_release(api, job) for job in jobs]
    return jobs


def _release(api: Api, job: Object) -> Object:
    if not is_suspended(job):
        return job
    change = dialects.of(job).suspended(suspend=False)
    return api.patch(job["kind"], job["metadata"]["name"], change, uid=job["metadata"]["uid"])


def _finish(api: Api, stored: Stored, jobs: list[Object]) -> None:
    """Tie the record to the Jobs; if the run was stopped while it was being started, end what was made."""
    stored = ledger.with_jobs(stored, jobs)
    answer = objects.tie_record(api, stored, jobs)
    if _is_stopped(api, stored, answer):
        control.end_run(api, stored, jobs)


def _is_stopped(api: Api, stored: Stored, known: Object | None = None) -> bool:
    """Whether the run has a stop, by its record as it is `known`, or as it is now."""
    ref = stored.run.ref
    now = views.find_alone(api, ref) if known is None else record.read(known, ref)
    return now is not None and now.stop is not None
