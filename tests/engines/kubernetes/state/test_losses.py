"""Workers that are lost and runs that end, brought about on a real cluster (see `taken.py`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
from testbed.fixtures import Target
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE
from tests.engines.kubernetes.ordinary import claim, mounted, on_claim
from tests.engines.kubernetes.situations import (
    AGENT,
    IMPATIENT,
    clear,
    let_go,
    run_job,
    wait_for_kind,
    wait_until,
)
from tests.engines.kubernetes.taken import keep

from echelon.engines.kubernetes.render.dialects import end_of as job_end
from echelon.engines.kubernetes.state.workers import has_ended, is_cut_off, is_running
from testbed import cluster as whole

# Their words are tested on what was taken here; that they still come about takes five minutes.
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.soak]


@pytest.fixture(autouse=True)
def cleared(namespace: Kubectl) -> Iterator[None]:
    yield
    clear(namespace)


def test_a_worker_is_preempted(
    own_cluster: Target,
    namespace: Kubectl,
    image: Callable[[str], str],
    real_nodes: list[str],
    give_gpus: Callable[..., None],
) -> None:
    give_gpus(real_nodes[0], 1)
    name = f"{namespace.namespace}-high"
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    namespace.create({**kind, "metadata": {"name": name}, "value": 1000})
    try:
        limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        namespace.create(run_job("humble", image("python"), container=limits, kept=True))
        wait_until(namespace, "humble", lambda seen: any(map(is_running, seen.read_pods())), "to run")
        namespace.create(run_job("proud", image("python"), container=limits, priorityClassName=name))
        seen = wait_for_kind(namespace, "humble", "preempted")
        keep("lost-preempted", seen, namespace.namespace)
        let_go(namespace, "humble")
    finally:
        namespace("delete", "priorityclass", name)


def test_a_worker_is_evicted(namespace: Kubectl, image: Callable[[str], str]) -> None:
    program = AGENT + "open('/data/a', 'wb').write(bytes(8 << 20))\ntime.sleep(600)\n"
    small = mounted({"emptyDir": {"sizeLimit": "1Mi"}})
    namespace.create(run_job("spacious", image("python"), program, **small))
    seen = wait_for_kind(namespace, "spacious", "evicted", patience=180)
    keep("lost-evicted", seen, namespace.namespace)


def test_a_volume_is_tied_to_another_node(
    namespace: Kubectl, image: Callable[[str], str], real_nodes: list[str]
) -> None:
    namespace.create(claim("data"))
    here, there = ({"kubernetes.io/hostname": name} for name in real_nodes[:2])
    namespace.create(run_job("first", image("python"), nodeSelector=here, **on_claim("data")))
    wait_until(namespace, "first", lambda seen: any(map(is_running, seen.read_pods())), "to run")
    namespace.create(run_job("second", image("python"), nodeSelector=there, **on_claim("data")))
    keep("unschedulable-volume", wait_for_kind(namespace, "second", "unschedulable"), namespace.namespace)


def test_a_node_cannot_set_a_pod_up(namespace: Kubectl, image: Callable[[str], str]) -> None:
    name = f"{namespace.namespace}-odd"
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    namespace.create({**kind, "metadata": {"name": name}, "handler": "nobody"})
    try:
        namespace.create(run_job("boxed", image("python"), runtimeClassName=name))
        keep("sandbox", wait_for_kind(namespace, "boxed", "sandbox"), namespace.namespace)
    finally:
        namespace("delete", "runtimeclass", name)


def test_nodes_are_drained_tainted_and_lost(
    own_cluster: Target, namespace: Kubectl, image: Callable[[str], str], spare_node: str
) -> None:
    picture, kubectl = image("python"), own_cluster.kubectl
    here = {"kubernetes.io/hostname": spare_node}
    for run in ("drained", "sent-away"):
        namespace.create(run_job(run, picture, nodeSelector=here, kept=True))
        wait_until(namespace, run, lambda seen: any(map(is_running, seen.read_pods())), "to run")

    which = ["--pod-selector", "echelon.dev/run=drained", "--ignore-daemonsets", "--delete-emptydir-data"]
    draining = subprocess.Popen(
        [*kubectl.command(), "drain", spare_node, *which, "--force"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    keep("lost-drained", wait_for_kind(namespace, "drained", "evicted"), namespace.namespace)
    let_go(namespace, "drained")
    draining.wait(2 * PATIENCE)
    namespace.create(run_job("late", picture, nodeSelector=here))
    keep("unschedulable-cordoned", wait_for_kind(namespace, "late", "unschedulable"), namespace.namespace)
    namespace("delete", "job", "drained", "late", "--wait=false")
    kubectl("uncordon", spare_node)

    kubectl("taint", "node", spare_node, "maintenance=now:NoExecute")
    seen = wait_until(
        namespace,
        "sent-away",
        lambda seen: seen.pods and all(map(has_ended, seen.read_pods())),
        "to have left",
    )
    keep("lost-sent-away", seen, namespace.namespace)
    assert seen.troubles()[0].kind == "evicted"
    let_go(namespace, "sent-away")
    namespace("delete", "job", "sent-away", "--wait=false")
    kubectl("taint", "node", spare_node, "maintenance-")

    namespace.create(run_job("cut-off", picture, nodeSelector=here, tolerations=IMPATIENT))
    wait_until(namespace, "cut-off", lambda seen: any(map(is_running, seen.read_pods())), "to run")
    whole.kill_node(spare_node)
    seen = wait_until(
        namespace, "cut-off", lambda seen: any(map(is_cut_off, seen.read_pods())), "to be missed"
    )
    keep("lost-node-silent", seen, namespace.namespace)
    assert seen.troubles()[0].kind == "node-lost"
    seen = wait_until(
        namespace,
        "cut-off",
        lambda seen: any(pod["metadata"].get("deletionTimestamp") for pod in seen.pods),
        "to be given up",
    )
    keep("lost-node", seen, namespace.namespace)
    assert seen.troubles()[0].kind == "node-lost"
    kubectl("taint", "node", spare_node, "node.kubernetes.io/out-of-service=gone:NoExecute")


def test_ends_of_runs(namespace: Kubectl, image: Callable[[str], str]) -> None:
    """No trouble is diagnosed here: how each of these ended is read in `test_observe.py`."""
    picture = image("python")
    cause = {"summary": "rank 1 exited with code 3: boom", "worker": 1, "rank": 1, "exit_code": 3}
    verdicts = {
        "done": {"outcome": "succeeded", "exit_code": 0, "reason": None, "cause": None},
        "broken": {"outcome": "failed", "exit_code": 3, "reason": None, "cause": cause},
        "halted": {"outcome": "stopped", "exit_code": 143, "reason": "stopped by ann", "cause": None},
    }
    for run, verdict in verdicts.items():
        code = 0 if verdict["outcome"] == "succeeded" else 193
        say = f"open('/dev/termination-log', 'w').write({json.dumps(verdict)!r})\n"
        lead = f"{say}sys.exit({code})\n"
        program = f"{AGENT}time.sleep(1)\nif os.environ['JOB_COMPLETION_INDEX'] == '0':\n    "
        namespace.create(
            run_job(run, picture, program + lead.replace("\n", "\n    ").rstrip() + "\n", workers=2)
        )
    leaderless = AGENT + (
        "if os.environ['JOB_COMPLETION_INDEX'] == '0':\n    sys.exit(1)\ntime.sleep(3)\nsys.exit(195)\n"
    )
    namespace.create(run_job("leaderless", picture, leaderless, workers=2))
    namespace.create(run_job("worn-out", picture, AGENT + "time.sleep(1); sys.exit(7)\n"))
    namespace.create(run_job("overdue", picture, spec={"activeDeadlineSeconds": 3}))
    for run in (*verdicts, "leaderless", "worn-out", "overdue"):
        seen = wait_until(namespace, run, lambda seen: job_end(seen.jobs) or None, "to end", patience=180)
        seen = wait_until(
            namespace, run, lambda seen: (end := job_end(seen.jobs)) and end.final, "to be over", patience=60
        )
        keep(f"end-{run}", seen, namespace.namespace)
