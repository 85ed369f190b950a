"""Every name, label, annotation and path by which the parts of a run on Kubernetes know each other.

No other file spells one out, but for the record's own keys and annotations (`record`). Values and pure
functions only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from echelon.model.world import World, worker_count

# Labels, on everything that belongs to a run and on its pods.
RUN = "echelon.dev/run"
ROLE = "echelon.dev/role"
OWNER = "echelon.dev/owner"  # a label that can be selected by, and an annotation with the name in full
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
NO_SIDECAR = "sidecar.istio.io/inject"

# What an object is for: the values of COMPONENT.
RECORD = "record"
BUNDLE = "bundle"
SECRET = "secret"  # noqa: S105 - a name
SERVICE = "service"
WORKER = "worker"
RESULTS = "results"
TRANSFER = "transfer"

# Annotations; those of the record are `record`'s own.
FIRST_WORKER = "echelon.dev/first-worker"  # on Jobs: the number of the worker with index 0
NODES = "echelon.dev/nodes"  # on Jobs: a JSON list, the node of each of its workers
OMITTED = "echelon.dev/omitted"  # in a dry run: what an object holds that is not shown

# Kubernetes' own.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
EVICTION_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"  # of pods that the cluster took away
GPU_PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"
AMD_GPU = "amd.com/gpu"
SECURITY_LEVEL = "pod-security.kubernetes.io/enforce"  # on namespaces

# Keys of the ConfigMaps that pods mount, and of the Secret.
TASK_KEY = "task.json"
AGENT_KEY = "agent.pyz"
REQUIREMENTS_KEY = "requirements.txt"
GANG_KEY = "gang"

CONTAINER = "worker"
PORT = 29411  # on which the leader listens for its gang

# Environment of the agent.
ENV_FIRST_WORKER = "ECHELON_FIRST_WORKER"
ENV_POD_IP = "ECHELON_POD_IP"
ENV_FAILURES = "ECHELON_FAILURES"
ENV_EVICTIONS = "ECHELON_EVICTIONS"

# Paths in the pod.
ROOT = "/echelon"
BUNDLE_DIR = f"{ROOT}/bundle"
AGENT = f"{BUNDLE_DIR}/{AGENT_KEY}"
TASK = f"{BUNDLE_DIR}/{TASK_KEY}"
REQUIREMENTS = f"{BUNDLE_DIR}/{REQUIREMENTS_KEY}"
SECRET_DIR = f"{ROOT}/secret"
GANG = f"{SECRET_DIR}/{GANG_KEY}"
SPACE = f"{ROOT}/space"
CODE = f"{SPACE}/code"  # unpacked from the bundle
OUTPUT = f"{SPACE}/output"
STATE = f"{SPACE}/state"  # what the agent keeps for itself
CONTROL = f"{STATE}/control.sock"
CODE_VOLUME = f"{ROOT}/code"  # code that lies on a volume
RESULTS_VOLUME = f"{ROOT}/results"  # results that go to a volume
SHM = "/dev/shm"  # noqa: S108 - where PyTorch's data loaders pass tensors on
TERMINATION = "/dev/termination-log"

_LABEL_LENGTH = 63


def labels_of(run: str, owner: str, component: str) -> dict[str, str]:
    """The labels of an object that belongs to a run."""
    return {
        RUN: run,
        OWNER: owner_slug(owner),
        "app.kubernetes.io/name": "echelon",
        "app.kubernetes.io/instance": run,
        COMPONENT: component,
        MANAGED_BY: "echelon",
    }


def metadata(run: str, owner: str, name: str, component: str) -> dict[str, Any]:
    """The metadata of an object that belongs to a run."""
    return {"name": name, "labels": labels_of(run, owner, component), "annotations": {OWNER: owner}}


def selector(run: str, component: str | None = None) -> str:
    """What selects everything of a run, or one component of it."""
    return f"{RUN}={run}" + (f",{COMPONENT}={component}" if component else "")


def owner_slug(owner: str) -> str:
    """A user's name as the value of a label."""
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", owner)[:_LABEL_LENGTH].strip("-_.")
    return slug or "unknown"


def job_names(run: str, world: World) -> tuple[str, ...]:
    """The name of every group's Job: the first is the run's own, the others add their role.

    A further group of the same role, as with uneven shares of GPUs, adds its number instead."""
    names: list[str] = []
    seen: set[str] = set()
    for number, group in enumerate(world.groups):
        suffix = f"-{number + 1 if group.role in seen else group.role}" if number else ""
        names.append(f"{run}{suffix}")
        seen.add(group.role)
    return tuple(names)


def first_workers(world: World) -> tuple[int, ...]:
    """The number of each group's first worker."""
    return tuple(worker_count(World(groups=world.groups[:number])) for number in range(len(world.groups)))


def bundle_name(run: str, number: int) -> str:
    """The ConfigMap with one part of what is shipped."""
    return f"{run}-code-{number}"


def claim_name(run: str) -> str:
    """The claim that is made for a run's results."""
    return f"{run}-results"


def leader_host(run: str) -> str:
    """Where worker 0 is found: its Service's name, which is there before any pod and stays when one is
    replaced.
    """
    return run


def part_key(number: int) -> str:
    """One part of the code's archive."""
    return f"part-{number:03}"


def wheel_key(number: int) -> str:
    """One part of pip's wheel."""
    return f"pip-{number:03}"


def secret_key(name: str) -> str:
    """The key of a user's secret; none of them is taken for the run's own."""
    return f"user.{name}" if name == GANG_KEY else name


def paths_of_parts(count: int) -> list[str]:
    """Where the agent finds the parts of the code's archive, in order."""
    return [f"{BUNDLE_DIR}/{part_key(number)}" for number in range(count)]


def paths_of_wheel(count: int) -> list[str]:
    """Where the agent finds the parts of pip's wheel, in order."""
    return [f"{BUNDLE_DIR}/{wheel_key(number)}" for number in range(count)]


def agent_command(python: str | None, *arguments: str) -> list[str]:
    """How the agent in a pod is called, with `arguments` after it (`control ...`, `files ...`)."""
    return [python or "python3", AGENT, *arguments]


def control_command(python: str | None, *order: str) -> Sequence[str]:
    """An order to the agent through its control socket, for `pods/exec`."""
    return agent_command(python, "control", CONTROL, *order)
