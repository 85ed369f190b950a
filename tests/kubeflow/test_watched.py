"""Jobs of mpi-operator and Trainer, written by hand and watched by echelon: suspended, created, running,
restarting, succeeded, failed, stopped; and those that echelon writes. One test for each controller, since one
takes long to start; the training operator's is `test_beside_controller`.

A pod ends when the test tells it to. A quota keeps a restart from being over before it was seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from testbed.kubectl import Refused
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import PATIENCE, Terminal
from tests.kubeflow.parity import MPI_PROBE, compare_mpi
from tests.kubeflow.written import check_written_as

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
]

Object = dict[str, Any]
LEADS = """
import os, sys, time
print("at work", flush=True)
while not os.path.exists("/tmp/end"):
    time.sleep(0.1)
sys.exit(int(open("/tmp/end").read()))
"""
FOLLOWS = "import time; print('beside it', flush=True); time.sleep(3600)"
FAILS = "import sys; print('about to fail', flush=True); sys.exit(3)"
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-new-pods"}}


def mpi_job(name: str, image: str, program: str, *, suspend: bool = False) -> Object:
    def replica(word: str, program: str) -> Object:
        main = {"name": word, "image": image, "command": ["python3", "-c", program]}
        pod = {"containers": [main], "terminationGracePeriodSeconds": 0}
        return {"replicas": 1, "restartPolicy": "Never", "template": {"spec": pod}}

    limit = 0 if program is FAILS else 2
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": {"suspend": suspend, "backoffLimit": limit, "cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {"Launcher": replica("mpi", program), "Worker": replica("mpi", FOLLOWS)},
        },
    }


def train_job(name: str, image: str, program: str, *, suspend: bool = False) -> Object:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "suspend": suspend,
            "runtimeRef": {"name": "tiny", "kind": "TrainingRuntime"},
            "trainer": {
                "numNodes": 1,
                "numProcPerNode": 1,
                "image": image,
                "command": ["python3", "-c", program],
            },
        },
    }


RUNTIME: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {"name": "tiny", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "failurePolicy": {"maxRestarts": 1},
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {
                                "backoffLimit": 0,
                                "template": {
                                    "spec": {
                                        "restartPolicy": "Never",
                                        "terminationGracePeriodSeconds": 0,
                                        "containers": [{"name": "node", "image": "none"}],
                                    }
                                },
                            },
                        },
                    }
                ],
            }
        },
    },
}


def test_jobs_of_the_mpi_operator(mpi_operator: None, terminal: Terminal) -> None:
    probe = mpi_job("probe", terminal.image, MPI_PROBE)
    probe["spec"]["slotsPerWorker"] = probe["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = 2
    compare_mpi(terminal, probe)
    walk(terminal, "mpijob", mpi_job, {"spec": {"runPolicy": {"suspend": False}}}, ["launcher", "worker"])
    check_written_as(terminal, "mpijob", "Succeeded", ("launcher-", "worker-0"))


def test_jobs_of_the_trainer(trainer: None, terminal: Terminal) -> None:
    terminal.kubectl.create(RUNTIME)
    walk(terminal, "trainjob", train_job, {"spec": {"suspend": False}}, ["node"])
    check_written_as(terminal, "trainjob", "Complete", ("node-0-0-", "node-0-1-"))


def walk(
    terminal: Terminal,
    kind: str,
    job: Callable[..., Object],
    resume: Object,
    roles: list[str],
    *,
    code: int = 1,
    counted: int = 1,
    stops: bool = True,
) -> None:
    """One job through all its states, one that fails and, unless not, one that is stopped. It restarts after
    an end with `code`; `counted` is what is known of that once it runs again.
    """

    def address(name: str) -> str:
        return f"k8s://{terminal.kubectl.namespace}/{kind}/{name}"

    def wait_for(name: str, state: str) -> Object:
        found: Object = {}

        def is_so() -> bool:
            found.update(terminal.status(address(name)))
            return found["state"] == state

        wait_until(is_so, f"{name} to be {state}", PATIENCE)
        return found

    terminal.kubectl.create(job("goes", terminal.image, LEADS, suspend=True))
    assert wait_for("goes", "queued")["reason"] == "it is suspended"
    terminal.kubectl.create(job("fails", terminal.image, FAILS))

    terminal.kubectl.patch(kind, "goes", resume)
    running = wait_for("goes", "running")
    assert [(each["role"], each["state"]) for each in running["workers"]] == [
        (role, "running") for role in roles
    ]
    assert (running["restarts"], running["reason"]) == (0, None)

    waited = terminal.call("wait", address("fails"))
    assert waited.returncode == 3, waited.stderr
    cause = terminal.status(address("fails"))["root_cause"]
    assert (cause["rank"], cause["exit_code"], cause["tail"]) == (0, 3, ["about to fail"])

    terminal.kubectl.create({**QUOTA, "spec": {"hard": {"pods": "0"}}})
    end(terminal, kind, "goes", code)
    assert wait_for("goes", "restarting")["restarts"] == 1
    terminal.kubectl("delete", "resourcequota", "no-new-pods")
    # While the pod that ended is still there beside the new one, it is counted.
    wait_until(lambda: wait_for("goes", "running")["restarts"] == counted, "the restart to be over", PATIENCE)
    rows = json.loads(terminal.call("ps", "--all-kinds", "-a", "-o", "json").stdout)
    states = {row["name"]: row["state"] for row in rows}
    assert (states[f"{kind}/goes"], states[f"{kind}/fails"]) == ("running", "failed")
    logs = terminal.call("logs", address("goes"))
    said = [text for text in ("at work", "beside it")[: len(roles)] if text not in logs.stdout]
    assert not said, logs

    follower = terminal.start("wait", address("goes"))
    end(terminal, kind, "goes", 0)
    assert follower.wait() == 0, follower
    done = terminal.status(address("goes"))
    assert (done["state"], done["exit_code"], done["restarts"]) == ("succeeded", 0, counted)

    if not stops:
        return
    stays = job("stays", terminal.image, LEADS)
    says_created = kind != "trainjob"  # Trainer has no such condition
    if says_created:
        hold_pods(stays)
    terminal.kubectl.create(stays)
    if says_created:
        wait_until(lambda: "Created" in conditions_of(terminal, kind, "stays"), "the job's Created", PATIENCE)
        created = wait_for("stays", "starting")
        assert [(each["role"], each["state"]) for each in created["workers"]] == [
            (role, "waiting") for role in roles
        ]
        release_pods(terminal, "stays", len(roles))
    wait_for("stays", "running")
    refused = terminal.call("rm", "--yes", address("stays"))
    assert refused.returncode == 115, refused.stderr
    stopped = terminal.call("stop", address("stays"))
    assert stopped.returncode == 0, stopped.stderr
    wait_for("stays", "stopped")
    removed = terminal.call("rm", "--yes", *map(address, ("goes", "fails", "stays")))
    assert removed.returncode == 0, removed.stderr
    assert not terminal.kubectl.items(kind)


def hold_pods(job: Object) -> None:
    """Have the scheduler leave the job's pods alone until their gate is removed."""
    (specs,) = (value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    for each in specs.values():
        each["template"]["spec"]["schedulingGates"] = [{"name": "echelon.dev/held"}]


def release_pods(terminal: Terminal, name: str, count: int) -> None:
    """Let them go on, once all are there."""
    chosen = ("pods", "-l", f"training.kubeflow.org/job-name={name}")
    wait_until(lambda: len(terminal.kubectl.items(*chosen)) == count, "the held pods", PATIENCE)
    for pod in terminal.kubectl.items(*chosen):
        terminal.kubectl.patch("pod", pod["metadata"]["name"], {"spec": {"schedulingGates": None}})


def conditions_of(terminal: Terminal, kind: str, name: str) -> list[str]:
    """What the controller says of a job."""
    (found,) = (each for each in terminal.kubectl.items(kind) if each["metadata"]["name"] == name)
    held = (found.get("status") or {}).get("conditions") or ()
    return [each["type"] for each in held if each["status"] == "True"]


def end(terminal: Terminal, kind: str, name: str, code: int) -> None:
    """Have the leading pod of a job end with this code."""
    chosen = {
        "mpijob": f"training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=launcher",
        "pytorchjob": f"training.kubeflow.org/job-name={name}",
        "tfjob": f"training.kubeflow.org/job-name={name}",
        "trainjob": f"jobset.sigs.k8s.io/jobset-name={name}",
    }[kind]
    pods = terminal.kubectl.items("pods", "-l", chosen, "--field-selector", "status.phase=Running")
    words = ("sh", "-c", f"echo {code} > /tmp/code && mv /tmp/code /tmp/end")
    with suppress(Refused):  # the container may end before the command in it has
        terminal.kubectl("exec", pods[0]["metadata"]["name"], "--", *words)
