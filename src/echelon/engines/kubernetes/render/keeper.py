"""The keeper of a run as a Job: one small pod without GPUs, of the workers' image, with no more rights than a
worker and none of the user's secrets and volumes. Pure.

It belongs to the record, and is no part of the workers: it has a component of its own, by which every list of
workers leaves it out. It had better be on another node than they are: one that is lost takes less with it."""

from __future__ import annotations

from typing import Any

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.record import Shipped
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.image import image_of
from echelon.engines.kubernetes.render.payload import layout, map_names
from echelon.engines.kubernetes.render.pod import (
    RESTRICTED,
    chosen_by_user,
    security_context,
    task_source,
    tolerations_of,
)
from echelon.engines.kubernetes.render.task import is_short, write_task
from echelon.engines.kubernetes.render.volumes import quantity
from echelon.model.plan import Plan
from echelon.model.pods.template import merge_under
from echelon.model.run import Record

Object = dict[str, Any]

# What it needs while files come is bounded (`agent/keep/room.py`): 1.5 kB for each of at most 500,000, and
# 128 MB beside that, which `tests/faults/test_bounds.py` measures. The limit is above, since a keeper that is
# killed loses all that it holds; without one a default of the namespace, which may be less, would count.
_CPU, _MEMORY, _MOST_MEMORY = "100m", "256Mi", "1Gi"
_NODE_AWAY = 3600  # seconds before a silent node's keeper is given up: what it holds is on that node
_TRIES = 6  # pods, one after another
_AVOIDED = 64  # nodes, of a plan that may have thousands
# Of a user's pod template, what decides whether and where a pod may be. The rest is for the ranks.
_THEIRS = (
    "securityContext",
    "nodeSelector",
    "tolerations",
    "imagePullSecrets",
    "schedulerName",
    "runtimeClassName",
)


def keeper_object(
    record: Record, plan: Plan, shipped: Shipped, *, security_level: str = "", waits: bool = False
) -> Object | None:
    """The keeper's Job; None of a run that has none. Where the workers' Jobs wait, it does, too."""
    options, run = record.job.pod, record.job.name
    keeper = options.keeper
    if keeper is None:
        return None
    group = plan.world.groups[0]
    size = quantity(keeper.size)
    written = write_task(record, plan, shipped, dialects.named(options.job_kind))
    task = written if is_short(written) else None
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security_context(security_level),
        # Those of all workers: where only they may be, the keeper must be, too.
        "tolerations": list(
            tolerations_of(
                options,
                [each.resources for each in plan.world.groups],
                plan.gpu_resource,
                away=_NODE_AWAY,
            )
        ),
        "containers": [
            {
                "name": names.CONTAINER,
                "image": image_of(record.job, group.role),
                "imagePullPolicy": "Always" if options.pull == "always" else "IfNotPresent",
                "command": names.agent_command(record.job.python, "keeper", names.TASK),
                "env": [
                    {
                        "name": names.ENV_POD_IP,
                        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
                    },
                    # CUDA images ask for all GPUs of the node.
                    {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
                ],
                "resources": {
                    "requests": {"cpu": _CPU, "memory": _MEMORY, "ephemeral-storage": size},
                    "limits": {"memory": _MOST_MEMORY},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "terminationMessagePath": names.TERMINATION,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": "bundle", "mountPath": names.BUNDLE_DIR, "readOnly": True},
                    {"name": "secret", "mountPath": names.SECRET_DIR, "readOnly": True},
                    {"name": "work", "mountPath": names.SPACE},
                ],
            }
        ],
        "volumes": _volumes(run, shipped, size, task),
        "affinity": _elsewhere(run, plan),
    }
    spec.update(chosen_by_user(options))
    about = {
        "labels": {
            **options.labels,
            **names.labels_of(run, record.owner, names.KEEPER, record.job.parent),
            names.NO_SIDECAR: "false",
        },
        "annotations": {
            **options.annotations,
            names.OWNER: record.owner,
            names.NO_SIDECAR: "false",
            names.STAYS: "false",
            **({} if task is None else {names.AGENTS_TASK: task}),
        },
    }
    theirs = {key: value for key, value in (options.template.get("spec") or {}).items() if key in _THEIRS}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": names.metadata(run, record.owner, names.keeper_name(run), names.KEEPER, record.job),
        "spec": {
            "backoffLimit": _TRIES,
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": int(options.ttl),
            **({"suspend": True} if waits else {}),
            "template": merge_under({"spec": theirs}, {"metadata": about, "spec": spec}),
        },
    }


def _elsewhere(run: str, plan: Plan) -> Object:
    """Not where the workers are, if it can be: not on the nodes of the plan or, where it names none, of their
    pods. To both the scheduler would keep workers, too, away from the keeper, and from the plan.
    """
    if nodes := sorted({seat.node for seat in plan.placement.seats} - {""}):
        named = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes[:_AVOIDED]]
        preferred = {"weight": 100, "preference": {"matchFields": named}}
        return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    near = {
        "labelSelector": {"matchLabels": {names.RUN: run, names.COMPONENT: names.WORKER}},
        "topologyKey": "kubernetes.io/hostname",
    }
    preferred = {"weight": 100, "podAffinityTerm": near}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}


def level_of(job: Object) -> str:
    """The Pod Security level that a worker's Job was made for."""
    security = (dialects.of(job).template_of(job).get("spec") or {}).get("securityContext") or {}
    return RESTRICTED if security.get("runAsNonRoot") else ""


def _volumes(run: str, shipped: Shipped, size: str, task: str | None) -> list[Object]:
    """The agent is in the first of the ConfigMaps; the code, in the others, is not needed."""
    first = [{"key": piece.key, "path": piece.key} for piece in layout(shipped)[0][:1]]
    agent = {"configMap": {"name": map_names(run, shipped)[0], "items": first}}
    gang = {"secretName": run, "items": [{"key": names.GANG_KEY, "path": names.GANG_KEY}]}
    return [
        {
            "name": "bundle",
            "projected": {"defaultMode": 0o444, "sources": [task_source(run, task), agent]},
        },
        {"name": "secret", "secret": {**gang, "defaultMode": 0o444}},
        {"name": "work", "emptyDir": {"sizeLimit": size}},
    ]
