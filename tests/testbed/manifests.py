"""Hand-written manifests for the tests here: what the engine will create, without the engine."""

from __future__ import annotations

from typing import Any

from testbed.kubectl import Kubectl, Object

# A stand-in agent: Python's standard library only, ends with 194 when asked to stop, as the real one does.
AGENT = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(194))
print("agent", os.environ.get("JOB_COMPLETION_INDEX"), flush=True)
"""
SLEEP = AGENT + "time.sleep(600)\n"


def pod_spec(image: str, program: str, **more: Any) -> Object:
    """A pod that runs a Python program once."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", program],
        **more.pop("container", {}),
    }
    return {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container], **more}


def pod(name: str, image: str, program: str, **more: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": pod_spec(image, program, **more),
    }


def headless(name: str, job: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": job},
        },
    }


def indexed_job(
    name: str, image: str, program: str, *, count: int = 2, spec: Object | None = None, **pod_more: Any
) -> Object:
    """An Indexed Job as the design has it: one pod an index, never restarted in place."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimitPerIndex": 3,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [193]}}],
            },
            "template": {"metadata": {"labels": {"run": name}}, "spec": pod_spec(image, program, **pod_more)},
            **(spec or {}),
        },
    }


def apart(job: str) -> Object:
    """Affinity that puts the pods of a job on different nodes."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"run": job}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def on_node(*names: str) -> Object:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(names)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def pods_of(kubectl: Kubectl, job: str) -> list[Object]:
    return kubectl.items("pods", "-l", f"batch.kubernetes.io/job-name={job}")


def phases(kubectl: Kubectl, job: str) -> list[str]:
    return [item["status"]["phase"] for item in pods_of(kubectl, job)]


def conditions(item: Object) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in item.get("status", {}).get("conditions", [])}


def wait_job(kubectl: Kubectl, name: str, condition: str, patience: float = 180.0) -> Object:
    """Wait for a condition of a Job, and answer the Job."""

    def holds() -> bool:
        now = conditions(kubectl.get("job", name))
        if condition == "Complete" and now.get("Failed") == "True":
            raise AssertionError(
                f"job {name} failed: {kubectl.get('job', name)['status']} {phases(kubectl, name)}"
            )
        return now.get(condition) == "True"

    kubectl.wait_for(holds, f"job {name} to be {condition}", patience)
    return kubectl.get("job", name)


def wait_phase(kubectl: Kubectl, name: str, *wanted: str, patience: float = 120.0) -> Object:
    kubectl.wait_for(
        lambda: kubectl.get("pod", name)["status"]["phase"] in wanted,
        f"pod {name} to be {' or '.join(wanted)}",
        patience,
    )
    return kubectl.get("pod", name)
