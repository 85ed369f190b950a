"""Why a run does not run, asked of the cluster: brings the diagnosis what it judges by, and no more.

Called every few seconds for a run that somebody follows, and once for `status`; so a run whose workers all
run costs nothing, and nodes are looked at only for a worker that finds none."""

from __future__ import annotations

import time
from collections.abc import Sequence

from echelon.engines.kubernetes.client.api import Api, NotThere, Object
from echelon.engines.kubernetes.client.fields import moment
from echelon.engines.kubernetes.diagnose import Trouble, diagnose
from echelon.engines.kubernetes.diagnose.trouble import Kind
from echelon.engines.kubernetes.nodes import inventory
from echelon.engines.kubernetes.state import workers
from echelon.errors import Denied, EchelonError, Unreachable

_SPACE: tuple[Kind, ...] = ("unschedulable", "scaling", "claim", "volume", "silent")


def find_troubles(api: Api, jobs: Sequence[Object], pods: Sequence[Object]) -> list[Trouble]:
    """Every trouble of the run's workers now, the most telling first."""
    newest = [mine[-1] for mine in workers.pods_by_worker(pods).values()]
    wanted = sum(int(job["spec"].get("completions") or 1) for job in jobs)
    well = [pod for pod in newest if workers.is_running(pod) or workers.has_ended(pod)]
    if not jobs or (len(well) == wanted and not any(map(workers.loss_of, newest))):
        return []
    events = _listed(api, "Event") or []
    found = diagnose(jobs=jobs, pods=pods, now=time.time(), events=events)
    if not any(each.kind in _SPACE for each in found):
        return found
    try:
        cluster = inventory.look(api)
    except EchelonError:
        cluster = None
    return diagnose(
        jobs=jobs,
        pods=pods,
        now=time.time(),
        events=events,
        nodes=_listed(api, "Node"),
        claims=_listed(api, "PersistentVolumeClaim"),
        cluster=cluster if cluster is not None and cluster.known else None,
    )


def out_of_touch(error: EchelonError) -> Trouble:
    """The trouble of hearing nothing."""
    return Trouble(
        worker=None,
        kind="unreachable",
        sentence=f"nothing is heard of the cluster: {error.message}",
        hint="the run goes on there; trying again",
    )


def free_places(api: Api, pods: Sequence[Object], now: float) -> list[Trouble]:
    """Let pods be replaced whose nodes are dead: Kubernetes waits for ever for a word from there.

    Once the node had its time to answer, the pod is declared failed. That takes a right on `pods/status`;
    without it, what an administrator can do is told instead."""
    found = []
    for pod in pods:
        about = pod["metadata"]
        due = moment(about.get("deletionTimestamp"))
        if due is None or now < due or not workers.is_cut_off(pod):
            continue
        node = pod["spec"].get("nodeName")
        try:
            api.patch("Pod", about["name"], {"status": {"phase": "Failed"}}, subresource="status")
        except Denied:
            worker = workers.worker_of(pod)
            command = f"kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
            found.append(
                Trouble(
                    worker=worker,
                    kind="node-lost",
                    sentence=f"worker {worker} is not replaced: Kubernetes waits for its dead node {node}",
                    hint=f"ask an administrator for: {command}; or for the right to patch pods/status",
                    workers=(worker,),
                )
            )
        except NotThere:
            continue  # it went by itself
        except Unreachable:
            return found
    return found


def _listed(api: Api, kind: str) -> list[Object] | None:
    try:
        return api.list(kind).items
    except Denied:
        return None
