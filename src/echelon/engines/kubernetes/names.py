"""Every name, label, annotation and path by which the parts of a run on Kubernetes know each other.

No other file spells one out, but for the record's own keys and annotations (`record`). Values and pure
functions only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from echelon.model.job import Job
from echelon.model.pods.pod import SIDECAR
from echelon.model.program import Parent
from echelon.model.world import World, worker_count

# Labels, on everything that belongs to a run and on its pods.
RUN = "echelon.dev/run"
PARENT = "echelon.dev/parent"  # of a step's run alone: the run that it is a part of
ROLE = "echelon.dev/role"
OWNER = "echelon.dev/owner"  # a label that can be selected by, and an annotation with the name in full
COMPONENT = "app.kubernetes.io/component"
MANAGED_BY = "app.kubernetes.io/managed-by"
STAYS = "cluster-autoscaler.kubernetes.io/safe-to-evict"  # "false": its node is not given back
NO_SIDECAR = SIDECAR

# What an object is for: the values of COMPONENT.
RECORD = "record"
BUNDLE = "bundle"
SECRET = "secret"  # noqa: S105 - a name
SERVICE = "service"
WORKER = "worker"
KEEPER = "keeper"
RESULTS = "results"
TRANSFER = "transfer"
RUNTIME = "runtime"
NOTEBOOK = "notebook"
DOCTOR = "doctor"
WORKLOAD = "workload"  # of Kueue's, for a run of several Jobs

# Annotations; those of the record are `record`'s own.
CLAIM_UID = "echelon.dev/claim"  # on a notebook server's Job: the uid of the claim made for its files
RECORD_UID = "echelon.dev/record"  # on what does not go with its run's record: the uid of that
FIRST_WORKER = "echelon.dev/first-worker"  # the number of the worker with index 0; a label on Kubeflow's pods
WORKERS = "echelon.dev/workers"  # on jobs of Kubeflow's: how many workers it stands for
ENDED = "echelon.dev/ended"  # on jobs of Kubeflow's that are suspended for good, and not to go on
STOPPED = "echelon.dev/stopped"  # on jobs that echelon has not made, and that `stop` has suspended
NODES = "echelon.dev/nodes"  # on Jobs: a JSON list, the node of each of its workers
ASKED = "echelon.dev/asked"  # on the Job of a notebook server: a digest of what it was made for
OMITTED = "echelon.dev/omitted"  # in a dry run: what an object holds that is not shown

# What the Jobs of a run say of its admission (`ledger`). All but the task are on the first one.
PLAN = "echelon.dev/plan"  # the plan that the Jobs have, or would start with
AGENTS_TASK = "echelon.dev/task"  # on pods: what their agents read, as a file
TIMEOUT = "echelon.dev/timeout"  # the seconds that the run has, for the queues of others
CREATED = "echelon.dev/created"  # when the run was recorded; on pods that a Job in between makes, too
PRIORITY = "echelon.dev/priority"
WAITS = "echelon.dev/queued"  # a JSON list: why admission failed so far, and when
TRIED = "echelon.dev/tended"  # when admission was last tried
ADMITTED = "echelon.dev/admitted"  # when the run was admitted
WHOLE = "echelon.dev/whole"  # when all pods of the gang had nodes, or were left to the scheduler
IN_KUEUE = "echelon.dev/kueue-queue"  # the queue of Kueue's that admits the run, which is in none of ours
WITHDRAWN = "echelon.dev/withdrawn"  # {"at", "reason", "outcome"}: it ended before it was admitted

# Leases.
ADMISSION_LEASE = "echelon-admission"  # in every namespace: one process at a time admits a run there
MOST_PRIORITY = "echelon.dev/max-priority"  # on namespaces: the highest priority that counts there

# Kueue's own.
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"  # on Jobs
KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"  # a user's label on Jobs: a WorkloadPriorityClass
KUEUE_VERSION = "kueue.x-k8s.io/v1beta2"
KUEUE_OLD_VERSION = "kueue.x-k8s.io/v1beta1"  # all that releases before 0.15 serve
KUEUE_QUEUES = "localqueues.v1beta2|v1beta1.kueue.x-k8s.io"
KUEUE_WORKLOADS = "workloads.v1beta2|v1beta1.kueue.x-k8s.io"
KUEUE_FLAVORS = "resourceflavors.v1beta2|v1beta1.kueue.x-k8s.io"
KUEUE_PRIORITIES = "workloadpriorityclasses.v1beta2|v1beta1.kueue.x-k8s.io"

# Devices of DRA's drivers, which are in no node's allocatable resources.
RESOURCE_SLICES = "resourceslices.v1|v1beta2.resource.k8s.io"

# Kubeflow's own.
REPLICATED_JOB = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
TRAINER_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"

# Kubernetes' own.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
EVICTION_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"  # of pods that the cluster took away
GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"  # and a profile: slices of GPUs
AMD_GPU = "amd.com/gpu"
GPUS = (GPU, AMD_GPU, "gpu.intel.com/xe", "gpu.intel.com/i915")  # whole ones, in the order of preference
GPU_PRODUCT = "nvidia.com/gpu.product"
AMD_PRODUCT = "amd.com/gpu.product-name"
INTEL_PRODUCT = "gpu.intel.com/product"
GPU_MEMORY = "nvidia.com/gpu.memory"  # in MiB
AMD_MEMORY = "amd.com/gpu.vram"  # 192G
GPU_PRESENT = "nvidia.com/gpu.present"
GPU_CLIQUE = "nvidia.com/gpu.clique"  # GPUs joined by one NVLink
ZONE = "topology.kubernetes.io/zone"
SYSTEM = "kubernetes.io/os"
# Parts of the network, as Kueue's examples, Google and Amazon label them.
BLOCKS = (
    "cloud.provider.com/topology-block",
    "cloud.google.com/gce-topology-block",
    "topology.k8s.aws/network-node-layer-2",
)
RACKS = (
    "cloud.provider.com/topology-rack",
    "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-3",
)
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
ENV_INDEX = "JOB_COMPLETION_INDEX"  # the Job controller's own; other dialects set it
ENV_POD_IP = "ECHELON_POD_IP"
ENV_FAILURES = "ECHELON_FAILURES"
ENV_EVICTIONS = "ECHELON_EVICTIONS"

# A notebook server.
NOTEBOOK_PORT = 8888
TOKEN_KEY = "token"  # noqa: S105 - a name

# Paths in the pod.
ROOT = "/echelon"
BUNDLE_DIR = f"{ROOT}/bundle"
AGENT = f"{BUNDLE_DIR}/{AGENT_KEY}"
TASK = f"{BUNDLE_DIR}/{TASK_KEY}"
REQUIREMENTS = f"{BUNDLE_DIR}/{REQUIREMENTS_KEY}"
SECRET_DIR = f"{ROOT}/secret"
SSH_DIR = f"{ROOT}/ssh"  # keys that mpi-operator makes, and that nothing of ours reads
GANG = f"{SECRET_DIR}/{GANG_KEY}"
SPACE = f"{ROOT}/space"
CODE = f"{SPACE}/code"  # unpacked from the bundle
SENT = f"{SPACE}/sent"  # an archive of code that was sent when the agent had started
OUTPUT = f"{SPACE}/output"
STATE = f"{SPACE}/state"  # what the agent keeps for itself
LAUNCH_FILES = "state/files/worker-0"  # in SPACE: what the launch of worker 0 brings, such as a hostfile
MPI_DIR = "/etc/mpi"  # where Kubeflow's MPIJobs have these
CONTROL = f"{STATE}/control.sock"
SAMPLES = f"{STATE}/samples.json"  # what the workers use, in the leader's pod
KEPT = f"{SPACE}/kept"  # in the keeper: a folder for each worker, and in it one for each of its folders
CODE_VOLUME = f"{ROOT}/code"  # code that lies on a volume
CODE_STORE = f"{ROOT}/store"  # a volume with archives of code
RESULTS_VOLUME = f"{ROOT}/results"  # results that go to a volume
NOTEBOOK_HOME = "/workspace"  # a notebook server's working folder and home, on its volume
SHM = "/dev/shm"  # noqa: S108 - where PyTorch's data loaders pass tensors on
TERMINATION = "/dev/termination-log"

_LABEL_LENGTH = 63


def labels_of(run: str, owner: str, component: str, parent: Parent | None = None) -> dict[str, str]:
    """The labels of an object that belongs to a run; one more names the run that this is a part of."""
    return {
        RUN: run,
        **({} if parent is None else {PARENT: parent.run}),
        OWNER: owner_slug(owner),
        "app.kubernetes.io/name": "echelon",
        "app.kubernetes.io/instance": run,
        COMPONENT: component,
        MANAGED_BY: "echelon",
    }


def metadata(run: str, owner: str, name: str, component: str, job: Job) -> dict[str, Any]:
    """The metadata of an object that belongs to a run of this job."""
    return {
        "name": name,
        "labels": {**job.pod.labels, **labels_of(run, owner, component, job.parent)},
        "annotations": {**job.pod.annotations, OWNER: owner},
    }


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


def gpu_product(resource: str) -> str:
    """The label that has the model of a node's GPUs, for the resource that the GPUs are."""
    if resource == AMD_GPU:
        return AMD_PRODUCT
    return GPU_PRODUCT if resource.startswith("nvidia.com/") else INTEL_PRODUCT


def bundle_name(run: str, number: int, content: str) -> str:
    """The ConfigMap with one part of what is shipped. `content` tells what: a node keeps what is immutable by
    its name while any pod there uses it, and an earlier run of this name may have shipped other code.
    """
    return f"{run}-code-{number}-{content}"


def keeper_name(run: str) -> str:
    """The Job of a run's keeper."""
    return f"{run}-keeper"


def kept_folder(worker: int, number: int) -> str:
    """Where the keeper has a worker's folder, by its number among those that are kept."""
    return f"{KEPT}/{worker}/{number}"


def sent_checkpoint(mark: str, worker: int, name: str) -> str:
    """Where a worker's part of a checkpoint of an earlier start is sent to in the keeper's pod."""
    return f"{KEPT}/sent/{mark}/{worker}/{name}"


def claim_name(run: str) -> str:
    """The claim that is made for a run's results."""
    return f"{run}-results"


def server_name(name: str) -> str:
    """The Job of a notebook server, and its Secret; no run is meant."""
    return f"notebook-{name}"


def server_claim(name: str) -> str:
    """The claim that is made for a notebook server's files."""
    return f"notebook-{name}-files"


def leader_pod(run: str) -> str:
    """The name of worker 0's pod in DNS, below the namespace's, while that pod is there: a pod of an Indexed
    Job is named after it, and the Service is its subdomain.
    """
    return f"{run}-0.{leader_host(run)}"


def leader_host(run: str) -> str:
    """Where worker 0 is found: its Service's name, which is there before any pod and stays when one is
    replaced.
    """
    return run


def leader_beside(run: str) -> str:
    """The same where a controller makes a Service of the run's name for itself."""
    return f"{run}-leader"


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


def stored_code(digest: str) -> str:
    """The file that holds an archive of code, on a volume or in a pod."""
    return f"echelon-code-{digest}.tar.gz"


def sent_code(digest: str) -> str:
    """Where an archive of code is sent to in a worker's pod."""
    return f"{SENT}/{stored_code(digest)}"


def paths_of_wheel(count: int) -> list[str]:
    """Where the agent finds the parts of pip's wheel, in order."""
    return [f"{BUNDLE_DIR}/{wheel_key(number)}" for number in range(count)]


def agent_command(python: str | None, *arguments: str) -> list[str]:
    """How the agent in a pod is called, with `arguments` after it (`control ...`, `files ...`). It needs the
    standard library alone: what an image adds to the start of its Python (`-S`) is for the ranks.
    """
    return [python or "python3", "-S", AGENT, *arguments]


def control_command(python: str | None, *order: str) -> Sequence[str]:
    """An order to the agent through its control socket, for `pods/exec`."""
    return agent_command(python, "control", CONTROL, *order)
