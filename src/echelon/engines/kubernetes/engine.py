"""The Kubernetes engine: the same runs as pods of Indexed Jobs, with nothing installed in the cluster.

This half lives in whoever asks. What lasts of a run is in its record (a ConfigMap), its Jobs and its pods;
any process with the same rights can follow, stop or fetch it."""

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

import msgspec

from echelon.engines.base import Taken, check_results, current_user, read_secrets, run_exists
from echelon.engines.kubernetes import abilities, control, names, objects, pod_security
from echelon.engines.kubernetes.client.api import AlreadyThere, Api, Conflict, Object
from echelon.engines.kubernetes.client.fields import json_object
from echelon.engines.kubernetes.client.kubeconfig import load_access
from echelon.engines.kubernetes.diagnose import Trouble
from echelon.engines.kubernetes.files import results
from echelon.engines.kubernetes.follow.follow import (
    Followed,
    follow_events,
    follow_logs,
    missing,
    read_events,
)
from echelon.engines.kubernetes.follow.listing import list_names, list_runs
from echelon.engines.kubernetes.follow.logs import Line, is_gap, read_all
from echelon.engines.kubernetes.follow.saved_logs import has_lost_lines, read_home
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.render import manifests
from echelon.engines.kubernetes.render.image import image_note
from echelon.engines.kubernetes.render.payload import Shipped, load, weigh
from echelon.engines.kubernetes.render.pod import RESTRICTED, to_toleration
from echelon.engines.kubernetes.shell import PodShell
from echelon.engines.kubernetes.state import history, outcome, workers
from echelon.errors import Denied, EchelonError, Refused, StateTrouble
from echelon.model.cluster import Cluster
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.log import LogLine
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
        secrets = read_secrets(job, os.environ)  # what is missing is said now, not when the workers start
        ref = self._ref(job.name)
        cargo = load(job, bundle)
        known = self._find(ref)
        if known is not None:
            if not self._take_up(known, ref, job, weigh(cargo)):
                raise run_exists(job.name)
            known = self._find(ref)
        if known is None:
            results = Path(job.results or Path("runs") / job.name).absolute()
            check_results(results, resume=job.resume)
            record = Record(
                ref=replace(ref, context=None),
                job=job,
                created=round(time.time(), 3),
                owner=current_user(),
                results=str(results),
            )
            try:
                known = self.api.create(manifests.record_object(record, weigh(cargo)))
            except AlreadyThere:
                raise run_exists(job.name) from None  # somebody was faster by a moment
        record = history.read_record(known, ref)
        gang = uuid.uuid4().hex + uuid.uuid4().hex
        try:
            for obj in manifests.shipped_objects(record, cargo, gang=gang, secrets=secrets):
                objects.create(self.api, obj, known)
        except BaseException:  # a quota, Ctrl-C: nothing is left behind
            with suppress(EchelonError):
                self.api.delete("ConfigMap", ref.name, uid=known["metadata"]["uid"])
            raise
        return ref

    def read(self, ref: RunRef) -> Record:
        """What was recorded; its results are where they belong on this machine."""
        record = history.read_record(self.record_of(ref), self._ref(ref.name))
        return replace(record, results=str(results.home_of(record)))

    def queue(self, ref: RunRef, reason: str) -> None:
        """Write down why the run must wait; whoever follows it tries again."""
        obj = self.record_of(ref)
        if names.PLAN_KEY in (obj.get("data") or {}) or history.annotation(obj, names.STOP):
            return
        told = json.loads((obj.get("data") or {}).get(names.QUEUED_KEY, "[]"))
        now = round(time.time(), 3)
        change: Object = {"metadata": {"annotations": {names.TENDED: str(now)}}}
        if not told or told[-1]["reason"] != reason:
            told.append({"at": now, "reason": reason})
            change["data"] = {names.QUEUED_KEY: json.dumps(told)}
        self.api.patch("ConfigMap", ref.name, change)

    def start(self, ref: RunRef, plan: Plan) -> None:
        """Write the plan down and make the Jobs."""
        obj = self.record_of(ref)
        jobs = self.jobs_of(ref)
        record = history.read_record(obj, self._ref(ref.name))
        if history.annotation(obj, names.STOP) or (jobs and record.plan is not None):
            objects.adopt(self.api, obj, jobs)
            return
        if record.plan is None or not history.is_being_started(obj):
            self._check_taken(ref, plan)
        else:
            plan = record.plan  # of somebody who is starting it at this moment: both do the same
        level, shipped = pod_security.level_of(self.api), manifests.read_shipped(obj)
        rendered = manifests.started_objects(record, plan, shipped, security_level=level or "")
        change: Object = {
            "metadata": {
                "annotations": {names.ADMITTED: str(round(time.time(), 3))},
                "resourceVersion": obj["metadata"]["resourceVersion"],
            },
            "data": {
                names.PLAN_KEY: msgspec.json.encode(plan).decode(),
                names.TASK_KEY: json.dumps(rendered.task),
            },
        }
        try:
            obj = self.api.patch("ConfigMap", ref.name, change)
        except Conflict:  # somebody has written meanwhile: a plan, a word to stop
            self.start(ref, plan)
            return
        for claim in rendered.claims:
            objects.create(self.api, claim)
        made = [objects.create(self.api, job) for job in rendered.jobs]
        selector = names.selector(ref.name, names.WORKER)
        if level is None and pod_security.refuses(self.api, made, selector):
            objects.delete_jobs(self.api, made)
            jobs = manifests.job_objects(record, plan, shipped, security_level=RESTRICTED)
            made = [objects.create(self.api, job) for job in jobs]
        objects.adopt(self.api, obj, made)

    def preview(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:
        """Every object as it would be made, secrets masked."""
        import yaml

        record = Record(
            ref=self._ref(job.name),
            job=job,
            created=0.0,
            owner=current_user(),
            results=str(Path(job.results or Path("runs") / job.name).absolute()),
        )
        shipped = weigh(load(job, bundle))
        found = manifests.render(
            record,
            plan,
            shipped,
            security_level=pod_security.level_of(self.api) or "",
            namespace=self.api.namespace,
        )
        return yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True)

    def events(self, ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """The record's and the leader's words; while nothing runs yet, why."""
        following = self._followed(ref)
        return follow_events(following, timeout) if follow else read_events(following)

    def logs(
        self, ref: RunRef, *, ranks: frozenset[int] | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        """The lines of every pod, merged; of some ranks, where lines of their workers are missing too."""
        everybody = opening_status(self.read(ref)).workers
        chosen = {each.worker for each in everybody if ranks is None or ranks.intersection(each.ranks)}
        lines: Iterator[Line]
        if follow:
            lines = follow_logs(self._followed(ref))
        else:
            pods, home = self.pods_of(ref), results.fetched_to(self, self._ref(ref.name))
            lost = home is not None and has_lost_lines(self.api, pods)
            lines = read_home(home / "logs", everybody) if home and lost else read_all(self.api, pods)
        for line in lines:
            if isinstance(line, LogLine) and (
                ranks is None or line.rank in ranks or (is_gap(line) and line.worker in chosen)
            ):
                yield line

    def fetch(self, ref: RunRef, path: str, to: Path) -> Path:
        """Bring a file or folder of the results: from where they were collected to, or from the workers."""
        return results.fetch_results(self, self._ref(ref.name), path, to)

    def notes(self, job: Job) -> tuple[str, ...]:
        """What was decided for the user that they should know."""
        return tuple(filter(None, (image_note(job), results.note_on_rights(self.api, job))))

    def collect(self, ref: RunRef, progress: Callable[[int, int], object] | None = None) -> None:
        """Fetch what the workers keep, once, and let them go."""
        results.collect_results(self, self._ref(ref.name), progress)

    def stop(self, ref: RunRef, *, now: bool = False) -> None:
        """Leave word in the record, then tell the leader; where that cannot be, end the Jobs."""
        obj = self.record_of(ref)
        jobs, pods = self.jobs_of(ref), self.pods_of(ref)
        record = history.read_record(obj, self._ref(ref.name))
        if self.end_of(record, obj, jobs, pods) is not None:
            return
        left = history.annotation(obj, names.STOP)
        word = json_object(left) if left else {"reason": f"stopped by {current_user()}"}
        word = {"at": round(time.time(), 3), **word, "now": now}
        if not left:
            control.leave_word(self.api, record, word)
        try:
            told = bool(jobs) and control.reach_leader(self.api, record, "stop", json.dumps(word))
        except Denied as error:
            told = False
            if results.keeps_results(record) and any(map(workers.is_running, pods)):
                word["reason"] = f"{word['reason']}; its results went with its pods: {error.message}"
                control.leave_word(self.api, record, word)
        if jobs and not told:
            control.end_jobs(self.api, jobs)  # nobody to tell, or no right to

    def remove(self, ref: RunRef) -> None:
        """Delete every object of a run that has ended; a user's volumes stay."""
        obj = self.record_of(ref)
        jobs, pods = self.jobs_of(ref), self.pods_of(ref)
        try:
            record = history.read_record(obj, self._ref(ref.name))
        except StateTrouble:
            objects.remove(self.api, ref.name, keep_claim=True)
            return
        data, stopped = obj.get("data") or {}, history.annotation(obj, names.STOP) is not None
        if jobs or history.was_started(obj):
            goes_on = self.end_of(record, obj, jobs, pods) is None
        else:
            in_line = names.QUEUED_KEY in data and names.PLAN_KEY not in data
            goes_on = not stopped and (in_line or history.is_being_started(obj))
        if goes_on:
            raise StateTrouble(f"run {ref.name!r} has not ended", hint=f"`echelon stop {ref.name}` first")
        results.check_fetched(self, record)
        collected = history.annotation(obj, names.COLLECTED) is not None
        objects.remove(self.api, ref.name, keep_claim=not (results.has_own_claim(record) and collected))

    def runs(self) -> Sequence[RunSummary]:
        """Every run of the namespace, from three lists; of logs, only the last line of a run that seems to go
        on.
        """
        return list_runs(
            self.api, self._ref, lambda ref: fold(opening_status(self.read(ref)), self.events(ref))
        )

    # What else there is to know of a run

    def end_of(
        self, record: Record, obj: Object, jobs: Sequence[Object], pods: Sequence[Object]
    ) -> Event | None:
        """How the run ended, as its objects tell; None if it has not, or if only its leader's log knows."""
        end = history.written_end(obj) or outcome.finished_event(record, obj, jobs, pods)
        if end is not None or not workers.leader_pods(pods):
            return end
        return next((each for each in self.events(record.ref) if each.kind == "finished"), None)

    def record_of(self, ref: RunRef) -> Object:
        """The record's object; raises UnknownRun, which suggests the nearest name."""
        found = self._find(ref)
        if found is None:
            raise missing(self._followed(ref))
        return found

    def jobs_of(self, ref: RunRef) -> list[Object]:
        """The run's Jobs."""
        return self.api.list("Job", selector=names.selector(ref.name, names.WORKER)).items

    def pods_of(self, ref: RunRef) -> list[Object]:
        """The run's pods, those that were replaced too as long as they are there."""
        return self.api.list("Pod", selector=names.selector(ref.name, names.WORKER)).items

    def _ref(self, name: str) -> RunRef:
        return RunRef(engine="k8s", name=name, namespace=self.api.namespace, context=self._context)

    def _find(self, ref: RunRef) -> Object | None:
        found = self.api.find("ConfigMap", ref.name)
        ours = found is not None and (found["metadata"].get("labels") or {}).get(names.RUN) == ref.name
        if found is not None and not ours:
            raise Refused(
                f"a ConfigMap named {ref.name!r} is in the namespace, and it is not echelon's",
                hint="choose another name for the run with --name",
            )
        return found

    def _take_up(self, known: Object, ref: RunRef, job: Job, shipped: Shipped) -> bool:
        """Whether what is there is the same submission, cut off before it started.

        If its code has changed, or it was stopped before it began, it is cleared away and begins again."""
        record = history.read_record(known, ref)
        in_line = names.QUEUED_KEY in (known.get("data") or {})
        stopped = history.annotation(known, names.STOP) is not None
        if jobs := self.jobs_of(ref):
            objects.adopt(self.api, known, jobs)  # whoever made them may have been cut off right after
        if record.job != job or jobs or (in_line and not stopped):
            return False
        if stopped or manifests.read_shipped(known) != shipped:
            objects.remove(self.api, ref.name, keep_claim=True)
        return True

    def _check_taken(self, ref: RunRef, plan: Plan) -> None:
        wanted = {gpu for seat in plan.placement.seats for gpu in seat.gpus}
        if not wanted:
            return
        for node in self.cluster().nodes:
            for gpu in node.gpus:
                if gpu.id in wanted and gpu.holder not in (None, ref.name):
                    raise Taken(gpu.holder)

    def _followed(self, ref: RunRef) -> Followed:
        return Followed(api=self.api, ref=self._ref(ref.name), give_up=self._give_up)

    def _give_up(self, record: Record, trouble: Trouble) -> None:
        """End a run that waits for what will not come, and let it say why."""
        word = {"at": round(time.time(), 3), "reason": trouble.sentence, "outcome": "failed"}
        control.leave_word(self.api, record, word)
        control.end_jobs(self.api, self.jobs_of(record.ref))

    # Abilities

    traits = abilities.TRAITS

    @cached_property
    def shell(self) -> PodShell:
        """Commands in the place of a rank."""
        return PodShell(lambda: self.api, self.read)

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
        return list_names(self.api)

    def platforms(self) -> frozenset[str]:
        """The operating systems and processors of the nodes."""
        return abilities.read_platforms(self.api)
