"""Why a run does not run, asked of the cluster: what the diagnosis needs, and no more. It only reads.

A follower asks every few seconds: a run whose workers all run costs no request, and nodes are looked at only
for a worker that finds none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.diagnose import Trouble, diagnose
from echelon.engines.kubernetes.diagnose.gone import KEPT, loss_of_gone
from echelon.engines.kubernetes.diagnose.kueue import find_waiting, queue_of
from echelon.engines.kubernetes.diagnose.trouble import Kind
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.state import workers
from echelon.engines.kubernetes.suspended import any_suspended
from echelon.errors import Denied, EchelonError

_SPACE: tuple[Kind, ...] = ("unschedulable", "scaling", "claim", "volume", "silent")


def find_troubles(
    api: Api,
    jobs: Sequence[Object],
    pods: Sequence[Pod],
    *,
    alone: str | None = None,
    restarts: bool = False,
) -> list[Trouble]:
    """Every trouble of the run's workers now, the most telling first; `alone` is the name of a single pod
    that is no worker of a run; with `restarts` the run has some.
    """
    newest = [mine[-1] for mine in workers.pods_by_worker(pods).values()]
    if any(map(queue_of, jobs)) and (waits := _waits_for_kueue(api, jobs)) is not None:
        return [waits]
    if not jobs or (is_well(jobs, pods) and not any(map(workers.loss_of, newest))):
        return []
    stuck = _stuck(api, pods)
    events: Sequence[shapes.Event] | None = None
    with suppress(Denied):
        events = api.list_shapes("Event", shapes.Event)
    found = diagnose(jobs=jobs, pods=pods, now=time.time(), events=events, alone=alone, restarts=restarts)
    if not any(each.kind in _SPACE for each in found):
        return stuck + found
    nodes = cluster = None
    with suppress(EchelonError):
        seen = inventory.see(api)
        nodes, cluster = seen.nodes, inventory.look(api, seen=seen)
    claims: Sequence[shapes.Claim] | None = None
    with suppress(Denied):
        claims = api.list_shapes("PersistentVolumeClaim", shapes.Claim)
    return stuck + diagnose(
        jobs=jobs,
        pods=pods,
        now=time.time(),
        events=events,
        nodes=nodes,
        claims=claims,
        cluster=cluster if cluster is not None and cluster.known else None,
        alone=alone,
        restarts=restarts,
    )


def explain_loss(api: Api, pods: Sequence[Pod], until: float) -> workers.Loss | None:
    """How the pod of a worker was lost that `pods` have replaced, as far as the cluster still tells."""
    events: Sequence[shapes.Event] = ()
    if time.time() - until < KEPT:
        with suppress(EchelonError):  # a right is missing: the run is told all the same
            events = api.list_shapes("Event", shapes.Event)
    return loss_of_gone(pods, events, until)


def _waits_for_kueue(api: Api, jobs: Sequence[Object]) -> Trouble | None:
    if not any_suspended(jobs):
        return None
    workloads: Sequence[shapes.Workload] = ()
    with suppress(Denied, NotThere):
        workloads = api.list_shapes(names.KUEUE_WORKLOADS, shapes.Workload)
    return find_waiting(jobs, workloads)


def is_well(jobs: Sequence[Object], pods: Sequence[Pod]) -> bool:
    """Whether every worker has a pod that runs, or has ended."""
    newest = [mine[-1] for mine in workers.pods_by_worker(pods).values()]
    well = [pod for pod in newest if workers.is_running(pod) or workers.has_ended(pod)]
    return len(well) == dialects.wanted(jobs)


def out_of_touch(error: EchelonError) -> Trouble:
    """The trouble of an API server that does not respond."""
    return Trouble(
        worker=None,
        kind="unreachable",
        sentence=f"the cluster does not respond: {error.message}",
        hint="the run goes on there; trying again",
    )


def _stuck(api: Api, pods: Sequence[Pod]) -> list[Trouble]:
    """Pods of dead nodes that a tender without the right on `pods/status` cannot free."""
    stuck = [pod for pod in pods if workers.is_stuck(pod, time.time())]
    if not stuck or api.may("patch", "Pod", subresource="status"):
        return []
    return [_not_replaced(pod) for pod in stuck]


def _not_replaced(pod: Pod) -> Trouble:
    worker, node = workers.worker_of(pod), pod.spec.node_name
    command = f"kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    return Trouble(
        worker=worker,
        kind="node-lost",
        sentence=f"worker {worker} is not replaced: Kubernetes waits for its dead node {node}",
        hint=f"ask an administrator for: {command}; or for the right to patch pods/status",
        workers=(worker,),
    )
