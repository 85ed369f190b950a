"""The queue of a cluster, as far as its user may see it. It only reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from echelon.engines.abilities import QueueSnapshot
from echelon.engines.kubernetes import record, shapes
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.queue import snapshot
from echelon.engines.kubernetes.render.dialects import InQueue
from echelon.errors import Denied, StateTrouble
from echelon.model.job import Job
from echelon.model.run import RunRef


class ClusterQueue:
    """The queue as far as its user may see it."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def look(self) -> QueueSnapshot:
        """The queue of all namespaces, or of the user's own."""
        api = self._connect()
        seen = inventory.see(api)
        jobs = {each.uid: _read_job(api, each) for each in seen.waiting if each.namespace == api.namespace}
        waiting = [snapshot.queued_run(each, jobs.get(each.uid)) for each in seen.waiting]
        return QueueSnapshot(
            waiting=[each for each in waiting if each is not None],
            holding=snapshot.holding_runs(seen, api.namespace),
            elsewhere=[*snapshot.runs_in_kueue(seen), *snapshot.unplaced_runs(seen, api.namespace)],
            view=snapshot.views_of(seen, _nodes_with(api)),
        )


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
