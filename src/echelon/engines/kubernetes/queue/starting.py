"""The start of a run that is not held: its Jobs are made and, where there are several, released together.

Several Jobs are made suspended. When all are there, and no client has stopped the run meanwhile, they start;
then the record is marked as started and goes with them. Any step may be repeated by any client: the plan is
in the record. So a client that is killed in between leaves Jobs without pods, or half a gang that the next
one which looks after the run, or says the same command again, makes whole (`state/whole.py`).

A stop may be written at any moment. The answer to the last write, which marks the run as started, shows it:
then the Jobs that were made after it are ended here."""

from __future__ import annotations

from echelon.engines.kubernetes import control, objects, record
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.render.keeper import level_of
from echelon.engines.kubernetes.render.manifests import Started
from echelon.engines.kubernetes.suspended import is_suspended


def make(api: Api, stored: Stored, rendered: Started) -> list[Object]:
    """Make a run's Jobs, and let them start unless it was stopped; those that are there stay as they are."""
    made = objects.create_jobs(api, rendered, stored)
    if len(made) > 1:
        now = views.find_record(api, stored.run.ref)
        if now is not None and now.stop is None:
            made = [_released(api, job) for job in made]
    return made


def finish(api: Api, stored: Stored, jobs: list[Object]) -> None:
    """Mark the run as started; if it was stopped while it was being started, end what was made."""
    answer = objects.tie_record(api, stored, jobs)
    now = views.find_record(api, stored.run.ref) if answer is None else record.read(answer, stored.run.ref)
    if now is not None and now.stop is not None:
        control.end_run(api, now, jobs)


def complete(api: Api, stored: Stored, jobs: list[Object]) -> None:
    """Do what a client that was cut off has left to do of a start."""
    plan = stored.run.plan
    if plan is None or not jobs:
        return
    dialect = dialects.named(stored.dialect)
    rendered = manifests.started_objects(
        stored.run, plan, stored.shipped, dialect, security_level=level_of(jobs[0])
    )
    for claim in rendered.claims:
        objects.create(api, claim, made_for=stored.uid)
    finish(api, stored, make(api, stored, rendered))


def _released(api: Api, job: Object) -> Object:
    if not is_suspended(job):
        return job
    change = dialects.of(job).suspended(suspend=False)
    return api.patch(job["kind"], job["metadata"]["name"], change, uid=job["metadata"]["uid"])
