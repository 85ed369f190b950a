"""The queue of a cluster, as users look at it and as the manager serves it.

The manager's rights are those in `install/rights.py`; each request here has its right there, and no other is
sent: nothing is tried that would be denied."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from echelon.engines.abilities import QueueSnapshot
from echelon.engines.kubernetes import leases, names, record, shapes, tend
from echelon.engines.kubernetes.client.api import ALL, Api, Conflict, NotThere
from echelon.engines.kubernetes.dispatch import snapshot
from echelon.engines.kubernetes.dispatch.election import Election, Renewal
from echelon.engines.kubernetes.dispatch.rules import read_rules
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.priorities import most_priority
from echelon.engines.kubernetes.queue import admitting
from echelon.engines.kubernetes.render.dialects import InQueue
from echelon.engines.kubernetes.state import workers
from echelon.errors import Denied, EchelonError, StateTrouble, Unavailable
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.queue import Place, Rules
from echelon.model.run import RunRef

_RULES_LAST = 30.0  # seconds until the rules, and what namespaces allow, are read again
_STUCK_LOOK = 20.0  # seconds between two looks for pods of dead nodes


class ClusterQueue:
    """The queue as far as its user may see it, and a way to serve it."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def look(self) -> QueueSnapshot:
        """The queue of all namespaces, or of the user's own."""
        api = self._connect()
        seen = inventory.see(api, records=False)
        manager = leases.has_manager(api)
        jobs = {each.uid: _read_job(api, each) for each in seen.waiting if each.namespace == api.namespace}
        waiting = [snapshot.queued_run(each, jobs.get(each.uid), each.priority) for each in seen.waiting]
        return QueueSnapshot(
            waiting=[each for each in waiting if each is not None],
            holding=snapshot.holding_runs(seen.places),
            view=snapshot.views_of(seen, _nodes_with(api)),
            rules=Rules(strict=not manager),
            told=snapshot.told_places(seen.waiting) if manager else {},
            manager=manager,
        )

    def dispatch(self, identity: str, *, lasts: float) -> Dispatcher:
        """The queue for one replica of the manager."""
        return Dispatcher(self._connect(), identity, lasts=lasts)


class Dispatcher:
    """The queue of all namespaces, for the manager."""

    def __init__(self, api: Api, identity: str, *, lasts: float) -> None:
        self._api = api
        self._election = Election(api, identity, lasts=lasts)
        self._renewal = Renewal(self._election, every=lasts / 6)
        self._apis: dict[str, Api] = {}
        self._jobs: dict[str, Job] = {}  # what records say, by the uid of a run's first Job
        self._rules: tuple[Rules, float] | None = None
        self._allowed: dict[str, tuple[int, float]] = {}
        self._seen: inventory.Seen | None = None
        self._stuck_looked = 0.0

    def lead(self) -> bool:
        """Try to take the Lease; once it was taken, a thread renews it."""
        try:
            leads = self._election.renew() and self._election.leads
        except NotThere:
            raise Unavailable(
                f"there is no Lease {names.MANAGER_LEASE} in namespace {names.MANAGER_NAMESPACE}",
                hint="`echelon install --image REF` makes it, and the rights that the manager needs",
            ) from None
        if leads:
            self._renewal.begin()
        return leads

    def leave(self) -> None:
        """Give the Lease up."""
        self._renewal.end()
        self._election.release()

    def look(self) -> QueueSnapshot:
        """One look at nodes, pods and Jobs; the records of runs that are new in the queue."""
        seen = self._seen = inventory.see(self._api, records=False)
        self._jobs = {each.uid: job for each in seen.waiting if (job := self._job_of(each)) is not None}
        waiting = [
            snapshot.queued_run(each, self._jobs[each.uid], self._most(each))
            for each in seen.waiting
            if each.uid in self._jobs
        ]
        return QueueSnapshot(
            waiting=[each for each in waiting if each is not None],
            holding=snapshot.holding_runs(seen.places),
            view=snapshot.views_of(seen, _nodes_with(self._api)),
            rules=self._read_rules(),
            told=snapshot.told_places(seen.waiting),
        )

    def admit(self, name: str, plan: Plan) -> None:
        """Start the Jobs of a run."""
        ref = _ref(name)
        admitting.start_held(self._in(ref), ref, plan, creates=False)

    def tell(self, place: Place) -> None:
        """Write an annotation on the run's first Job, if it is still there."""
        ref = _ref(place.name)
        with suppress(NotThere):
            change = {"metadata": {"annotations": snapshot.place_note(place)}}
            self._in(ref).patch("Job", ref.name, change)

    def tend(self) -> None:
        """Finish or undo admissions that were cut off, end runs that have waited for too long, free the pods
        of dead nodes.
        """
        now = time.time()
        for ref in self._due(now):
            with suppress(EchelonError):  # of one run; the others need it all the same
                api = self._in(ref)
                view = views.look(api, ref)
                stored = view.stored
                if stored.deleted is None and stored.end is None and stored.stop is None:
                    for action in tend.decide_admission(tend.RunView(objects=view), now):
                        tend.carry_out(api, view, action)
        if time.monotonic() - self._stuck_looked > _STUCK_LOOK:
            self._stuck_looked = time.monotonic()
            self._free_stuck(now)

    def _due(self, now: float) -> list[RunRef]:
        """Runs that are admitted and not seen whole yet, and those that may not wait any more."""
        seen = self._seen
        if seen is None:
            return []
        young = {(each.namespace, each.run) for each in seen.places if each.admitted and not each.whole}
        late = {
            (each.namespace, each.run)
            for each in seen.waiting
            if (job := self._jobs.get(each.uid)) is not None
            and (now > each.created + job.queue_timeout or snapshot.is_over(each, job))
        }
        return [_ref(snapshot.run_name(*each)) for each in sorted(young | late)]

    def _free_stuck(self, now: float) -> None:
        ours = f"{names.MANAGED_BY}=echelon,{names.COMPONENT}={names.WORKER}"
        bound = ",".join(["spec.nodeName!=", *(f"status.phase!={phase}" for phase in inventory.ENDED)])
        for pod in self._api.list("Pod", selector=ours, fields=bound, namespace=ALL).items:
            if workers.is_stuck(pod, now):
                about = pod["metadata"]
                with suppress(NotThere, Conflict):
                    change = {"status": {"phase": "Failed"}}
                    self._api.patch(
                        "Pod", about["name"], change, subresource="status", namespace=about["namespace"]
                    )

    def _in(self, ref: RunRef) -> Api:
        namespace = ref.namespace or ""
        if namespace not in self._apis:
            self._apis[namespace] = Api(self._api.access, namespace)
        return self._apis[namespace]

    def _job_of(self, each: InQueue) -> Job | None:
        known = self._jobs.get(each.uid)
        return known if known is not None else _read_job(self._api, each)

    def _most(self, each: InQueue) -> int:
        """The highest priority that counts for a run; its namespace is not asked for one that wants none."""
        if each.priority <= 0:
            return 0
        known = self._allowed.get(each.namespace)
        if known is None or time.monotonic() - known[1] > _RULES_LAST:
            found = most_priority(self._api.find("Namespace", each.namespace)) or 0
            known = self._allowed[each.namespace] = found, time.monotonic()
        return known[0]

    def _read_rules(self) -> Rules:
        """The administrator's rules; those that held before, while what is there cannot be read."""
        if self._rules is None or time.monotonic() - self._rules[1] > _RULES_LAST:
            found = self._api.find("ConfigMap", names.QUEUE_RULES, namespace=names.MANAGER_NAMESPACE)
            self._rules = read_rules(found), time.monotonic()
        return self._rules[0]


def _ref(name: str) -> RunRef:
    namespace, run = snapshot.split_name(name)
    return RunRef(engine="k8s", name=run, namespace=namespace)


def _read_job(api: Api, each: InQueue) -> Job | None:
    """The job in a run's record; None of a record that is gone or cannot be read."""
    try:
        found = api.find("ConfigMap", each.run, namespace=each.namespace)
        if found is None or not views.is_record(found):
            return None
        return record.read(found, _ref(snapshot.run_name(each.namespace, each.run))).run.job
    except (Denied, StateTrouble):
        return None


def _nodes_with(api: Api) -> Callable[[str], Sequence[shapes.Node]]:
    def nodes_with(selector: str) -> Sequence[shapes.Node]:
        return list(api.list_shapes("Node", shapes.Node, selector=selector))

    return nodes_with
