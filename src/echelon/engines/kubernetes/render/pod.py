"""The pod of a worker: its container, what it may use, where it may be, what it may do. Pure.

What is set here must be harmless in any image, as any user, with a read-only root file system; what only
the `restricted` level asks for is set only there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.render.image import image_of
from echelon.engines.kubernetes.render.volumes import quantity, user_volumes
from echelon.model.grace import termination_of
from echelon.model.job import Job, role_named
from echelon.model.plan import Plan
from echelon.model.pods.patch import apply_patch
from echelon.model.pods.pod import JOB, KUBEFLOW_KIND, PodOptions, Toleration
from echelon.model.pods.template import merge_under
from echelon.model.resources import Resources
from echelon.model.run import Record
from echelon.model.world import Group

Object = dict[str, Any]

RESTRICTED = "restricted"
_USER = 1000  # a user id that most images leave unused, where one other than root's must be named
# Seconds before a pod on a node that is silent is given up; Kubernetes waits for 300. The gang notices a lost
# worker much sooner. After an outage of the API server every node counts as silent until its kubelet has
# reported again, and workers that hold results must not be evicted meanwhile.
_NODE_AWAY = 120
_AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def pod_template(
    record: Record,
    plan: Plan,
    number: int,
    *,
    bundles: Sequence[str],
    first_worker: int,
    security_level: str = "",
    task: str | None = None,
) -> Object:
    """The template of a group's pods: ours over the user's, the role's own before the one for all workers;
    the user's patch over both.

    `bundles` are the ConfigMaps that the code travels in. All that depends on the plan is in fields of the
    pod that a suspended Job may change; the agents' task is an annotation or, without `task`, in the record.
    """
    group, options, run = plan.world.groups[number], record.job.pod, record.job.name
    theirs = user_volumes(options, run)
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": termination_of(record.job, group.role),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security_context(security_level),
        "tolerations": list(tolerations_of(options, [group.resources], plan.gpu_resource)),
        "containers": [
            {
                "name": names.CONTAINER,
                "image": image_of(record.job, group.role),
                "imagePullPolicy": "Always" if options.pull == "always" else "IfNotPresent",
                "command": names.agent_command(record.job.python, names.TASK),
                "env": list(_environment(record.job, group)),
                "resources": resources_of(group.resources, plan.gpu_resource),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "terminationMessagePath": names.TERMINATION,
                # Of an agent that dies before it can write a message: at least the end of its log.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [*_own_mounts(), *_mpi_mounts(record, number), *theirs.mounts],
            }
        ],
        "volumes": [
            *_own_volumes(run, bundles, task),
            {"name": "shm", "emptyDir": {"medium": "Memory", **_shm(record.job, group.resources)}},
            *theirs.volumes,
        ],
    }
    if affinity := _affinity(plan, group, first_worker):
        spec["affinity"] = affinity
    spec.update(chosen_by_user(options))
    made = {
        "metadata": {
            "labels": {
                **options.labels,
                **names.labels_of(run, record.owner, names.WORKER, record.job.parent),
                names.ROLE: group.role,
                names.NO_SIDECAR: "false",
            },
            "annotations": {
                **options.annotations,
                names.OWNER: record.owner,
                names.NO_SIDECAR: "false",
                names.FIRST_WORKER: str(first_worker),
                **({} if task is None else {names.AGENTS_TASK: task}),
            },
        },
        "spec": spec,
    }
    role = role_named(record.job, group.role)
    merged = merge_under((role.template if role is not None else None) or options.template, made)
    return apply_patch(options.patch, merged)


def security_context(level: str) -> Object:
    """What a pod says of its user at a Pod Security level."""
    security: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
    if level == RESTRICTED:
        security |= {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",  # or a large volume is walked through at every start
        }
    return security


def _environment(job: Job, group: Group) -> Iterator[Object]:
    for name, path in (
        (names.ENV_FIRST_WORKER, f"metadata.annotations['{names.FIRST_WORKER}']"),
        (names.ENV_POD_IP, "status.podIP"),
        (names.ENV_FAILURES, f"metadata.annotations['{names.FAILURE_COUNT}']"),
        (names.ENV_EVICTIONS, f"metadata.annotations['{names.EVICTION_COUNT}']"),
    ):
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    if not group.resources.gpus and not group.resources.other:
        # CUDA images ask for all GPUs of the node, and without a device plugin in between they get them.
        yield {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    for secret in job.secrets:
        reference = {"name": job.name, "key": names.secret_key(secret.name)}
        yield {"name": secret.name, "valueFrom": {"secretKeyRef": reference}}


def resources_of(need: Resources, gpu_resource: str) -> Object:
    """What a container requests, and what limits it."""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for name, amount, written in (("cpu", need.cpus, _cores), ("memory", need.memory, _bytes)):
        if amount is not None:
            requests[name] = written(amount.request)
            if amount.limit is not None:
                limits[name] = written(amount.limit)
    if need.gpus:
        limits[gpu_resource] = str(need.gpus)
    limits.update({name: str(count) for name, count in need.other.items()})
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def _cores(amount: float) -> str:
    thousandths = math.ceil(round(amount * 1000, 3))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def _bytes(amount: float) -> str:
    return quantity(math.ceil(amount))


def chosen_by_user(options: PodOptions) -> Object:
    """The fields of every pod of a run that its user may set: on which nodes, with whose rights."""
    secrets = [{"name": name} for name in options.pull_secrets]
    fields = {
        "nodeSelector": dict(options.node_selector),
        "imagePullSecrets": secrets,
        "serviceAccountName": options.service_account,
        "priorityClassName": options.priority_class,
    }
    return {name: value for name, value in fields.items() if value}


def tolerations_of(
    options: PodOptions, needs: Sequence[Resources], gpu_resource: str, *, away: int = _NODE_AWAY
) -> Iterator[Object]:
    """The user's; the taints of nodes that have what is asked for; and silent nodes, for `away` seconds."""
    for each in options.tolerations:
        yield to_toleration(each)
    theirs = {each.key for each in options.tolerations if each.value is None and each.effect is None}
    others = dict.fromkeys(name for need in needs for name in need.other)
    gpus = [gpu_resource] if any(need.gpus for need in needs) else []
    vendors = {name.partition("/")[0] for name in (*others, *gpus)}
    keys = dict.fromkeys(each for each in names.GPUS if each.partition("/")[0] in vendors) | others
    for key in keys:
        if key not in theirs:
            yield {"key": key, "operator": "Exists"}
    own = {each.key for each in options.tolerations if each.effect in (None, "NoExecute")}
    for key in _AWAY:
        if key not in own:  # the shorter of two times would count
            yield {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": away,
            }


def to_toleration(each: Toleration) -> Object:
    """A toleration of the user's, as Kubernetes writes it."""
    made: Object = {"key": each.key, "operator": "Exists" if each.value is None else "Equal"}
    if each.value is not None:
        made["value"] = each.value
    if each.effect is not None:
        made["effect"] = each.effect
    return made


def _affinity(plan: Plan, group: Group, first_worker: int) -> Object:
    """Required: the model of GPU. Preferred: the nodes of the plan, so that another can replace one that is
    lost.
    """
    node: Object = {}
    if (wanted := group.resources.gpu_type) is not None:
        models = [each.partition("-MIG-")[0] for each in plan.gpu_models.get(wanted) or (wanted,)]
        expression = {
            "key": names.gpu_product(plan.gpu_resource),
            "operator": "In",
            "values": [_label(each) for each in models],
        }
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchExpressions": [expression]}]
        }
    if seats := sorted(set(planned_nodes(plan, group, first_worker)) - {""}):
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": 100, "preference": {"matchFields": [_is_named(name)]}} for name in seats
        ]
    return {"nodeAffinity": node} if node else {}


def planned_nodes(plan: Plan, group: Group, first_worker: int) -> Sequence[str]:
    """The node of each worker of a group; "" where the cluster could not be read."""
    seats = plan.placement.seats[first_worker : first_worker + group.workers]
    return [seat.node for seat in seats]


def _is_named(node: str) -> Object:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def _label(model: str) -> str:
    return "-".join(model.split())  # as NVIDIA's feature discovery writes a model


def _own_mounts() -> list[Object]:
    return [
        {"name": "bundle", "mountPath": names.BUNDLE_DIR, "readOnly": True},
        {"name": "secret", "mountPath": names.SECRET_DIR, "readOnly": True},
        {"name": "work", "mountPath": names.SPACE},
        {"name": "shm", "mountPath": names.SHM},
    ]


def _mpi_mounts(record: Record, number: int) -> list[Object]:
    """The files of an MPIJob's launcher where Kubeflow's controllers mount them: hostfile, discover_hosts.sh.
    What a user mounts there is more important, and mpi-operator mounts its own.
    """
    options = record.job.pod
    if number or options.annotations.get(KUBEFLOW_KIND) != "MPIJob" or options.job_kind != JOB:
        return []
    templates = [options.template, *(role.template for role in record.job.roles)]
    theirs = [
        str(mount.get("mountPath"))
        for template in templates
        for container in (template.get("spec") or {}).get("containers") or ()
        for mount in container.get("volumeMounts") or ()
    ]
    if any(
        f"{path}/".startswith(f"{names.MPI_DIR}/") for path in (*theirs, *(m.path for m in options.mounts))
    ):
        return []
    return [{"name": "work", "mountPath": names.MPI_DIR, "subPath": names.LAUNCH_FILES, "readOnly": True}]


def _own_volumes(run: str, bundles: Sequence[str], task: str | None) -> list[Object]:
    code = [{"configMap": {"name": each}} for each in bundles]
    gang = {"secretName": run, "items": [{"key": names.GANG_KEY, "path": names.GANG_KEY}]}
    return [
        {
            "name": "bundle",
            "projected": {"defaultMode": 0o444, "sources": [task_source(run, task), *code]},
        },
        {"name": "secret", "secret": {**gang, "defaultMode": 0o444}},  # whatever user the image has
        {"name": "work", "emptyDir": {}},
    ]


def task_source(run: str, task: str | None) -> Object:
    """Where a pod's volume has the task from: the pod's own annotation, or the record."""
    if task is None:
        return {"configMap": {"name": run, "items": [{"key": names.TASK_KEY, "path": names.TASK_KEY}]}}
    field = {"fieldPath": f"metadata.annotations['{names.AGENTS_TASK}']"}
    return {"downwardAPI": {"items": [{"path": names.TASK_KEY, "fieldRef": field}]}}


def _shm(job: Job, need: Resources) -> Object:
    """What is in shared memory counts as the container's, so half of its limit is left for the rest. A worker
    whose size is open has no such limit: volumes do not change with it.
    """
    if job.pod.shm is not None:
        return {"sizeLimit": quantity(job.pod.shm)}
    if job.shape is None and need.memory is not None and need.memory.limit is not None:
        return {"sizeLimit": quantity(int(need.memory.limit) // 2)}
    return {}
