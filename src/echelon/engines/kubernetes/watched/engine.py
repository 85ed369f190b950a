"""An engine over the jobs of Kubeflow's controllers: it looks at them, stops and removes them, makes none.

Their controllers look after them. `stop` suspends a job, which ends its pods and keeps its object; `remove`
deletes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NoReturn

from echelon.engines.base import Saving, TakeOver
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.engines.kubernetes.client.place import USUAL, Place
from echelon.engines.kubernetes.follow.troubles import out_of_touch
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.watched.holding import hold_back
from echelon.engines.kubernetes.watched.kinds import Address, parse_address
from echelon.engines.kubernetes.watched.lines import follow_lines, merged_lines, read_lines
from echelon.engines.kubernetes.watched.reading import read_all, read_one
from echelon.engines.kubernetes.watched.restarts import Replacements
from echelon.engines.kubernetes.watched.state import (
    Seen,
    end_of,
    events_of,
    first_failure,
    record_of,
    with_replaced,
)
from echelon.engines.kubernetes.watched.waiting import find_waiting
from echelon.errors import EchelonError, StateTrouble, Unavailable, UnknownRun, Unreachable
from echelon.model.copy import LeftOut
from echelon.model.engine.cluster import Cluster
from echelon.model.engine.traits import Traits, Where
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.output.log import LogBlock, LogLine
from echelon.model.plan import Plan
from echelon.model.run import Record, RunRef, StopSignal, opening_status, summarise
from echelon.model.status import RunSummary, fold

if TYPE_CHECKING:
    from echelon.bundle import Bundle

_LOOK = 1.0  # seconds between two looks at a job that is followed
_RECENT = 300  # lines that a look at the last ones asks for
_TAIL = 10  # lines of the rank that failed first


class WatchedJobs:
    """The jobs of one namespace."""

    shell = ports = delivery = volumes = checkup = usage = manifests = queueing = None
    notebooks = sampling = programs = shipping = None
    traits = Traits(place="the cluster", remote=True, shared=True, foreign=True)

    def __init__(self, place: Place = USUAL) -> None:
        self._place = place

    @cached_property
    def api(self) -> Api:
        """The way to the cluster."""
        return self._place.connect()

    @property
    def where(self) -> Where:
        """The context and the namespace."""
        return Where(context=self.api.access.context, namespace=self.api.namespace)

    def read(self, ref: RunRef) -> Record:
        """The job, as if it had been submitted here."""
        return record_of(self._full(ref), self._see(ref))

    def events(self, ref: RunRef, *, follow: bool = False, timeout: float | None = None) -> Iterator[Event]:
        """What the objects tell; with `follow`, what is new at every look. An API server that goes away is
        waited for, and reported.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        told: list[Event] = []
        replaced = Replacements()
        away = False
        while True:
            try:
                happened, away = self._happened(ref, replaced), False
            except Unreachable as error:
                if not (follow and told):
                    raise
                trouble, happened = out_of_touch(error), []
                if not away:
                    yield Event(
                        kind="waiting",
                        at=round(time.time(), 3),
                        reason=trouble.sentence,
                        trouble=trouble.kind,
                    )
                away = True
            for event in happened:
                if event not in told:
                    told.append(event)
                    yield event
            if not follow or told[-1].kind == "finished":
                return
            if deadline is not None and time.monotonic() > deadline:
                return
            time.sleep(_LOOK)

    def logs(
        self,
        ref: RunRef,
        *,
        ranks: frozenset[int] | None = None,
        follow: bool = False,
        saving: Saving | None = None,  # noqa: ARG002 - results stay where the job writes them
    ) -> Iterator[LogLine]:
        """What the pods wrote, each a rank."""

        def chosen() -> dict[int, Pod]:
            pods = self._see(ref).pods
            return {number: pod for number, pod in pods.items() if ranks is None or number in ranks}

        if follow:
            return follow_lines(self.api, chosen, lambda: end_of(self._see(ref)) is not None)
        return merged_lines(self.api, chosen())

    def output(
        self, ref: RunRef, *, follow: bool = True, saving: Saving | None = None
    ) -> Iterator[LogLine | LogBlock]:
        """The same of all ranks."""
        return self.logs(ref, follow=follow, saving=saving)

    def earlier_output(self, ref: RunRef) -> Iterator[LogLine]:  # noqa: ARG002
        """Nothing: they are not resumed here."""
        return iter(())

    def earlier_events(self, ref: RunRef) -> Iterator[Event]:  # noqa: ARG002
        """Nothing, as above."""
        return iter(())

    def recent(self, ref: RunRef, worker: int) -> Iterator[LogLine]:
        """The last lines of one pod."""
        pod = self._see(ref).pods.get(worker)
        return iter(()) if pod is None else read_lines(self.api, worker, pod, tail=_RECENT)

    def stop(self, ref: RunRef, *, signal: StopSignal = "SIGTERM", grace: float | None = None) -> str | None:  # noqa: ARG002 - the controller's
        """Suspend the job: its controller deletes the pods, and keeps the job. Kueue is told first."""
        address = parse_address(ref.name)
        seen = self._see(ref)
        if end_of(seen) is not None:
            return None
        hold_back(self.api, dict(seen.job))
        when = datetime.now(UTC).isoformat(timespec="seconds")
        policy = {"suspend": True} if address.kind.word == "trainjob" else {"runPolicy": {"suspend": True}}
        change = {"metadata": {"annotations": {names.STOPPED: when}}, "spec": policy}
        self.api.patch(self._resource(address), address.name, change, uid=seen.job["metadata"].get("uid", ""))
        own = "" if grace is None else " after the grace period of their own"
        return f"it is suspended: its pods end{own}, and the job stays until `echelon rm`"

    def remove(
        self,
        ref: RunRef,
        tell: Callable[[str], object] = lambda _: None,  # noqa: ARG002
        *,
        force: bool = False,  # noqa: ARG002 - its results are not ours to lose
    ) -> Sequence[str]:
        """Delete a job that has ended: that one, not another that has got its name meanwhile."""
        address = parse_address(ref.name)
        seen = self._see(ref)
        if end_of(seen) is None:
            hint = f"`echelon stop {quote(str(self._full(ref)))}` suspends it first"
            raise StateTrouble(f"job {ref.name!r} has not ended", hint=hint)
        self.api.delete(self._resource(address), address.name, uid=str(seen.job["metadata"]["uid"]))
        return ()

    def runs(self) -> Sequence[RunSummary]:
        """Every job of every kind that the cluster serves, the newest first."""
        return sorted(map(self._summary, read_all(self.api)), key=lambda row: row.created, reverse=True)

    def names(self) -> Sequence[str]:
        """Their names, with their kinds."""
        return [row.name for row in self.runs()]

    def seals(self, ref: RunRef) -> None:
        """Nothing: its ranks are not of echelon."""

    def collect(self, ref: RunRef, progress: Callable[[int, int], object] | None = None) -> Sequence[LeftOut]:  # noqa: ARG002
        """Nothing: results are where the job wrote them."""
        return ()

    def tender(self, ref: RunRef, *, take_over: TakeOver | None = None) -> None:
        """None: its controller looks after it."""

    def fetch(
        self,
        ref: RunRef,
        path: str,  # noqa: ARG002
        to: Path,  # noqa: ARG002
        notice: Callable[[LeftOut], object] = lambda _left: None,  # noqa: ARG002
        tell: Callable[[str], object] = lambda _text: None,  # noqa: ARG002
    ) -> Path:
        """Not possible: no agent keeps results."""
        raise Unavailable(
            f"job {ref.name!r} has no results that echelon keeps",
            hint="`echelon cp pvc:NAME/path .` reads volumes",
        )

    def cluster(self, *, gpus: bool = True, job: Job | None = None) -> Cluster:  # noqa: ARG002
        """Not asked for: nothing is placed here."""
        self._not_ours()

    def record(self, job: Job, bundle: Bundle | None, held: Plan | None = None) -> RunRef:  # noqa: ARG002
        """Not possible."""
        self._not_ours()

    def reopen(self, ref: RunRef, job: Job, held: Plan | None = None) -> None:  # noqa: ARG002
        """Not possible."""
        self._not_ours()

    def queue(self, ref: RunRef, reason: str) -> None:  # noqa: ARG002
        """Not possible."""
        self._not_ours()

    def start(self, ref: RunRef, plan: Plan) -> None:  # noqa: ARG002
        """Not possible."""
        self._not_ours()

    def adds_nodes(self) -> bool:
        """Nothing is placed here."""
        return False

    def check(self, job: Job, coming: Collection[tuple[str, str]] = ()) -> None:
        """Nothing is submitted here."""

    def notes(self, job: Job) -> Sequence[str]:  # noqa: ARG002
        """Nothing is submitted here."""
        return ()

    def preview(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:  # noqa: ARG002
        """Nothing is submitted here."""
        return ""

    def objects(self, job: Job, plan: Plan, bundle: Bundle | None = None) -> str:  # noqa: ARG002
        """Nothing is submitted here."""
        return ""

    def platforms(self) -> None:
        """Its images are its own."""

    def _not_ours(self) -> NoReturn:
        raise Unavailable("a Kubeflow job is looked at, not started", hint="`echelon run -f FILE` runs one")

    def _happened(self, ref: RunRef, replaced: Replacements) -> list[Event]:
        seen = with_replaced(self._see(ref), replaced)
        events = events_of(seen)
        if events[-1].kind == "finished":
            return [*events[:-1], self._with_tail(seen, events[-1])]
        with suppress(EchelonError):
            trouble = find_waiting(self.api, seen)
            if trouble is not None:
                events.append(
                    Event(kind="waiting", at=events[-1].at, reason=trouble.sentence, trouble=trouble.kind)
                )
        return events

    def _with_tail(self, seen: Seen, end: Event) -> Event:
        number = first_failure(seen)
        if end.cause is None or number is None:
            return end
        lines = [line.text for line in read_lines(self.api, number, seen.pods[number])]
        return replace(end, cause=replace(end.cause, tail=tuple(lines[-_TAIL:])))

    def _see(self, ref: RunRef) -> Seen:
        address = parse_address(ref.name)
        try:
            job = self.api.get(self._resource(address), address.name)
        except NotThere:
            hint = "`echelon ps --all-kinds` lists the jobs of all kinds"
            raise UnknownRun(
                f"no {address.kind.word} named {address.name!r} in namespace {self.api.namespace}", hint=hint
            ) from None
        return read_one(self.api, address, job)

    def _resource(self, address: Address) -> str:
        for resource in address.kind.resources[:-1]:
            with suppress(NotThere):
                if self.api.exists(resource, address.name):
                    return resource
        return address.kind.resources[-1]

    def _summary(self, seen: Seen) -> RunSummary:
        name = f"{seen.address.kind.word}/{seen.address.name}"
        record = record_of(self._full(RunRef(engine="k8s", name=name)), seen)
        return summarise(record, fold(opening_status(record), events_of(seen)))

    def _full(self, ref: RunRef) -> RunRef:
        return replace(
            ref, namespace=ref.namespace or self.api.namespace, context=ref.context or self._place.context
        )
