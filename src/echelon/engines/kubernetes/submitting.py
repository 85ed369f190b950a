"""Runs are made in a cluster: recorded, shipped, queued and started, so that any step may be repeated.

What lasts of a run is in its record (a ConfigMap) and its Jobs; what a submission has just made or looked at
is its `Submission`, so that the next call of the same process need not ask for it again. Only clients that
submit import what that takes."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from echelon.engines.base import Taken, current_user, run_exists
from echelon.engines.kubernetes import record
from echelon.engines.kubernetes.client import identity
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, NotThere, Object
from echelon.engines.kubernetes.client.beside import beside, together
from echelon.engines.kubernetes.client.place import USUAL, Place
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.machine import Submissions
from echelon.errors import Denied, EchelonError
from echelon.model.run import Record, RunRef

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from echelon.bundle import Bundle
    from echelon.engines.kubernetes.prerequisites.asked import Asked, Submission
    from echelon.engines.kubernetes.render.payload import Payload
    from echelon.model.engine.cluster import Cluster
    from echelon.model.job import Job
    from echelon.model.plan import Plan


class Submitting:
    """The runs of one namespace of one cluster, as far as they are made."""

    def __init__(
        self, place: Place = USUAL, *, shown: bool = False, connect: Callable[[], Api] | None = None
    ) -> None:
        self._place = place
        self._connect = connect or place.connect
        self._shown = shown  # on the caller's terminal, if it has one
        self._submissions = Submissions()
        self._starting = ""  # the run that this process starts, or was cut off in starting
        self._expected: Callable[[], Asked | None] | None = None  # asked before there is a job
        self._submission: Submission | None = None  # the one that was checked last

    @cached_property
    def api(self) -> Api:
        """The way to the cluster; nothing is read or asked before it is needed."""
        return self._connect()

    def cluster(self, *, gpus: bool = True, job: Job | None = None) -> Cluster:
        """The cluster's nodes that the job may use and who holds what of them, as far as we may look."""
        from echelon.engines.kubernetes import shapes
        from echelon.engines.kubernetes.nodes import inventory
        from echelon.engines.kubernetes.nodes.devices import with_devices
        from echelon.engines.kubernetes.render.pod import to_toleration
        from echelon.model.job import asks_for_gpus

        if job is None:
            return inventory.look(self.api, gpus=gpus)
        wanted = ",".join(f"{key}={value}" for key, value in sorted(job.pod.node_selector.items()))
        submission = None if wanted else self._submission
        found = inventory.look(
            self.api,
            gpus=gpus,
            gpu_type=job.resources.gpu_type,
            selector=wanted,
            tolerations=[to_toleration(each) for each in job.pod.tolerations],
            seen=submission.seen() if submission is not None else None,
        )
        if wanted and found.known and not found.nodes and not found.left_out:
            raise inventory.no_such_nodes(self.api.list_shapes("Node", shapes.Node), job.pod.node_selector)
        return with_devices(self.api, found) if asks_for_gpus(job) else found

    def adds_nodes(self) -> bool:
        """Whether an autoscaler is known to be there."""
        from echelon.engines.kubernetes.queue import scaling

        return scaling.adds_nodes(self.api)

    def expect(self) -> None:
        """Begin to ask what every submission asks: there will be one."""
        from echelon.engines.kubernetes.prerequisites.asked import Asked

        def ask() -> Asked | None:
            # A plugin for credentials is not started before they are needed: it may ask the user.
            return Asked(self.api) if self.api.access.login.plugin is None else None

        self._expected = beside(ask)

    def _ask(self) -> Asked:
        from echelon.engines.kubernetes.prerequisites.asked import Asked

        expected, self._expected = self._expected, None
        asked = expected() if expected is not None else None
        return asked if asked is not None and asked.is_fresh() else Asked(self.api)

    def check(self, job: Job, coming: Collection[tuple[str, str]] = ()) -> None:
        """Look at what the job names and is not `coming`, once for a job."""
        self._submit(job, coming)

    def _submit(self, job: Job, coming: Collection[tuple[str, str]] = ()) -> Submission:
        if self._submission is None or self._submission.job != job:
            from echelon.engines.kept_agent import shipped_agent
            from echelon.engines.kubernetes.prerequisites import namespace
            from echelon.engines.kubernetes.prerequisites.asked import Submission

            beside(shipped_agent)  # unless it is kept, to make it takes as long as the answers of the cluster
            asked = self._ask()
            is_free = beside(lambda: views.find_object(self.api, job.name) is None)
            may_execute = namespace.check(self.api, job, asked, coming)
            self._submission = Submission(self.api, job, asked, may_execute=may_execute, is_free=is_free)
        return self._submission

    def notes(self, job: Job) -> tuple[str, ...]:
        """What was decided for the user that they should know."""
        from echelon.engines.kubernetes.files.results import whereabouts
        from echelon.engines.kubernetes.prerequisites import outputs
        from echelon.engines.kubernetes.render.image import image_note

        on_rights = None if self._submit(job).may_execute else whereabouts.note_on_rights(job)
        on_files = whereabouts.note_on_restarts(job), whereabouts.note_on_checkpoints(job)
        on_output = outputs.note_on_output(self.api, job)
        return tuple(filter(None, (image_note(job), on_rights, *on_files, on_output)))

    def record(self, job: Job, bundle: Bundle | None, held: Plan | None = None) -> RunRef:
        """Make the record, and all that does not depend on where the run will be; with `held`, the Jobs too,
        which wait.
        """
        from echelon.engines import reservation
        from echelon.engines.job_secrets import read_secrets
        from echelon.engines.kubernetes import objects
        from echelon.engines.kubernetes.files.results.home import as_owner
        from echelon.engines.kubernetes.prerequisites import outputs
        from echelon.engines.kubernetes.render.payload import weigh
        from echelon.engines.kubernetes.taking_up import take_up
        from echelon.engines.results import reserve_results, results_folder

        submission = self._submit(job)
        job = _as_it_can_be(job, submission)
        secrets = read_secrets(job, os.environ)  # what is missing is reported now, not when the workers start
        ref, payload = self._ref(job.name), self._load(job, bundle)
        folder = results_folder(job)
        known, made = None if submission.is_free() else views.find_object(self.api, ref.name), False
        if known is not None:
            if not take_up(self.api, views.look(self.api, ref), job, weigh(payload)):
                raise run_exists(job.name, resume=job.resume)
            known = views.find_object(self.api, ref.name)
        if known is None:
            user = current_user()
            run = Record(
                ref=replace(ref, context=None),
                job=job,
                created=_now(),
                owner=submission.who() or user,
                user=user,
            )
            owner = as_owner(run, self.api.access.context)
            new = record.new(run, weigh(payload))
            try:
                with reserve_results(folder, owner, resume=job.resume):
                    known = objects.create_record(self.api, new)
            except AlreadyThere:
                reservation.forget(folder, owner)
                raise run_exists(job.name, resume=job.resume) from None  # another client was faster
            except BaseException:
                reservation.forget(folder, owner)
                raise
            made = True
        stored = record.read(known, ref)
        submission.made = stored if made and held is None else None
        try:
            outputs.check_output(self.api, job, ref, known)
            noted = beside(lambda: self._note(stored.uid, folder, bundle))  # it waits for the disk
            self._ship(known, stored, bundle, payload, secrets)
            if held is not None:
                self._hold(stored, held)
            noted()
        except BaseException:  # a quota, Ctrl-C: nothing is left behind
            reservation.forget(folder, as_owner(stored.run, self.api.access.context))
            with suppress(EchelonError):
                self.api.delete("ConfigMap", ref.name, uid=stored.uid)
                if held is not None or not made:
                    objects.remove(self.api, record.identity(stored))
            raise
        return ref

    def _note(self, uid: str, folder: Path, bundle: Bundle | None) -> None:
        """Keep on this machine what the cluster does not: where the results belong, and the code."""
        self._submissions.remember(uid, folder)
        if bundle is not None:
            self._submissions.keep_code(uid, bundle.data)

    def _ship(
        self,
        known: Object,
        stored: Stored,
        bundle: Bundle | None,
        payload: Payload,
        secrets: Mapping[str, str],
    ) -> None:
        """Make what goes with a record, in any order; what is there already stays as it is."""
        from echelon.engines.kubernetes import objects
        from echelon.engines.kubernetes.render import manifests

        job, gang = stored.run.job, uuid.uuid4().hex + uuid.uuid4().hex
        if bundle is not None and job.pod.code_volume is not None:
            from echelon.engines.kubernetes.files.code_volume import store_code

            store_code(self.api, job, bundle)
        dialect = dialects.named(job.pod.job_kind)
        made = manifests.shipped_objects(stored.run, payload, dialect, gang=gang, secrets=secrets)

        def make(kind: str) -> None:  # ConfigMaps, which may be large, one after the other
            for obj in (each for each in made if each["kind"] == kind):
                objects.create(self.api, obj, known, whole=False)

        together(*(partial(make, kind) for kind in dict.fromkeys(obj["kind"] for obj in made)))

    def _hold(self, stored: Stored, plan: Plan) -> None:
        from echelon.engines.kubernetes.queue import admitting

        admitting.hold(self.api, stored, plan, self._size_for(plan))

    def reopen(self, ref: RunRef, job: Job, held: Plan | None = None) -> None:
        """Remove the objects of the run, and write its record anew, in place: it is there at every moment.
        Its volume stays.
        """
        from echelon.engines import reservation
        from echelon.engines.job_secrets import read_secrets
        from echelon.engines.kubernetes.ending import clear_run
        from echelon.engines.kubernetes.files.results.home import as_owner
        from echelon.engines.kubernetes.files.resumable import check_results, resumable_code
        from echelon.engines.kubernetes.files.run_logs import RunLogs
        from echelon.engines.kubernetes.follow.mirror import Mirrors
        from echelon.engines.kubernetes.prerequisites import outputs
        from echelon.engines.kubernetes.render.payload import weigh
        from echelon.engines.results import reserve_results

        ref = self._ref(ref.name)
        view = views.look(self.api, ref)
        stored = view.stored
        # Else it was made anew by a call that was cut off.
        ended = stored.may_have_run or record.is_queued(stored) or bool(stored.stop or stored.end)
        kept = self._submissions.code_of(stored.uid)
        if ended:
            own = self._submissions.fetched(stored.uid, stored.run.created)
            check_results(stored, self._home_of(stored), own, self._submissions.safe_of(stored.uid))
        bundle = resumable_code(stored, kept)
        # Where results belong on this machine is not the record's.
        job = replace(job, results=stored.run.job.results)
        job = _as_it_can_be(job, self._submit(job))
        secrets, payload = read_secrets(job, os.environ), self._load(job, bundle)
        if ended:
            who, user = identity.ask(self.api), current_user()
            run = replace(stored.run, job=job, created=_now(), plan=None, owner=who() or user, user=user)
            home, owner = self._home_of(stored), as_owner(run, self.api.access.context)
            reservation.check_free(home, owner)
            outputs.check_output(self.api, job, ref)
            RunLogs(self.api, self._submissions, stored, Mirrors()).keep()
            clear_run(self.api, self._submissions, view)
            self._submissions.forget_fetched(stored.uid)
            if self._submissions.results_of(stored.uid) is not None:
                reserve_results(home, owner, resume=True).close()
            made = record.new(run, weigh(payload))
            change = record.renewed(views.get_object(self.api, ref), made)
            known = self.api.patch("ConfigMap", ref.name, change)
        else:
            known = views.get_object(self.api, ref)
        stored = record.read(known, ref)
        self._ship(known, stored, bundle, payload, secrets)
        if held is not None:
            self._hold(stored, held)

    def queue(self, ref: RunRef, reason: str) -> None:
        """Write down why the run must wait, with its Jobs."""
        from echelon.engines.kubernetes.queue import admitting

        admitting.queue(self.api, self._ref(ref.name), reason)

    def start(self, ref: RunRef, plan: Plan) -> None:
        """Make the Jobs with this plan; or start those that wait."""
        from echelon.engines.kept_agent import keep_agent

        self._starting = ref.name
        submission = self._submission_of(ref.name)
        made = submission.take_made() if submission is not None else None
        if made is not None:
            view = View(stored=made, jobs=(), pods=())
        else:
            view = views.look(self.api, self._ref(ref.name), pods=False)
        self._start(view, plan)
        self._starting = ""
        keep_agent()

    def _start(self, view: View, plan: Plan) -> None:
        from echelon.engines.kubernetes import objects
        from echelon.engines.kubernetes.queue import making
        from echelon.engines.kubernetes.state import whole

        stored, ref = view.stored, view.stored.run.ref
        if stored.started or stored.stop is not None:
            if stored.stop is None and whole.is_half_made(stored, view.jobs):
                making.complete(self.api, stored, view.jobs)  # of a client that does the same, or was cut off
            else:
                objects.tie_record(self.api, stored, view.jobs or view.waiting)
        elif view.waiting:
            from echelon.engines.kubernetes.queue import admitting, workload

            if workload.is_in(stored):
                admitting.start_in_kueue(self.api, stored, plan)
            else:
                admitting.start(self.api, ref, plan, lambda: self._check_taken(ref, plan))
        else:
            self._check_taken(ref, plan)
            level, variables = self._security_level(ref.name), self._size_for(plan)
            making.start(self.api, stored, plan, level=level, variables=variables)

    def preview(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:
        """What would run where, and what it gets, on a page."""
        from echelon.engines.kubernetes.render.summary import summarize

        return summarize(job, plan, bundle, self._rendered(job, plan, bundle))

    def objects(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:
        """Every object as it would be made, secrets masked."""
        import yaml

        found = self._rendered(job, plan, bundle)
        return yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True)

    def _rendered(self, job: Job, plan: Plan, bundle: Bundle | None) -> list[Object]:
        from echelon.engines.kubernetes.render import manifests
        from echelon.engines.kubernetes.render.payload import weigh

        user, submission = current_user(), self._submission_of(job.name)
        owner = (submission.who() if submission is not None else identity.known_as(self.api)) or user
        run = Record(ref=self._ref(job.name), job=job, created=0.0, owner=owner, user=user)
        found = manifests.render(
            run,
            plan,
            weigh(self._load(job, bundle)),
            dialects.named(job.pod.job_kind),
            security_level=self._security_level(job.name) or "",
            namespace=self.api.namespace,
        )
        return [self._as_served(each) if each["kind"] == "Workload" else each for each in found]

    def _as_served(self, asked: Object) -> Object:
        """What Kueue would be asked, as far as the user may read what that takes."""
        from echelon.engines.kubernetes.queue import workload

        with suppress(Denied, NotThere):
            return workload.as_served(self.api, asked)
        return asked

    def _load(self, job: Job, bundle: Bundle | None) -> Payload:
        from echelon.engines.kubernetes.render.payload import load

        payload = load(job, bundle)
        if bundle is not None and payload.sent:
            submission = self._submission_of(job.name) or self._submit(job)
            if not submission.may_execute:
                from echelon.bundle.travel import cannot_send

                raise cannot_send(
                    bundle, "you may not execute in pods (pods/exec), which is how it gets there"
                )
        return payload

    def _size_for(self, plan: Plan) -> dict[str, str]:
        from echelon.engines.terminal_size import size_for
        from echelon.model.world import rank_count

        return size_for(rank_count(plan.world), os.environ) if self._shown else {}

    def _security_level(self, name: str) -> str | None:
        """What the namespace enforces: as the check of that run has found it a moment ago, and anew after."""
        from echelon.engines.kubernetes.prerequisites import pod_security

        submission = self._submission_of(name)
        return submission.level() if submission is not None else pod_security.level_of(self.api)

    def _submission_of(self, name: str) -> Submission | None:
        submission = self._submission
        return submission if submission is not None and submission.job.name == name else None

    def _home_of(self, stored: Stored) -> Path:
        """Where the run's results belong on this machine."""
        from echelon.engines.kubernetes.files.results.home import local_folder

        return local_folder(stored, self._submissions)

    def _ref(self, name: str) -> RunRef:
        return RunRef(engine="k8s", name=name, namespace=self.api.namespace, context=self._place.context)

    def _check_taken(self, ref: RunRef, plan: Plan) -> None:
        wanted = {gpu for seat in plan.placement.seats for gpu in seat.gpus}
        if not wanted:
            return
        for node in self.cluster().nodes:
            for gpu in node.gpus:
                if gpu.id in wanted and gpu.holder not in (None, ref.name):
                    raise Taken(gpu.holder)


def _as_it_can_be(job: Job, submission: Submission) -> Job:
    """The job, whose workers hold no results where the user may not fetch them."""
    if submission.may_execute:
        return job
    from echelon.engines.kubernetes.files.results import whereabouts

    return whereabouts.without_linger(job)


def _now() -> float:
    return round(time.time(), 3)
