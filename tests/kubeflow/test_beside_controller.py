"""Beside Kubeflow's own controller: what scripts find in their environment under it and under echelon, which
is the table in the documents; its jobs, watched by echelon; and those that echelon writes. One test, since
the controller takes long to start.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from testbed.kubectl import Kubectl
from tests.faults.kubernetes.terminal import Terminal
from tests.kubeflow.parity import PROBE, check_table, compared, under_echelon
from tests.kubeflow.test_watched import FAILS, walk
from tests.kubeflow.written import check_written_jobs

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
]

TORCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED", "TORCHELASTIC_ERROR_FILE")


def job(kind: str, container: str, image: str, replicas: dict[str, int], **more: object) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": container, "image": image, "command": ["python3", "-c", PROBE]}]}}
    key = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs"}[kind]
    specs = {
        name: {"replicas": count, "restartPolicy": "Never", "template": pod}
        for name, count in replicas.items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": kind.lower()},
        "spec": {key: specs, **more},
    }


def under_operator(kubectl: Kubectl, wanted: dict[str, Any], pods: list[str]) -> list[dict[str, str]]:
    """What the controller writes into the pods. They need not run: a Master that is quick ends the job before
    its Workers have begun.
    """
    name = wanted["metadata"]["name"]
    kubectl.create(wanted)
    names = {f"{name}-{pod}" for pod in pods}

    def made() -> list[dict[str, Any]]:
        there = kubectl.items("pods", "-l", f"training.kubeflow.org/job-name={name}")
        return [pod for pod in there if pod["metadata"]["name"] in names]

    kubectl.wait_for(lambda: len(made()) == len(pods), f"the pods of {name}", patience=300)
    found = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["env"] for pod in made()}
    kubectl("delete", name, name, "--wait=false")
    return [{each["name"]: each["value"] for each in found[f"{name}-{pod}"]} for pod in pods]


def test_beside_the_controller(operator: None, terminal: Terminal) -> None:
    compare_environments(terminal)
    submit_as_it_is(terminal)
    # Of a pod that was made anew nothing is left that could be counted.
    resume = {"spec": {"runPolicy": {"suspend": False}}}
    walk(terminal, "pytorchjob", torch_job, resume, ["master"], code=130, counted=0)
    walk(terminal, "tfjob", flow_job, resume, ["worker"], code=130, counted=0, stops=False)
    check_written_jobs(terminal)


def compare_environments(terminal: Terminal) -> None:
    torch = job("PyTorchJob", "pytorch", terminal.image, {"Master": 1, "Worker": 1}, nprocPerNode="2")
    tensorflow = job("TFJob", "tensorflow", terminal.image, {"Chief": 1, "Worker": 2})
    there = under_operator(terminal.kubectl, torch, ["master-0", "worker-0"])
    here = under_echelon(terminal, torch)
    assert len(there) == len(here) == 2
    names = sorted(
        {name for env in (*there, *here) for name in env if name in TORCH or name.startswith("PET_")}
    )
    lines = [
        compared(name, [env.get(name) for env in there], [env.get(name) for env in here]) for name in names
    ]

    pods = ["chief-0", "worker-0", "worker-1"]
    configs = [
        [json.loads(env["TF_CONFIG"]) for env in found]
        for found in (under_operator(terminal.kubectl, tensorflow, pods), under_echelon(terminal, tensorflow))
    ]
    tasks, sizes = (
        [[of(config) for config in found] for found in configs]
        for of in (
            lambda config: config["task"],
            lambda config: {role: len(members) for role, members in config["cluster"].items()},
        )
    )
    lines += [compared("TF_CONFIG: task", *tasks), compared("TF_CONFIG: cluster, sizes", *sizes)]
    places = [[config.get("environment") for config in found] for found in configs]
    lines.append(compared("TF_CONFIG: environment", *places))
    check_table(lines)


def torch_job(name: str, image: str, program: str, *, suspend: bool = False) -> dict[str, Any]:
    """One Master, whose pod is made anew where it ends with a code above 127."""
    made = job("PyTorchJob", "pytorch", image, {"Master": 1}, runPolicy={"suspend": suspend})
    return restarting(made, name, program)


def flow_job(name: str, image: str, program: str, *, suspend: bool = False) -> dict[str, Any]:
    """One Worker, in the same way."""
    made = job("TFJob", "tensorflow", image, {"Worker": 1}, runPolicy={"suspend": suspend})
    return restarting(made, name, program)


def restarting(made: dict[str, Any], name: str, program: str) -> dict[str, Any]:
    made["metadata"]["name"] = name
    (specs,) = (value for key, value in made["spec"].items() if key.endswith("ReplicaSpecs"))
    (alone,) = specs.values()
    alone["restartPolicy"] = "ExitCode"
    alone["template"]["spec"]["containers"][0]["command"] = ["python3", "-c", program]
    return made


def submit_as_it_is(terminal: Terminal) -> None:
    terminal.write("job.yaml", json.dumps(torch_job("native", terminal.image, FAILS)))
    native = terminal.start("run", "-f", "job.yaml", "--as", "native")
    assert native.wait() == 3, native
    assert native.lines == ["about to fail"]
    status = terminal.status(f"k8s://{terminal.kubectl.namespace}/pytorchjob/native")
    assert (status["state"], status["exit_code"], status["workers"][0]["role"]) == ("failed", 3, "master")
    assert status["root_cause"]["summary"] == "rank 0 (native-master-0) failed first: it exited with code 3"
    assert terminal.call("rm", "--yes", status["uri"]).returncode == 0
