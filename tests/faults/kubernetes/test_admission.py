"""Gangs with GPUs start together or not at all, whatever comes between the look, the patches and the nodes.

Two nodes have four GPUs each; a gang of two workers takes three of each. The second of two such gangs can get
one node, and then each would wait for the other's for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testbed.kubectl import Kubectl, Object
from testbed.patience import FACTOR
from tests.conftest import wait_until
from tests.engines.kubernetes.test_conformance import KubernetesHarness

from echelon.admission import find_plan, shape_to_hold, way_of
from echelon.engines.kubernetes.engine import KubernetesEngine
from echelon.engines.kubernetes.queue import admitting, leases
from echelon.engines.kubernetes.upkeep import decisions
from echelon.errors import Denied
from echelon.handle import Run
from echelon.model.job import Job
from echelon.model.open_shape import OpenShape
from echelon.model.plan import Plan
from echelon.model.resources import Resources
from echelon.model.run import RunRef
from echelon.model.status import Status
from echelon.submit import Prepared, submit

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
QUIET = 240.0  # seconds, on a quiet machine: for `wait_until`, which scales it
PATIENCE = QUIET * FACTOR
GANG: dict[str, Any] = {"workers": 2, "resources": Resources(gpus=3)}


@pytest.fixture
def harness(
    namespace: Kubectl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    image: Callable[[str], str],
    give_gpus: Callable[..., None],
    real_nodes: list[str],
) -> KubernetesHarness:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(decisions, "BINDING", 8.0)
    for node in real_nodes[:2]:
        give_gpus(node, 4)
    return KubernetesHarness(namespace, image("python"), lambda _count: None)


def record(harness: KubernetesHarness, job: Job) -> tuple[RunRef, Plan]:
    """A run that is held, and the plan that it may start with."""
    plan = find_plan(job, harness.engine)
    assert isinstance(plan, Plan)
    way = way_of(keeps_queue=False, gpus=True, stays=True, placed=True)
    return harness.engine.record(job, None, shape_to_hold(job, harness.engine, plan, way)), plan


def follow(engine: KubernetesEngine, ref: RunRef) -> Status:
    """What a command does that stays with its run."""
    return Run(ref, engine).wait(PATIENCE)


def test_two_gangs_that_look_at_the_same_moment_both_finish(
    harness: KubernetesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to write Leases nothing keeps them apart before their pods compete for the nodes."""
    both = threading.Barrier(2)

    def check_together(engine: KubernetesEngine, ref: RunRef, plan: Plan) -> None:
        """Both have seen that all is free; later tries are checked."""
        if not both.broken and both.n_waiting < 2 and len(met) < 2:
            met.append(ref.name)
            both.wait(PATIENCE)
        else:
            checked(engine, ref, plan)

    def refuse(*_: object, **__: object) -> bool:
        raise Denied("no leases", hint="")

    met: list[str] = []
    checked = KubernetesEngine._check_taken
    monkeypatch.setattr(KubernetesEngine, "_check_taken", check_together)
    monkeypatch.setattr(leases, "take", refuse)
    ends: dict[str, Status] = {}

    def train(name: str) -> None:
        run = submit(Prepared(job=harness.job("talks.py", name=name, **GANG)), harness.engine)
        ends[name] = run.wait(PATIENCE)

    commands = [threading.Thread(target=train, args=(name,)) for name in ("one", "two")]
    for command in commands:
        command.start()
    for command in commands:
        command.join(PATIENCE)
    assert {name: end.state for name, end in ends.items()} == {"one": "succeeded", "two": "succeeded"}


def test_a_stranger_takes_the_gpus_between_the_patch_and_the_nodes(
    harness: KubernetesHarness, namespace: Kubectl, real_nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, plan = record(harness, harness.job("talks.py", name="late", **GANG))
    checked = KubernetesEngine._check_taken

    def check_and_lose(engine: KubernetesEngine, mine: RunRef, plan: Plan) -> None:
        checked(engine, mine, plan)
        monkeypatch.setattr(KubernetesEngine, "_check_taken", checked)
        namespace.create(stranger(harness, real_nodes[1]))
        wait_until(lambda: namespace.get("pod", "stranger")["spec"].get("nodeName"), "the stranger's node")

    monkeypatch.setattr(KubernetesEngine, "_check_taken", check_and_lose)
    harness.engine.start(ref, plan)
    run = Run(ref, harness.engine)
    seen: list[Status] = []
    command = threading.Thread(target=lambda: seen.append(follow(harness.engine, ref)))
    command.start()
    wait_until(lambda: run.status().state == "queued", "the roll-back", QUIET)
    # The Job is suspended again; its controller deletes the pods a moment later.
    wait_until(
        lambda: all(
            pod["metadata"].get("deletionTimestamp")
            for pod in namespace.items("pods", "-l", "echelon.dev/run=late")
        ),
        "the pods to be deleted",
    )
    namespace("delete", "pod", "stranger", "--grace-period=0", "--force")
    command.join(PATIENCE)
    assert [each.state for each in seen] == ["succeeded"]
    kinds = [event.kind for event in run.events()]
    assert kinds.count("admitted") >= 2
    run.remove()
    assert namespace.get("jobs")["items"] == []


def stranger(harness: KubernetesHarness, node: str) -> Object:
    image = harness.job("talks.py").pod.image
    limits = {"nvidia.com/gpu": "3"}
    container = {"name": "c", "image": image, "command": ["sleep", "600"], "resources": {"limits": limits}}
    affinity = {"nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 0}
    tolerations = [{"operator": "Exists"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger"},
        "spec": {**affinity, "tolerations": tolerations, "restartPolicy": "Never", "containers": [container]},
    }


class Killed(BaseException):
    """The process ended here."""


def test_an_admission_that_is_cut_off_between_two_jobs_is_undone_and_done_again(
    harness: KubernetesHarness, namespace: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uneven shares are two Jobs. The first was started when the client was killed."""
    shape = OpenShape(least=5, most=5, shares="largest-first", rank_per_gpu=False)
    ref, plan = record(harness, harness.job("talks.py", name="uneven", shape=shape))
    assert [group.resources.gpus for group in plan.world.groups] == [4, 1]
    begin, begun = admitting._begin, []

    def begin_and_die(*arguments: Any, **more: Any) -> Object:
        if begun:
            raise Killed
        begun.append(ref)
        return begin(*arguments, **more)

    monkeypatch.setattr(admitting, "_begin", begin_and_die)
    with pytest.raises(Killed):
        harness.engine.start(ref, plan)
    monkeypatch.setattr(admitting, "_begin", begin)
    jobs = {job["metadata"]["name"]: job["spec"]["suspend"] for job in namespace.get("jobs")["items"]}
    assert jobs == {"uneven": False, "uneven-2": True}
    assert follow(harness.engine, ref).state == "succeeded"
    events = list(Run(ref, harness.engine).events())
    assert [event.kind for event in events].count("admitted") >= 2
    assert "1 of 2 workers" in str([event.reason for event in events if event.kind == "queued"])
