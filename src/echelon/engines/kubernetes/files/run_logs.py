"""The lines of a run, wherever they are: in its pods, in its keeper, or fetched to this machine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from echelon.engines.base import Saving
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.earlier_starts import keep_start, read_kept
from echelon.engines.kubernetes.files.kept_logs import kept_logs
from echelon.engines.kubernetes.files.results.home import fetched_to, local_folder
from echelon.engines.kubernetes.files.results.whereabouts import stay_on_volume
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.follow.follow import follow_logs, read_events
from echelon.engines.kubernetes.follow.logs import read_recent
from echelon.engines.kubernetes.follow.mirror import Mirrors
from echelon.engines.kubernetes.follow.saved_logs import read_with_saved
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state.workers import has_started, pods_by_worker
from echelon.engines.machine import Submissions
from echelon.engines.results import recent_lines
from echelon.model.output.log import Line, LogLine, is_gap
from echelon.model.run import opening_status


class RunLogs:
    """The lines of one run."""

    def __init__(self, api: Api, submissions: Submissions, stored: Stored, mirrors: Mirrors) -> None:
        self._api = api
        self._mirrors = mirrors
        self._submissions = submissions
        self._stored = stored
        self._workers = opening_status(stored.run).workers

    def read(self, ranks: frozenset[int] | None, saving: Saving | None, *, follow: bool) -> Iterator[LogLine]:
        """The lines of these ranks, or of all; where lines of their workers are missing too."""
        chosen = {each.worker for each in self._workers if ranks is None or ranks.intersection(each.ranks)}
        for line in self._follow(saving) if follow and not self._is_left_to_keeper() else self._read():
            if isinstance(line, LogLine) and (
                ranks is None or line.rank in ranks or (is_gap(line) and line.worker in chosen)
            ):
                yield line

    def earlier(self) -> Iterator[LogLine]:
        """The lines of earlier starts that this machine has kept; none where the files among the results are
        read, since those have the lines of all starts.
        """
        if self._logs_here() is not None and not any(
            map(has_started, views.pods_of(self._api, self._stored))
        ):
            return iter(())
        kept = read_kept(self._submissions, self._stored)
        return (each for each in kept if isinstance(each, LogLine))

    def keep(self) -> None:
        """Keep the lines and the events of the start that has ended, before its pods are deleted. What cannot
        be read of them is not worth a resumption.
        """
        events = read_events(self._api, self._stored.run.ref)
        keep_start(self._submissions, self._stored, chain(events, self.read(None, None, follow=False)))

    def recent(self, worker: int) -> Iterator[LogLine]:
        """The last lines of one worker."""
        pods = pods_by_worker(views.pods_of(self._api, self._stored)).get(worker, [])
        if started := [pod for pod in pods if has_started(pod)]:
            return read_recent(self._api, started[-1])
        logs = self._logs_here()
        ranks = [rank for each in self._workers if each.worker == worker for rank in each.ranks]
        return iter(()) if logs is None else recent_lines(logs, worker, ranks)

    def _follow(self, saving: Saving | None) -> Iterator[Line]:
        stored = self._stored
        streamed = None
        if saving is not None and not self._are_fetched() and not stay_on_volume(stored.run):
            streamed = StreamedLogs(self._home / "logs", saving.tell)
        left = saving.left if saving else None
        return follow_logs(self._api, stored.run.ref, self._mirrors, streamed, left)

    def _read(self) -> Iterator[Line]:
        """The lines of the pods and of this machine's folder; where there is none, of the keeper's."""
        stored = self._stored
        pods = views.pods_of(self._api, stored)
        if (logs := self._logs_here()) is not None:
            yield from read_with_saved(self._api, pods, logs, self._workers)
            return
        with kept_logs(self._api, stored, pods, self._workers) as kept:
            yield from read_with_saved(self._api, pods, kept, self._workers)

    def _logs_here(self) -> Path | None:
        """The folder with the run's logs, where this machine has one; another's of that name is none."""
        here = self._submissions.results_of(self._stored.uid) is not None
        here = here or fetched_to(self._stored, self._submissions) is not None
        logs = self._home / "logs"
        return logs if here and logs.is_dir() else None

    def _is_left_to_keeper(self) -> bool:
        """Whether a run is over, its pods are gone, and its keeper may have what they wrote."""
        if self._stored.run.job.pod.keeper is None or self._are_fetched():
            return False
        jobs = views.jobs_of(self._api, self._stored)
        return dialects.end_of(jobs) is not None and not views.pods_of(self._api, self._stored, jobs)

    def _are_fetched(self) -> bool:
        return self._submissions.fetched(self._stored.uid, self._stored.run.created) is not None

    @property
    def _home(self) -> Path:
        return local_folder(self._stored, self._submissions)
