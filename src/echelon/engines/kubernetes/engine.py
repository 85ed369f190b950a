"""The Kubernetes engine: the same runs as pods of Indexed Jobs, with nothing installed in the cluster.

This half lives in the client. What lasts of a run is in its record (a ConfigMap), its Jobs and its pods; any
process with the same rights can follow, stop or fetch it. Verbs that look change nothing."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.engines.base import Saving, Taken, check_results, current_user, read_secrets, run_exists
from echelon.engines.kubernetes import abilities, control, names, objects, pod_security, record, tend
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, Conflict
from echelon.engines.kubernetes.client.kubeconfig import load_access
from echelon.engines.kubernetes.files import results
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.follow import follow_events, follow_logs, read_events
from echelon.engines.kubernetes.follow.listing import list_runs
from echelon.engines.kubernetes.follow.log_files import forget_complete
from echelon.engines.kubernetes.follow.saved_logs import read_with_saved
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
from echelon.engines.kubernetes.follow.view import View
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.record import Shipped, Stop, Stored
from echelon.engines.kubernetes.render import dialects, manifests
from echelon.engines.kubernetes.render.image import image_note
from echelon.engines.kubernetes.render.payload import load, weigh
from echelon.engines.kubernetes.render.pod import RESTRICTED, to_toleration
from echelon.engines.kubernetes.shell import PodShell
from echelon.engines.kubernetes.state import outcome, workers
from echelon.engines.machine import Submissions
from echelon.errors import Denied, EchelonError, StateTrouble
from echelon.model.cluster import Cluster
from echelon.model.copy import LeftOut
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.log import Line, LogLine, is_gap
from echelon.model.plan import Plan
from echelon.model.run import Record, RunRef, opening_status
from echelon.model.status import RunSummary, fold

if TYPE_CHECKING:
    from echelon.bundle import Bundle


class KubernetesEngine:
    """Runs in one namespace of one cluster."""

    def __init__(self, *, context: str | None = None, namespace: str | None = None) -> None:
        self._context = context
        self._namespace = namespace
        self._submissions = Submissions()

    @cached_property
    def api(self) -> Api:
        """The way to the cluster; nothing is read or asked before it is needed."""
        return Api(load_access(context=self._context, namespace=self._namespace))

    def cluster(self, *, gpus: bool = True, job: Job | None = None) -> Cluster:
        """The cluster's nodes that the job may use and who holds what of them, as far as we may look."""
        if job is None:
            return inventory.look(self.api, gpus=gpus)
        wanted = ",".join(f"{key}={value}" for key, value in sorted(job.pod.node_selector.items()))
        return inventory.look(
            self.api,
            gpus=gpus,
            selector=wanted,
            tolerations=[to_toleration(each) for each in job.pod.tolerations],
        )

    def record(self, job: Job, bundle: Bundle | None) -> RunRef:
        """Make the record, and all that does not depend on where the run will be."""
        secrets = read_secrets(job, os.environ)  # what is missing is reported now, not when the workers start
        ref, payload = self._ref(job.name), load(job, bundle)
        dialect = dialects.named("job")
        folder = Path(job.results or Path("runs") / job.name).absolute()
        known = views.find_object(self.api, ref.name)
        if known is not None:
            if not self._take_up(record.read(known, ref), job, weigh(payload)):
                raise run_exists(job.name)
            known = views.find_object(self.api, ref.name)
        if known is None:
            check_results(folder, resume=job.resume)
            run = Record(ref=replace(ref, context=None), job=job, created=_now(), owner=current_user())
            try:
                known = self.api.create(record.new(run, weigh(payload)))
            except AlreadyThere:
                raise run_exists(job.name) from None  # another client was faster by a moment
        stored = record.read(known, ref)
        self._submissions.remember(stored.uid, folder)
        gang = uuid.uuid4().hex + uuid.uuid4().hex
        try:
            shipped = manifests.shipped_objects(stored.run, payload, dialect, gang=gang, secrets=secrets)
            for obj in shipped:
                objects.create(self.api, obj, known)
        except BaseException:  # a quota, Ctrl-C: nothing is left behind
            with suppress(EchelonError):
                self.api.delete("ConfigMap", ref.name, uid=stored.uid)
            raise
        return ref

    def read(self, ref: RunRef) -> Record:
        """What was recorded; its results are where they belong on this machine."""
        stored = views.read_record(self.api, self._ref(ref.name))
        return replace(stored.run, results=str(self._home_of(stored)))

    def queue(self, ref: RunRef, reason: str) -> None:
        """Write down why the run must wait."""
        stored = views.read_record(self.api, self._ref(ref.name))
        if stored.run.plan is None and stored.stop is None:
            self.api.patch("ConfigMap", ref.name, record.queued(stored, reason, at=_now()))

    def start(self, ref: RunRef, plan: Plan) -> None:
        """Write the plan down and make the Jobs."""
        view = views.look(self.api, self._ref(ref.name))
        stored, jobs = view.stored, view.jobs
        if stored.stop is not None or (jobs and stored.run.plan is not None):
            objects.tie_record(self.api, stored, jobs)
            return
        if record.phase_of(stored, has_jobs=bool(jobs), now=time.time()) == "starting" and stored.run.plan:
            plan = stored.run.plan  # of a client that is starting it at this moment: both do the same
        else:
            self._check_taken(ref, plan)
        level, dialect = pod_security.level_of(self.api), dialects.named(stored.dialect)
        rendered = manifests.started_objects(
            stored.run, plan, stored.shipped, dialect, security_level=level or ""
        )
        change = record.admitted(plan, rendered.task, at=_now(), version=stored.version)
        try:
            stored = record.read(self.api.patch("ConfigMap", ref.name, change), stored.run.ref)
        except Conflict:  # another client has written meanwhile: a plan, a stop
            self.start(ref, plan)
            return
        for claim in rendered.claims:
            objects.create(self.api, claim)
        made = [objects.create(self.api, job) for job in rendered.jobs]
        selector = names.selector(ref.name, names.WORKER)
        if level is None and pod_security.refuses(self.api, made, selector):
            objects.delete_jobs(self.api, made)
            jobs = dialect.render(stored.run, plan, stored.shipped, security_level=RESTRICTED)
            made = [objects.create(self.api, job) for job in jobs]
        objects.tie_record(self.api, stored, made)

    def preview(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:
        """Every object as it would be made, secrets masked."""
        import yaml

        run = Record(ref=self._ref(job.name), job=job, created=0.0, owner=current_user())
        found = manifests.render(
            run,
            plan,
            weigh(load(job, bundle)),
            dialects.named("job"),
            security_level=pod_security.level_of(self.api) or "",
            namespace=self.api.namespace,
        )
        return yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True)

    def events(self, ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """The events in the record and the leader's log; while nothing runs yet, why."""
        mine = self._ref(ref.name)
        return follow_events(self.api, mine, timeout) if follow else read_events(self.api, mine)

    def logs(
        self,
        ref: RunRef,
        *,
        ranks: frozenset[int] | None = None,
        follow: bool = False,
        saving: Saving | None = None,
    ) -> Iterator[LogLine]:
        """The lines of every pod, merged; of some ranks, where lines of their workers are missing too."""
        stored = views.read_record(self.api, self._ref(ref.name))
        all_workers = opening_status(stored.run).workers
        chosen = {each.worker for each in all_workers if ranks is None or ranks.intersection(each.ranks)}
        lines: Iterator[Line]
        if follow:
            streamed = None
            if saving is not None and stored.collected is None and not results.stay_on_volume(stored.run):
                streamed = StreamedLogs(self._home_of(stored) / "logs", saving.tell)
            lines = follow_logs(self.api, stored.run.ref, streamed, saving.left if saving else None)
        else:
            pods = views.pods_of(self.api, stored)
            here = self._submissions.results_of(stored.uid) is not None
            here = here or results.fetched_to(stored, self._submissions) is not None
            logs = self._home_of(stored) / "logs" if here else None
            lines = read_with_saved(self.api, pods, logs, all_workers)
        for line in lines:
            if isinstance(line, LogLine) and (
                ranks is None or line.rank in ranks or (is_gap(line) and line.worker in chosen)
            ):
                yield line

    def fetch(
        self, ref: RunRef, path: str, to: Path, notice: Callable[[LeftOut], object] = lambda _: None
    ) -> Path:
        """Bring a file or folder of the results: from where they were collected to, or from the workers."""
        return results.fetch_results(self.api, self._submissions, self._ref(ref.name), path, to, notice)

    def notes(self, job: Job) -> tuple[str, ...]:
        """What was decided for the user that they should know."""
        return tuple(filter(None, (image_note(job), results.note_on_rights(self.api, job))))

    def collect(self, ref: RunRef, progress: Callable[[int, int], object] | None = None) -> Sequence[LeftOut]:
        """Fetch what the workers keep, once, and release them when all of it is here."""
        mine = self._ref(ref.name)
        left_out = results.collect_results(self.api, self._submissions, mine, progress)
        stored = views.find_record(self.api, mine)
        if stored is not None and stored.collected is not None:
            forget_complete(self._home_of(stored) / "logs")
        return left_out

    def tender(self, ref: RunRef, *, take_over: bool = False) -> tend.Tender | None:
        """Become the run's tender, if its claim is free and this machine submitted it, or `take_over`."""
        mine = self._ref(ref.name)
        uid = views.read_record(self.api, mine).uid
        if not take_over and self._submissions.results_of(uid) is None:
            return None
        found = tend.Tender(self.api, mine)
        return found if found.take() else None

    def stop(self, ref: RunRef, *, now: bool = False) -> None:
        """Write a stop into the record, then order the leader; where that cannot be, end the Jobs."""
        view = views.look(self.api, self._ref(ref.name))
        stored, run = view.stored, view.stored.run
        if self._end_of(view) is not None:
            return
        stop = replace(stored.stop or Stop(at=_now(), reason=f"stopped by {current_user()}"), now=now)
        if stored.stop is None:
            self.api.patch("ConfigMap", ref.name, record.stopping(stop))
        order = json.dumps({"at": stop.at, "reason": stop.reason, "now": now})
        try:
            ordered = bool(view.jobs) and control.reach_leader(self.api, stored, "stop", order)
        except Denied as error:
            ordered = False
            if results.keeps_results(run) and any(map(workers.is_running, view.pods)):
                reason = f"{stop.reason}; its results went with its pods: {error.message}"
                self.api.patch("ConfigMap", ref.name, record.stopping(replace(stop, reason=reason)))
        if view.jobs and not ordered:
            control.end_jobs(self.api, view.jobs)  # no leader to order, or no right to

    def remove(self, ref: RunRef) -> None:
        """Delete every object of a run that has ended; a user's volumes stay."""
        mine = self._ref(ref.name)
        try:
            view = views.look(self.api, mine)
        except StateTrouble:  # a record that cannot be read
            objects.remove(self.api, ref.name, keep_claim=True)
            return
        stored = view.stored
        phase = record.phase_of(stored, has_jobs=bool(view.jobs), now=time.time())
        if phase == "started":
            goes_on = self._end_of(view) is None
        else:
            goes_on = stored.stop is None and phase in ("queued", "starting")
        if goes_on:
            raise StateTrouble(f"run {ref.name!r} has not ended", hint=f"`echelon stop {ref.name}` first")
        results.check_fetched(self.api, mine)
        keep_claim = not results.has_own_claim(stored.run) or stored.collected is None
        kinds = dialects.named(stored.dialect).KINDS
        objects.remove(self.api, ref.name, keep_claim=keep_claim, kinds=kinds)
        self._submissions.forget(stored.uid)

    def runs(self) -> Sequence[RunSummary]:
        """Every run of the namespace, from three lists; of logs, only the last lines of some."""
        return list_runs(
            self.api, self._ref, lambda ref: fold(opening_status(self.read(ref)), self.events(ref))
        )

    def _end_of(self, view: View) -> Event | None:
        """How the run ended, by its objects; None if it has not, or if only its leader's log has it."""
        stored = view.stored
        end = stored.end or outcome.finished_event(stored, view.jobs, view.pods)
        if end is not None or not any(map(workers.has_started, view.pods)):
            return end
        return next((each for each in self.events(stored.run.ref) if each.kind == "finished"), None)

    def _home_of(self, stored: Stored) -> Path:
        """Where the run's results belong on this machine."""
        return results.local_folder(stored, self._submissions)

    def _ref(self, name: str) -> RunRef:
        return RunRef(engine="k8s", name=name, namespace=self.api.namespace, context=self._context)

    def _take_up(self, known: Stored, job: Job, shipped: Shipped) -> bool:
        """Whether what is there is the same submission, cut off before it started.

        If its code has changed, or it was stopped before it began, it is cleared away and begins again."""
        jobs = views.jobs_of(self.api, known)
        objects.tie_record(self.api, known, jobs)  # the client that made them may have been cut off after
        if known.run.job != job or jobs or (known.queued and known.stop is None):
            return False
        if known.stop is not None or known.shipped != shipped:
            objects.remove(self.api, job.name, keep_claim=True)
        return True

    def _check_taken(self, ref: RunRef, plan: Plan) -> None:
        wanted = {gpu for seat in plan.placement.seats for gpu in seat.gpus}
        if not wanted:
            return
        for node in self.cluster().nodes:
            for gpu in node.gpus:
                if gpu.id in wanted and gpu.holder not in (None, ref.name):
                    raise Taken(gpu.holder)

    # Abilities

    traits = abilities.TRAITS

    @cached_property
    def shell(self) -> PodShell:
        """Commands in the place of a rank."""
        return PodShell(lambda: self.api)

    @cached_property
    def volumes(self) -> abilities.ClusterVolumes:
        """The claims of the namespace."""
        return abilities.ClusterVolumes(lambda: self.api)

    @cached_property
    def checkup(self) -> abilities.ClusterCheckup:
        """Whether runs would work here."""
        return abilities.ClusterCheckup(lambda: self.api)

    @cached_property
    def usage(self) -> abilities.ClusterMeter:
        """Who uses the cluster."""
        return abilities.ClusterMeter(lambda: self.api)

    def names(self) -> Sequence[str]:
        """The names of the namespace's runs, from one list."""
        return views.run_names(self.api)

    def platforms(self) -> frozenset[str]:
        """The operating systems and processors of the nodes."""
        return abilities.read_platforms(self.api)


def _now() -> float:
    return round(time.time(), 3)
