"""Runs that get into trouble on a real cluster: how one is made, waited for, and cleared away.

`test_situations.py` and `test_losses.py` bring the troubles about; `taken.py` keeps their objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.kubectl import Kubectl, Object, Refused
from tests.engines.kubernetes.taken import Seen

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.diagnose import Trouble

# An agent's stand-in: it leaves as the real one does when it is told to.
AGENT = "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(194))\n"
SLEEP = AGENT + "time.sleep(600)\n"
KEEPER = "example.com/looked-at"
IMPATIENT = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
    for key in ("not-ready", "unreachable")
]


def run_job(
    run: str,
    image: str,
    program: str = SLEEP,
    *,
    workers: int = 1,
    container: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    first: int = 0,
    name: str | None = None,
    kept: bool = False,
    **pod: Any,
) -> Object:
    """A Job as the engine makes it, with a program in the agent's place.

    With `kept`, its pods stay when they are deleted, so that they can be looked at, until `let_go`."""
    own = names.labels_of(run, "ann", names.WORKER)
    main = {
        "name": names.CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", program],
        "env": [{"name": names.ENV_FIRST_WORKER, "value": str(first)}],
        **(container or {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name or run,
            "labels": own,
            "annotations": {names.FIRST_WORKER: str(first)},
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": workers,
            "parallelism": workers,
            "backoffLimitPerIndex": 2,
            "maxFailedIndexes": 1 if first == 0 and workers > 1 else 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": names.CONTAINER,
                            "operator": "In",
                            "values": [193, 195],
                        },
                    },
                    {
                        "action": "FailIndex",
                        "onExitCodes": {
                            "containerName": names.CONTAINER,
                            "operator": "In",
                            "values": [196, 198],
                        },
                    },
                ]
            },
            "template": {
                "metadata": {
                    "labels": {**own, names.ROLE: "worker"},
                    **({"finalizers": [KEEPER]} if kept else {}),
                },
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 5,
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "containers": [main],
                    **pod,
                },
            },
            **(spec or {}),
        },
    }


@dataclass(frozen=True, kw_only=True)
class Situation:
    """One trouble: its objects, and the kind that the diagnosis must find first."""

    name: str
    kind: str
    objects: list[Object] = field(default_factory=list)


def look(kubectl: Kubectl, *runs: str) -> dict[str, Seen]:
    """The objects of runs, now."""
    own = kubectl.items("jobs,pods", "-l", names.RUN)
    other = kubectl.items("events,persistentvolumeclaims")
    nodes = kubectl.items("nodes")
    now = time.time()

    def mine(run: str, kind: str) -> list[Object]:
        return [each for each in own if each["kind"] == kind and each["metadata"]["labels"][names.RUN] == run]

    return {
        run: Seen(
            jobs=mine(run, "Job"),
            pods=mine(run, "Pod"),
            events=[each for each in other if each["kind"] == "Event"],
            claims=[each for each in other if each["kind"] == "PersistentVolumeClaim"],
            nodes=nodes,
            at=now,
        )
        for run in runs
    }


def wait_for_kinds(kubectl: Kubectl, kinds: Mapping[str, str], patience: float = 120.0) -> dict[str, Seen]:
    """Wait until the first trouble of every run was of its kind, and answer its objects then.

    All are looked at together, since some last for seconds only."""
    found: dict[str, Seen] = {}
    last: dict[str, list[Trouble]] = {}

    def told() -> bool:
        for run, seen in look(kubectl, *(kinds.keys() - found.keys())).items():
            troubles = last[run] = seen.troubles()
            if troubles and troubles[0].kind == kinds[run]:
                found[run] = seen
        return len(found) == len(kinds)

    try:
        kubectl.wait_for(told, "every trouble", patience)
    except Refused as error:
        missed = {run: (kinds[run], last.get(run)) for run in kinds.keys() - found.keys()}
        raise AssertionError(f"{error}: {missed}") from error
    return found


def wait_for_kind(kubectl: Kubectl, run: str, kind: str, patience: float = 120.0) -> Seen:
    """Wait until the first trouble of a run is of that kind, and answer its objects."""
    return wait_for_kinds(kubectl, {run: kind}, patience)[run]


def wait_until(
    kubectl: Kubectl, run: str, holds: Callable[[Seen], object], what: str, patience: float = 120.0
) -> Seen:
    """Wait until something holds of a run's objects, and answer them."""
    seen = look(kubectl, run)[run]

    def holds_now() -> bool:
        nonlocal seen
        seen = look(kubectl, run)[run]
        return bool(holds(seen))

    kubectl.wait_for(holds_now, f"{run}: {what}", patience)
    return seen


def let_go(kubectl: Kubectl, run: str) -> None:
    """Let pods that were kept go."""
    for pod in kubectl.items("pods", "-l", names.selector(run)):
        others = [each for each in pod["metadata"].get("finalizers", []) if each != KEEPER]
        kubectl.patch("pod", pod["metadata"]["name"], {"metadata": {"finalizers": others}})


def clear(kubectl: Kubectl) -> None:
    """Remove the runs of a namespace before it is deleted itself.

    Kubernetes deletes a namespace's pods first, and a Job that counts failures per index lets none of them go
    before it has made the next: so it would never end."""
    kubectl("delete", "jobs", "--all", "--wait=false")
    for pod in kubectl.items("pods", "-l", names.RUN):
        if KEEPER in pod["metadata"].get("finalizers", []):
            let_go(kubectl, pod["metadata"]["labels"][names.RUN])
