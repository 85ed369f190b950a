"""Runs are made in a cluster: recorded, shipped, queued and started, so that any step may be repeated.

What lasts of a run is in its record (a ConfigMap) and its Jobs; what a submission has just made or looked at
is remembered here for the next call of the same process, so that it need not be asked for again."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.engines import reservation
from echelon.engines.base import Taken, current_user, run_exists
from echelon.engines.job_secrets import read_secrets
from echelon.engines.kept_agent import keep_agent, shipped_agent
from echelon.engines.kubernetes import objects, record
from echelon.engines.kubernetes.client import identity
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, Object
from echelon.engines.kubernetes.client.beside import beside, together
from echelon.engines.kubernetes.client.place import USUAL, Place
from echelon.engines.kubernetes.files.results import whereabouts
from echelon.engines.kubernetes.files.results.home import as_owner, local_folder
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.offers import Offers
from echelon.engines.kubernetes.prerequisites import namespace, outputs, pod_security
from echelon.engines.kubernetes.prerequisites.asked import Asked
from echelon.engines.kubernetes.queue import making, scaling
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.render.image import image_note
from echelon.engines.kubernetes.render.payload import Payload, load, weigh
from echelon.engines.kubernetes.render.pod import to_toleration
from echelon.engines.kubernetes.state import whole
from echelon.engines.kubernetes.taking_up import take_up
from echelon.engines.machine import Submissions
from echelon.engines.results import reserve_results, results_folder
from echelon.engines.terminal_size import size_for
from echelon.errors import EchelonError
from echelon.model.engine.cluster import Cluster
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.run import Record, RunRef
from echelon.model.world import rank_count

if TYPE_CHECKING:
    from echelon.bundle import Bundle


class Submitting(Offers):
    """The runs of one namespace of one cluster, as far as they are made."""

    def __init__(
        self, place: Place = USUAL, *, shown: bool = False, connect: Callable[[], Api] | None = None
    ) -> None:
        self._place = place
        self._connect = connect or place.connect
        self._shown = shown  # on the caller's terminal, if it has one
        self._submissions = Submissions()
        self._starting = ""  # the run that this process starts, or was cut off in starting
        self._made: Stored | None = None  # the record that was made last, and has not been started
        self._expected: Callable[[], Asked | None] | None = None  # asked before there is a job
        self._checked: tuple[Job, bool] | None = None  # and whether the user may execute in pods
        # What was asked for the check, until it is used:
        self._level: Callable[[], str | None] | None = None  # of Pod Security
        self._who: Callable[[], str] | None = None  # the cluster takes us for
        self._seen: Callable[[], inventory.Seen] | None = None  # of the nodes
        self._is_free: Callable[[], bool] | None = None  # the job's name

    @cached_property
    def api(self) -> Api:
        """The way to the cluster; nothing is read or asked before it is needed."""
        return self._connect()

    def cluster(self, *, gpus: bool = True, job: Job | None = None) -> Cluster:
        """The cluster's nodes that the job may use and who holds what of them, as far as we may look."""
        if job is None:
            return inventory.look(self.api, gpus=gpus)
        wanted = ",".join(f"{key}={value}" for key, value in sorted(job.pod.node_selector.items()))
        seen, self._seen = self._seen, None
        found = inventory.look(
            self.api,
            gpus=gpus,
            gpu_type=job.resources.gpu_type,
            selector=wanted,
            tolerations=[to_toleration(each) for each in job.pod.tolerations],
            seen=seen() if seen is not None and not wanted else None,
        )
        if wanted and found.known and not found.nodes and not found.left_out:
            raise inventory.no_such_nodes(self.api.list("Node").items, job.pod.node_selector)
        return found

    def adds_nodes(self) -> bool:
        """Whether an autoscaler is known to be there."""
        return scaling.adds_nodes(self.api)

    def expect(self) -> None:
        """Begin to ask what every submission asks: there will be one."""

        def ask() -> Asked | None:
            # A plugin for credentials is not started before they are needed: it may ask the user.
            return Asked(self.api) if self.api.access.login.plugin is None else None

        self._expected = beside(ask)

    def _ask(self) -> Asked:
        expected, self._expected = self._expected, None
        asked = expected() if expected is not None else None
        return asked if asked is not None and asked.is_fresh() else Asked(self.api)

    def check(self, job: Job, coming: Collection[tuple[str, str]] = ()) -> None:
        """Look at what the job names and is not `coming`, once for a job."""
        if self._checked is None or self._checked[0] != job:
            beside(shipped_agent)  # unless it is kept, to make it takes as long as the answers of the cluster
            asked = self._ask()
            self._is_free = beside(lambda: views.find_object(self.api, job.name) is None)
            self._level, self._who, self._seen = asked.level, asked.who, asked.seen
            self._checked = job, namespace.check(self.api, job, asked, coming)

    def notes(self, job: Job) -> tuple[str, ...]:
        """What was decided for the user that they should know."""
        on_rights = None if self._may_execute(job) else whereabouts.note_on_rights(job)
        on_restarts, on_output = whereabouts.note_on_restarts(job), outputs.note_on_output(self.api, job)
        return tuple(filter(None, (image_note(job), on_rights, on_restarts, on_output)))

    def record(self, job: Job, bundle: Bundle | None, held: Plan | None = None) -> RunRef:
        """Make the record, and all that does not depend on where the run will be; with `held`, the Jobs too,
        which wait.
        """
        job = self._as_it_can_be(job)
        secrets = read_secrets(job, os.environ)  # what is missing is reported now, not when the workers start
        who = self._ask_who()
        ref, payload = self._ref(job.name), self._load(job, bundle)
        folder = results_folder(job)
        known, made = None if self._was_free(ref.name) else views.find_object(self.api, ref.name), False
        if known is not None:
            if not take_up(self.api, views.look(self.api, ref), job, weigh(payload)):
                raise run_exists(job.name, resume=job.resume)
            known = views.find_object(self.api, ref.name)
        if known is None:
            user = current_user()
            run = Record(
                ref=replace(ref, context=None), job=job, created=_now(), owner=who() or user, user=user
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
        self._made = stored if made and held is None else None
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
        from echelon.engines.kubernetes.ending import clear_run
        from echelon.engines.kubernetes.files.resumable import resumable_code
        from echelon.engines.kubernetes.files.run_logs import RunLogs
        from echelon.engines.kubernetes.follow.mirror import Mirrors

        ref = self._ref(ref.name)
        view = views.look(self.api, ref)
        stored = view.stored
        # Else it was made anew by a call that was cut off.
        ended = stored.may_have_run or record.is_queued(stored) or bool(stored.stop or stored.end)
        kept = self._submissions.code_of(stored.uid)
        bundle = resumable_code(stored, self._home_of(stored), kept, began=ended)
        # Where results belong on this machine is not the record's.
        job = self._as_it_can_be(replace(job, results=stored.run.job.results))
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
        self._starting = ref.name
        self._start(self._just_made(ref) or views.look(self.api, self._ref(ref.name), pods=False), plan)
        self._starting = ""
        keep_agent()

    def _start(self, view: View, plan: Plan) -> None:
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
            level, variables = self._security_level(), self._size_for(plan)
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
        user = current_user()
        owner = self._ask_who()() or user
        run = Record(ref=self._ref(job.name), job=job, created=0.0, owner=owner, user=user)
        return manifests.render(
            run,
            plan,
            weigh(self._load(job, bundle)),
            dialects.named(job.pod.job_kind),
            security_level=self._security_level() or "",
            namespace=self.api.namespace,
        )

    def _load(self, job: Job, bundle: Bundle | None) -> Payload:
        payload = load(job, bundle)
        if bundle is not None and payload.sent and not self._may_execute(job):
            from echelon.bundle.travel import cannot_send

            raise cannot_send(bundle, "you may not execute in pods (pods/exec), which is how it gets there")
        return payload

    def _size_for(self, plan: Plan) -> dict[str, str]:
        return size_for(rank_count(plan.world), os.environ) if self._shown else {}

    def _security_level(self) -> str | None:
        """What the namespace enforces: as the check has found it a moment ago, and anew after that."""
        asked, self._level = self._level, None
        return asked() if asked is not None else pod_security.level_of(self.api)

    def _ask_who(self) -> Callable[[], str]:
        """Whom the cluster takes us for: as it was asked a moment ago, and anew after that."""
        asked, self._who = self._who, None
        return asked if asked is not None else identity.ask(self.api)

    def _was_free(self, name: str) -> bool:
        """Whether the check a moment ago has found no run of that name; another's is met when it is made."""
        asked, self._is_free = self._is_free, None
        checked = self._checked is not None and self._checked[0].name == name
        return checked and asked is not None and asked()

    def _may_execute(self, job: Job) -> bool:
        self.check(job)
        return self._checked is not None and self._checked[1]

    def _home_of(self, stored: Stored) -> Path:
        """Where the run's results belong on this machine."""
        return local_folder(stored, self._submissions)

    def _ref(self, name: str) -> RunRef:
        return RunRef(engine="k8s", name=name, namespace=self.api.namespace, context=self._place.context)

    def _as_it_can_be(self, job: Job) -> Job:
        """The job, whose workers hold no results where the user may not fetch them."""
        return job if self._may_execute(job) else whereabouts.without_linger(job)

    def _just_made(self, ref: RunRef) -> View | None:
        """The run whose record this process has just made, which need not be read: whatever has become of it
        since, the first write to it tells.
        """
        made, self._made = self._made, None
        if made is None or made.run.ref.name != ref.name:
            return None
        return View(stored=made, jobs=(), pods=())

    def _check_taken(self, ref: RunRef, plan: Plan) -> None:
        wanted = {gpu for seat in plan.placement.seats for gpu in seat.gpus}
        if not wanted:
            return
        for node in self.cluster().nodes:
            for gpu in node.gpus:
                if gpu.id in wanted and gpu.holder not in (None, ref.name):
                    raise Taken(gpu.holder)


def _now() -> float:
    return round(time.time(), 3)
