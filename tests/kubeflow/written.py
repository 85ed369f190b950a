"""Runs that echelon writes as Kubeflow jobs, under the real controller: they go on, end and are removed
as its own Jobs do. The steps of one test, since the controller takes long to start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import yaml
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE, wait_until
from tests.faults.kubernetes.terminal import Terminal

from testbed import sdk

SCRIPT = """\
import os, sys, time
from pathlib import Path
rank = os.environ["ECHELON_RANK"]
print("at work", flush=True)
if "fail" in sys.argv and rank == "1":
    raise ValueError("no more data")
if "stay" in sys.argv:
    time.sleep(3600)
Path(os.environ["ECHELON_OUTPUT"], f"model-{rank}").write_text("trained")
"""


# What a notebook does with Kubeflow's own client.
READ = """\
import json, sys
from kubeflow.training import TrainingClient
client = TrainingClient(config_file=sys.argv[1], namespace=sys.argv[2], job_kind="PyTorchJob")
logs, _ = client.get_job_logs("long")
workers, _ = client.get_job_logs("long", is_master=False, replica_type="worker")
print(json.dumps({
    "succeeded": [client.is_job_succeeded(name) for name in ("well", "bad", "long")],
    "failed": [client.is_job_failed(name) for name in ("well", "bad", "long")],
    "running": [client.is_job_running(name) for name in ("well", "bad", "long")],
    "replicas": {name: spec.replicas for name, spec in
                 client.get_job("long").spec.pytorch_replica_specs.items()},
    "listed": sorted(job.metadata.name for job in client.list_jobs()),
    "masters": client.get_job_pod_names("long", is_master=True),
    "workers": client.get_job_pod_names("long", replica_type="worker"),
    "pods": len(client.get_job_pods("long")),
    "logged": {name: "at work" in text for name, text in {**logs, **workers}.items()},
}))
"""

RUNTIMES = "trainingruntime"
WHEN = "echelon.dev/created"  # a dry run has none


def check_written_jobs(terminal: Terminal) -> None:
    """A PyTorchJob from its dry run to its removal, one that fails, one that is stopped, all of them seen by
    Kubeflow's own client; a TFJob.
    """
    terminal.write("train.py", SCRIPT)
    succeed(terminal)
    fail(terminal)
    stop(terminal)
    for run in ("well", "bad", "long"):
        terminal.check_removal(run)
    assert not terminal.kubectl.items("pytorchjobs")
    succeed_as_tfjob(terminal)


def check_written_as(terminal: Terminal, kind: str, end: str, pods: tuple[str, str]) -> None:
    """A job of another controller's, from its dry run to its removal, and one that fails. `end` is its
    condition when it succeeded, `pods` are how the names of its pods go on after the run's.
    """
    terminal.write("train.py", SCRIPT)
    succeed_as(terminal, kind, end)
    found = sorted(pod["metadata"]["name"] for pod in terminal.pods("well"))
    assert found[0].startswith(f"well-{pods[0]}"), found
    assert all(name.startswith(tuple(f"well-{each}" for each in pods)) for name in found)
    command = terminal.train("bad", "--as", kind, "-n", "2", "train.py", "fail")
    assert command.wait() == 1, command
    assert "ValueError: no more data" in command.said
    status = terminal.status("bad")
    assert (status["state"], status["root_cause"]["rank"]) == ("failed", 1)
    wait_until(lambda: "Failed" in true_conditions(job_of(terminal.kubectl, kind, "bad")), "it failed there")
    for run in ("well", "bad"):
        terminal.check_removal(run)
    assert not terminal.kubectl.items(kind)


def job_of(kubectl: Kubectl, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.get(kind, name)
    return found


def true_conditions(job: dict[str, Any]) -> set[str]:
    found = (job.get("status") or {}).get("conditions") or ()
    return {each["type"] for each in found if each["status"] == "True"}


def check_pods(terminal: Terminal, run: str, *pods: str) -> None:
    """The leader's pod stays; of the others, the controller deletes those that it still sees running."""
    found = {pod["metadata"]["name"] for pod in terminal.pods(run)}
    leader, *rest = (f"{run}-{each}" for each in pods)
    assert {leader} <= found <= {leader, *rest}


def differences(wanted: Any, made: Any, path: str = "") -> list[str]:
    """Where an object differs from what was asked for, beside fields that the controller has added."""
    if isinstance(wanted, dict) and isinstance(made, dict):
        found = ((key, differences(value, made.get(key), f"{path}.{key}")) for key, value in wanted.items())
        return [each for _, several in found for each in several]
    if isinstance(wanted, list) and isinstance(made, list) and len(made) == len(wanted):
        numbered = enumerate(zip(wanted, made, strict=True))
        return [each for at, (one, other) in numbered for each in differences(one, other, f"{path}[{at}]")]
    return [] if wanted == made else [f"{path}: {wanted!r}, {made!r}"]


def succeed(terminal: Terminal) -> None:
    succeed_as(terminal, "pytorchjob", "Succeeded")
    check_pods(terminal, "well", "master-0", "worker-0")
    listed = terminal.call("ps", "-a")
    assert "well" in listed.stdout, listed.stderr


def succeed_as(terminal: Terminal, kind: str, end: str) -> None:
    flags = ("--as", kind, "-n", "2", "--image", terminal.image, "--name", "well", "train.py")
    shown = terminal.call("run", "--dry-run", "-o", "yaml", *flags)
    assert shown.returncode == 0, shown.stderr
    wanted = [each for each in yaml.safe_load_all(shown.stdout) if each["kind"].lower() in (kind, RUNTIMES)]

    command = terminal.start("run", *flags)
    assert command.wait() == 0, command
    assert sorted(command.lines) == ["[0] at work", "[1] at work"]
    assert terminal.read("well", "model-0") == terminal.read("well", "worker-1/model-1") == "trained"
    wait_until(
        lambda: end in true_conditions(job_of(terminal.kubectl, kind, "well")),
        "the job is over",
    )
    for each in wanted:
        made = job_of(terminal.kubectl, each["kind"].lower(), "well")
        found = [one for one in differences(each["spec"], made["spec"]) if WHEN not in one]
        assert not found, "the dry run shows what is submitted"
        assert made["metadata"]["labels"] == each["metadata"]["labels"]
    assert terminal.status("well")["state"] == "succeeded"
    assert terminal.call("logs", "well", "--rank", "1").stdout == "[1] at work\n"


def fail(terminal: Terminal) -> None:
    command = terminal.train("bad", "--as", "pytorchjob", "-n", "2", "train.py", "fail")
    assert command.wait() == 1, command
    assert "ValueError: no more data" in command.said
    found = terminal.status("bad")
    assert (found["state"], found["root_cause"]["rank"]) == ("failed", 1)
    wait_until(
        lambda: "Failed" in true_conditions(job_of(terminal.kubectl, "pytorchjob", "bad")), "it failed there"
    )


def stop(terminal: Terminal) -> None:
    command = terminal.train("long", "--as", "pytorchjob", "-n", "2", "train.py", "stay")
    command.wait_for("at work", 2)
    assert terminal.status("long")["state"] == "running"
    wait_until(
        lambda: "Running" in true_conditions(job_of(terminal.kubectl, "pytorchjob", "long")), "it runs there"
    )
    read_with_kubeflows_client(terminal)
    stopped = terminal.call("stop", "long")
    assert stopped.returncode == 0, stopped.stderr
    command.wait()
    assert terminal.status("long")["state"] == "stopped"


def read_with_kubeflows_client(terminal: Terminal) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(terminal.kubeconfig), terminal.kubectl.namespace],
        env={**os.environ, "PYTHONPATH": str(sdk.folder())},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "succeeded": [True, False, False],
        "failed": [False, True, False],
        "running": [False, False, True],
        "replicas": {"Master": 1, "Worker": 1},
        "listed": ["bad", "long", "well"],
        "masters": ["long-master-0"],
        "workers": ["long-worker-0"],
        "pods": 2,
        "logged": {"long-master-0": True, "long-worker-0": True},
    }


def succeed_as_tfjob(terminal: Terminal) -> None:
    command = terminal.train("flow", "--as", "tfjob", "-n", "2", "--role", "evaluator=1", "train.py")
    assert command.wait() == 0, command
    wait_until(
        lambda: "Succeeded" in true_conditions(job_of(terminal.kubectl, "tfjob", "flow")), "the TFJob is over"
    )
    check_pods(terminal, "flow", "worker-0", "worker-1", "evaluator-0")
