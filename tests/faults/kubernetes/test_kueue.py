"""`--local-queue` with the real Kueue and the real training operator: a run that fills the quota, others that
wait for it and then run, as one Job, as two and as a PyTorchJob, and those that are stopped before; a
PyTorchJob that was written by hand, and one that is stopped; runs whose quota is taken back; and runs with
classes of priority. All of it with two releases of Kueue, of which the older serves one version of its API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from testbed.fixtures import Target
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Terminal

from testbed import controllers

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
]

RELEASES = {"kueue": "v1beta1", "kueue-0.19": "v1beta2"}
GROUP = "kueue.x-k8s.io"
SCRIPT = """
import os, time
from pathlib import Path

print("at work", flush=True)
while not Path("/tmp/end").exists():
    time.sleep(0.1)
Path(os.environ.get("ECHELON_OUTPUT", "/tmp"), "model").write_text("trained")
"""


# The newer release takes the older one's place in the cluster, which other tests need beside it.
@pytest.fixture(params=["kueue", pytest.param("kueue-0.19", marks=pytest.mark.alone)])
def queue(
    own_cluster: Target, terminal: Terminal, operator: None, request: pytest.FixtureRequest
) -> Iterator[str]:
    """Kueue at work, after the definitions of Kubeflow's jobs are there, and a queue for one CPU."""
    space, version = terminal.kubectl.namespace, f"{GROUP}/{RELEASES[request.param]}"
    flavor: dict[str, Any] = {"kind": "ResourceFlavor", "metadata": {"name": space}}
    quota = [{"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "1Ti"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": space, "resources": quota}]}
    whole = {
        "kind": "ClusterQueue",
        "metadata": {"name": space},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }
    local = {
        "kind": "LocalQueue",
        "metadata": {"name": "team", "namespace": space},
        "spec": {"clusterQueue": space},
    }
    early, late = (
        {"kind": "WorkloadPriorityClass", "metadata": {"name": f"{space}-{name}"}, "value": value}
        for name, value in (("early", 10), ("late", -10))
    )
    with controllers.using(request.param):
        own_cluster.kubectl.create(
            *({"apiVersion": version, **each} for each in (flavor, whole, local, early, late))
        )
        yield "team"
        # Their finalizers are Kueue's: they must be gone before it is.
        terminal.kubectl("delete", "jobs,pytorchjobs,tfjobs", "--all")
        terminal.kubectl("delete", "workloads,localqueues", "--all")
        classes = [f"workloadpriorityclass/{space}-{name}" for name in ("early", "late")]
        own_cluster.kubectl("delete", f"clusterqueue/{space}", f"resourceflavor/{space}", *classes)


def test_runs_wait_for_kueues_quota_and_then_run(queue: str, terminal: Terminal) -> None:
    terminal.write("train.py", SCRIPT)
    plain = ("--local-queue", queue, "--framework", "plain", "--cpus")
    as_jobs, as_torch = ("-n", "1", "train.py"), ("--as", "pytorchjob", "-n", "2", "train.py")
    as_two = ("-n", "1", "--role", "evaluator=1", "train.py")  # one Job for each role, and one Workload
    first = terminal.train("first", *plain, "1", *as_jobs)
    first.wait_for("at work")
    commands = {
        "first": first,
        "second": terminal.train("second", *plain, "1", *as_jobs),
        "torch": terminal.train("torch", *plain, "500m", *as_torch),
        "several": terminal.train("several", *plain, "500m", *as_two),
    }
    for name in ("second", "torch", "several"):
        check_that_it_waits(terminal, name, queue)
        assert not terminal.pods(name)
    assert terminal.kubectl.get("pytorchjob", "torch")["spec"]["runPolicy"]["suspend"] is True
    terminal.kubectl.create(*(by_hand(name, terminal.image, queue) for name in ("hand", "halted")))
    address, halted = (f"k8s://{terminal.kubectl.namespace}/pytorchjob/{name}" for name in ("hand", "halted"))
    check_that_it_waits(terminal, address, queue)
    check_that_it_waits(terminal, halted, queue)
    assert terminal.call("stop", halted).returncode == 0

    as_flow = ("--as", "tfjob", "-n", "1", "--role", "evaluator=1", "train.py")
    for name, shape in (("never", as_jobs), ("never-flow", as_flow)):
        started = terminal.call("run", "-d", "--name", name, "--image", terminal.image, *plain, "1", *shape)
        assert started.returncode == 0, started.stderr
        check_that_it_waits(terminal, name, queue)
        stopped = terminal.call("stop", name)
        assert stopped.returncode == 0, stopped.stderr
        assert terminal.status(name)["state"] == "stopped"
        terminal.check_removal(name)
    assert not terminal.kubectl.items("tfjobs")
    wait_until(lambda: not taken_back(terminal), "Kueue to forget them", PATIENCE)

    waiting = {"first": 1, "second": 1, "hand": 1, "torch": 2, "several": 2}
    while waiting:  # the quota is for one of them, and Kueue chooses which
        name = wait_for_one(terminal, waiting)
        del waiting[name]
        if name == "hand":
            wait_until(lambda: terminal.status(address)["state"] == "running", "it to run", PATIENCE)
            end_pods(terminal, name)
            assert terminal.call("wait", address).returncode == 0
            assert terminal.status(address)["state"] == "succeeded"
            continue
        if name == "several":  # or it would lose its quota after half an hour
            wait_until(partial(is_known_ready, terminal, name), "Kueue to know", PATIENCE)
        end_pods(terminal, name)
        assert commands[name].wait() == 0, commands[name]
        assert terminal.status(name)["state"] == "succeeded"
        assert terminal.read(name, "model") == "trained"
    assert terminal.read("torch", "worker-1/model") == "trained"
    ours = ("workloads", "-l", "echelon.dev/run=several")
    wait_until(lambda: not terminal.kubectl.items(*ours), "its quota to be given back", PATIENCE)
    assert terminal.status(halted)["state"] == "stopped", "Kueue does not start it"


def test_runs_whose_quota_is_taken_back_wait_and_run_again(
    queue: str, own_cluster: Target, terminal: Terminal
) -> None:
    def hold(policy: str) -> None:
        """Let the administrator stop the queue, which evicts what it has admitted, or open it again."""
        patch = json.dumps({"spec": {"stopPolicy": policy}})
        own_cluster.kubectl("patch", f"clusterqueue/{space}", "--type=merge", "-p", patch)

    space = terminal.kubectl.namespace
    terminal.write("train.py", SCRIPT)
    plain = ("--local-queue", queue, "--framework", "plain", "--cpus", "250m")
    shapes = {"one": ("-n", "2"), "several": ("-n", "1", "--role", "evaluator=1")}  # one Job, and two
    commands = {name: terminal.train(name, *plain, *shape, "train.py") for name, shape in shapes.items()}
    for name in shapes:
        wait_for_one(terminal, {name: 2})
    hold("HoldAndDrain")
    for name in shapes:
        wait_until(partial(is_held_back, terminal, name), f"{name} to wait again", PATIENCE)
    hold("None")
    for name, command in commands.items():
        wait_for_one(terminal, {name: 2})
        end_pods(terminal, name)
        assert command.wait() == 0, command
        assert terminal.status(name)["state"] == "succeeded"
        assert terminal.read(name, "model") == "trained"


def test_the_class_of_a_run_decides_which_is_next(queue: str, terminal: Terminal) -> None:
    terminal.write("train.py", SCRIPT)
    plain, space = ("--local-queue", queue, "--framework", "plain", "-n", "1"), terminal.kubectl.namespace
    first = terminal.train("first", *plain, "--cpus", "1", "train.py")
    first.wait_for("at work")
    as_one, as_two = ("--cpus", "1", "train.py"), ("--cpus", "500m", "--role", "evaluator=1", "train.py")
    commands = {}
    for name, of_class, shape in (("second", "late", as_one), ("third", "early", as_two)):
        label = ("--label", f"kueue.x-k8s.io/priority-class={space}-{of_class}")
        commands[name] = terminal.train(name, *plain, *label, *shape)
        check_that_it_waits(terminal, name, queue)
    found = [each["spec"] for each in terminal.kubectl.items("workloads")]
    assert sorted(each.get("priority", 0) for each in found) == [-10, 0, 10]
    end_pods(terminal, "first")
    assert first.wait() == 0, first
    waiting = {"second": 1, "third": 2}
    for name in ("third", "second"):
        assert wait_for_one(terminal, waiting) == name
        del waiting[name]
        end_pods(terminal, name)
        assert commands[name].wait() == 0, commands[name]


def is_known_ready(terminal: Terminal, name: str) -> bool:
    """Whether Kueue knows of a run's own Workload, which it has admitted, that all pods are ready."""
    found = terminal.kubectl.get("workload", name)["status"]["conditions"]
    held = {each["type"] for each in found if each["status"] == "True"}
    return {"QuotaReserved", "Admitted", "PodsReady"} <= held


def by_hand(name: str, image: str, queue: str) -> dict[str, Any]:
    main = {"name": "pytorch", "image": image, "command": ["python3", "-c", SCRIPT]}
    asks = {"resources": {"requests": {"cpu": "1"}}}
    pod = {"containers": [{**main, **asks}], "terminationGracePeriodSeconds": 0}
    master = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": pod}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": master}},
    }


def check_that_it_waits(terminal: Terminal, run: str, queue: str) -> None:
    """It is queued, and says what Kueue says."""
    seen: dict[str, Any] = {}

    def says_why() -> bool:
        done = terminal.call("status", run, "-o", "json")
        seen.update(json.loads(done.stdout) if done.returncode == 0 else {})
        return "quota" in (seen.get("reason") or "")

    wait_until(says_why, "Kueue's reason", PATIENCE)
    assert seen["reason"].startswith(f"queued in Kueue's queue {queue}: "), seen
    assert seen["state"] == "queued", seen


def is_held_back(terminal: Terminal, run: str) -> bool:
    """It is queued again, since the queue is stopped, and its pods are gone."""
    seen = terminal.status(run)
    waits = seen["state"] == "queued" and "ClusterQueue is stopped" in (seen["reason"] or "")
    return waits and not running_pods(terminal, run)


def taken_back(terminal: Terminal) -> list[str]:
    """What Kueue has of runs that were stopped before they were admitted."""
    found = terminal.kubectl.items("workloads")
    owners = [each["metadata"]["ownerReferences"][0]["name"] for each in found]
    return [name for name in owners if name.startswith("never")]


def running_pods(terminal: Terminal, name: str) -> list[str]:
    """The pods of a run's workers, or of the job that was written by hand."""
    ours = f"echelon.dev/run={name},app.kubernetes.io/component=worker"
    chosen = f"training.kubeflow.org/job-name={name}" if name == "hand" else ours
    found = terminal.kubectl.items("pods", "-l", chosen, "--field-selector", "status.phase=Running")
    return [pod["metadata"]["name"] for pod in found]


def wait_for_one(terminal: Terminal, waiting: dict[str, int]) -> str:
    """The first of them that has so many pods at work."""
    found: list[str] = []

    def is_there() -> bool:
        found[:] = [name for name, count in waiting.items() if len(running_pods(terminal, name)) == count]
        return bool(found)

    wait_until(is_there, f"one of {', '.join(waiting)} to run", PATIENCE)
    return found[0]


def end_pods(terminal: Terminal, name: str) -> None:
    for pod in running_pods(terminal, name):
        terminal.kubectl("exec", pod, "--", "touch", "/tmp/end")
