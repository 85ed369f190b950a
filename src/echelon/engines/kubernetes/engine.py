"""The Kubernetes engine: the same runs as pods of Indexed Jobs, with nothing installed in the cluster.

This half lives in the client. What lasts of a run is in its record (a ConfigMap), its Jobs and its pods; any
process with the same rights can follow, stop or fetch it. Verbs that look change nothing.

What follows, stops and fetches runs is imported where it is used, so that a submission starts sooner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.engines.base import Saving, TakeOver, current_user
from echelon.engines.kubernetes.abilities import cluster
from echelon.engines.kubernetes.client import identity
from echelon.engines.kubernetes.client.place import USUAL, Place
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.mirror import Mirrors
from echelon.engines.kubernetes.submitting import Submitting
from echelon.errors import InvalidJob
from echelon.model.copy import LeftOut
from echelon.model.engine.traits import Where
from echelon.model.event import Event
from echelon.model.output.log import LogLine
from echelon.model.run import Record, RunRef, StopSignal, opening_status
from echelon.model.status import RunSummary, Status, fold

if TYPE_CHECKING:
    from echelon.engines.kubernetes.abilities.applying import ClusterManifests
    from echelon.engines.kubernetes.abilities.ports import PodPorts
    from echelon.engines.kubernetes.abilities.samples import PodSampling
    from echelon.engines.kubernetes.abilities.shell import PodShell
    from echelon.engines.kubernetes.abilities.shipped import ShippedRuns
    from echelon.engines.kubernetes.client.api import Api
    from echelon.engines.kubernetes.files.results.waiting_for_owner import Wanted
    from echelon.engines.kubernetes.files.sending import Sending
    from echelon.engines.kubernetes.notebook.servers import PodNotebooks
    from echelon.engines.kubernetes.queue.looking import ClusterQueue
    from echelon.engines.kubernetes.upkeep.tend import Tender


class KubernetesEngine(Submitting):
    """Runs in one namespace of one cluster."""

    traits = cluster.TRAITS

    def __init__(
        self, place: Place = USUAL, *, shown: bool = False, connect: Callable[[], Api] | None = None
    ) -> None:
        super().__init__(place, shown=shown, connect=connect)
        self._mirrors = Mirrors()
        self._wanted: dict[str, Wanted] = {}  # claims of other processes that are to be taken over

    def read(self, ref: RunRef) -> Record:
        """What was recorded; its results are where they belong on this machine."""
        from echelon.engines.kubernetes.render.image import image_of

        stored = views.read_record(self.api, self._ref(ref.name))
        job = stored.run.job
        with suppress(InvalidJob):  # of a newer version, whose frameworks are not all known here
            job = replace(job, pod=replace(job.pod, image=image_of(job)))
        return replace(stored.run, job=job, results=str(self._home_of(stored)))

    def events(self, ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """The events in the record and the leader's log; while nothing runs yet, why."""
        from echelon.engines.kubernetes.follow.follow import follow_events, read_events

        mine = self._ref(ref.name)
        if not follow:
            return read_events(self.api, mine)
        return follow_events(self.api, mine, timeout, self._mirrors)

    def logs(
        self,
        ref: RunRef,
        *,
        ranks: frozenset[int] | None = None,
        follow: bool = False,
        saving: Saving | None = None,
    ) -> Iterator[LogLine]:
        """The lines of every pod, merged; of some ranks, where lines of their workers are missing too."""
        from echelon.engines.kubernetes.files.run_logs import RunLogs

        stored = views.read_record(self.api, self._ref(ref.name))
        found = RunLogs(self.api, self._submissions, stored, self._mirrors)
        return found.read(ranks, saving, follow=follow)

    def output(self, ref: RunRef, *, follow: bool = True, saving: Saving | None = None) -> Iterator[LogLine]:
        """The lines of every pod, merged."""
        return self.logs(ref, follow=follow, saving=saving)

    def earlier_output(self, ref: RunRef) -> Iterator[LogLine]:
        """The lines of earlier starts, where the run was resumed on this machine."""
        from echelon.engines.kubernetes.files.run_logs import RunLogs

        stored = views.read_record(self.api, self._ref(ref.name))
        return RunLogs(self.api, self._submissions, stored, self._mirrors).earlier()

    def earlier_events(self, ref: RunRef) -> Iterator[Event]:
        """The events of earlier starts, likewise."""
        from echelon.engines.kubernetes.files.earlier_starts import read_kept

        stored = views.read_record(self.api, self._ref(ref.name))
        return (each for each in read_kept(self._submissions, stored) if isinstance(each, Event))

    def recent(self, ref: RunRef, worker: int) -> Iterator[LogLine]:
        """The last lines of a worker's newest pod; where it has none, of the logs on this machine."""
        from echelon.engines.kubernetes.files.run_logs import RunLogs

        stored = views.read_record(self.api, self._ref(ref.name))
        return RunLogs(self.api, self._submissions, stored, self._mirrors).recent(worker)

    def fetch(
        self,
        ref: RunRef,
        path: str,
        to: Path,
        notice: Callable[[LeftOut], object] = lambda _: None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> Path:
        """Bring a file or folder of the results: from where they were collected to, or from the workers."""
        from echelon.engines.kubernetes.files.results.fetching import fetch_results

        return fetch_results(self.api, self._submissions, self._ref(ref.name), path, to, notice, tell)

    def seals(self, ref: RunRef) -> None:
        """Nothing: any user who may make pods in the namespace can write what ranks write."""

    def collect(self, ref: RunRef, progress: Callable[[int, int], object] | None = None) -> Sequence[LeftOut]:
        """Fetch what the workers keep, once, and release them when all of it is here."""
        from echelon.engines.kubernetes.files.results.collecting import collect_results
        from echelon.engines.kubernetes.follow.log_files import forget_complete

        mine = self._ref(ref.name)
        wanted = self._wanted.get(mine.name)
        try:
            left_out = collect_results(self.api, self._submissions, mine, progress, wanted)
        finally:
            if wanted is not None and wanted.tender.held:  # no caller knows that it was taken in here
                wanted.tender.release()
        stored = views.find_alone(self.api, mine)
        if stored is not None and self._submissions.fetched(stored.uid, stored.run.created) is not None:
            forget_complete(self._home_of(stored) / "logs")
            if stored.end is not None and stored.end.outcome == "succeeded":
                self._submissions.forget_code(stored.uid)
        return left_out

    def tender(self, ref: RunRef, *, take_over: TakeOver | None = None) -> Tender | None:
        """Become the run's tender, if its claim is free and this machine submitted it, or `take_over`."""
        from echelon.engines.kubernetes.files.results.waiting_for_owner import Wanted
        from echelon.engines.kubernetes.upkeep.tend import Tender

        mine = self._ref(ref.name)
        uid = views.read_alone(self.api, mine).uid
        if take_over is None and self._submissions.results_of(uid) is None:
            return None
        found = Tender(self.api, mine)
        if found.take():
            return found
        if take_over is not None:
            self._wanted[mine.name] = Wanted(tender=found, asked=take_over)
        return None

    def stop(self, ref: RunRef, *, signal: StopSignal = "SIGTERM", grace: float | None = None) -> str | None:
        """Write a stop into the record, then order the leader; where that cannot be, end the Jobs."""
        from echelon.engines.kubernetes.ending import stop_run

        submission = self._submission_of(ref.name)
        if submission is not None:
            submission.made = None  # a start that comes now has to read it
        return stop_run(self.api, self._ref(ref.name), signal, grace, patient=ref.name != self._starting)

    def remove(
        self, ref: RunRef, tell: Callable[[str], object] = lambda _: None, *, force: bool = False
    ) -> Sequence[str]:
        """Delete every object of a run that has ended; a user's volumes stay, and one that was made for the
        run until its results are fetched to this machine. `tell` gets what has its name, and is not its own.
        """
        from echelon.engines.kubernetes.ending import remove_run

        return remove_run(self.api, self._submissions, self._ref(ref.name), tell, force=force)

    def runs(self) -> Sequence[RunSummary]:
        """Every run of the namespace, from a few lists; of logs, only the last lines of some."""
        from echelon.engines.kubernetes.follow.listing import is_own, list_runs

        who = identity.ask(self.api)

        def is_mine(row: RunSummary, uid: str) -> bool:
            # The user who has spoiled a record may have written another owner, too.
            submitted = row.state == "damaged" and self._submissions.results_of(uid) is not None
            return submitted or is_own(row, who(), current_user())

        def look(ref: RunRef) -> Status:
            return fold(opening_status(self.read(ref)), self.events(ref))

        return list_runs(self.api, self._ref, look, is_mine)

    @property
    def where(self) -> Where:
        """The context, which the kubeconfig may have chosen, and the namespace."""
        return Where(context=self.api.access.context, namespace=self.api.namespace)

    @cached_property
    def ports(self) -> PodPorts:
        """Ports of workers, on this machine."""
        from echelon.engines.kubernetes.abilities.ports import PodPorts

        return PodPorts(lambda: self.api)

    @cached_property
    def shell(self) -> PodShell:
        """Commands in the place of a rank."""
        from echelon.engines.kubernetes.abilities.shell import PodShell

        return PodShell(lambda: self.api)

    @cached_property
    def delivery(self) -> Sending:
        """Code and checkpoints that are sent when the leader has started."""
        from echelon.engines.kubernetes.files.sending import Sending

        return Sending(lambda: self.api, self._submissions)

    @cached_property
    def shipping(self) -> ShippedRuns:
        """What was shipped for runs."""
        from echelon.engines.kubernetes.abilities.shipped import ShippedRuns

        return ShippedRuns(lambda: self.api, self._submissions)

    @cached_property
    def volumes(self) -> cluster.ClusterVolumes:
        """The claims of the namespace."""
        return cluster.ClusterVolumes(lambda: self.api)

    @cached_property
    def checkup(self) -> cluster.ClusterCheckup:
        """Whether runs would work here."""
        return cluster.ClusterCheckup(lambda: self.api)

    @cached_property
    def usage(self) -> cluster.ClusterMeter:
        """Who uses the cluster."""
        return cluster.ClusterMeter(lambda: self.api)

    @cached_property
    def sampling(self) -> PodSampling:
        """What the ranks of a run use."""
        from echelon.engines.kubernetes.abilities.samples import PodSampling

        return PodSampling(lambda: self.api)

    @cached_property
    def queueing(self) -> ClusterQueue:
        """The queue of the cluster."""
        from echelon.engines.kubernetes.queue.looking import ClusterQueue

        return ClusterQueue(lambda: self.api)

    @cached_property
    def manifests(self) -> ClusterManifests:
        """Objects beside a job."""
        from echelon.engines.kubernetes.abilities.applying import ClusterManifests

        return ClusterManifests(lambda: self.api)

    @property
    def programs(self) -> None:
        """Nothing: what runs other runs is on the user's machine."""

    @cached_property
    def notebooks(self) -> PodNotebooks:
        """Jupyter servers of users."""
        from echelon.engines.kubernetes.notebook.servers import PodNotebooks

        return PodNotebooks(lambda: self.api)

    def names(self) -> Sequence[str]:
        """The names of the namespace's runs, from one list."""
        return views.run_names(self.api)

    def platforms(self) -> frozenset[str]:
        """The operating systems and processors of the nodes."""
        return cluster.read_platforms(self.api)
