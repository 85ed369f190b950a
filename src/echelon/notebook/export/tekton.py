"""A pipeline as a PipelineRun of Tekton (`tekton.dev/v1`), and the objects that it needs beside it. Pure.

Each step is a task; a distributed one is a task that makes an Indexed Job and follows it. Parameters are the
notebook's, as text, read in the pods; metrics are results. Variables and files are in one workspace, a claim
that is made for each run, or a named one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from echelon.model.settings import Settings
from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.analysis.flow import flow_of
from echelon.notebook.analysis.parameters import Parameter, kind_of
from echelon.notebook.analysis.pipeline import Pipeline, Step
from echelon.notebook.beside.parameters import parse_text
from echelon.notebook.beside.task import PARAMETER, RESULT
from echelon.notebook.execution.asking import secret_variables
from echelon.notebook.export import pods
from echelon.notebook.export.pods import Object, Pods
from echelon.values import frozen

RUN = "run"  # the workspace
ACCOUNT = "echelon-notebook"
_RUN_NAME = "echelon-run"  # a parameter of every task; a notebook's cannot be called so
_LONGEST = 63
_NO_TIMEOUT = "0s"  # Tekton's own is an hour
_POD = {
    "ECHELON_POD": "metadata.name",
    "ECHELON_POD_UID": "metadata.uid",
    "ECHELON_NAMESPACE": "metadata.namespace",
}


@frozen
class RunClaim:
    """The claim of the volume between steps: a new one for each run, or one that is there."""

    claim: str = ""  # one that is there
    size: str = "1Gi"
    storage_class: str = ""
    shared: bool = False  # ReadWriteMany


@frozen
class Exported:
    """`needed` are objects to apply once; `run` is one to create for each run."""

    needed: tuple[Object, ...]
    run: Object
    notes: tuple[str, ...] = ()  # what the user should know


@frozen
class _Common:
    """What all tasks know: the ConfigMap's name, the images and tasks of steps, the step of each metric."""

    pipeline: Pipeline
    program: str
    images: Mapping[str, str]
    restarts: int
    tasks: Mapping[str, str]
    makers: Mapping[str, str]


def as_tekton(pipeline: Pipeline, settings: Settings, volume: RunClaim, program: bytes) -> Exported:
    """The pipeline for Tekton; raises InvalidNotebook if a step has no image. `settings` are of all steps:
    their image, where their tags name none, the namespace, and restarts.
    """
    images = {step.name: _image(pipeline, step, settings) for step in pipeline.steps}
    tasks = task_names(pipeline.steps)
    makers = {name: maker for name in pipeline.metrics if (maker := _maker(pipeline, name)) is not None}
    shipped = pods.config_map(pipeline, Pods(images=images, shared=volume.shared), program)
    common = _Common(
        pipeline=pipeline,
        program=shipped["metadata"]["name"],
        images=images,
        restarts=settings.restarts or 0,
        tasks=tasks,
        makers=makers,
    )
    spec: Object = {
        "params": [{"name": each.name, "value": text_of(pipeline, each)} for each in pipeline.parameters],
        "pipelineSpec": {
            "description": pipeline.notebook.about.description
            or f"The notebook {pipeline.notebook.path.name}",
            "params": [_declared(each) for each in pipeline.parameters],
            "workspaces": [{"name": RUN}],
            "tasks": [_task(step, common) for step in pipeline.steps],
            "results": [
                {
                    "name": result_name(name),
                    "type": "string",
                    "value": f"$(tasks.{tasks[maker]}.results.{result_name(name)})",
                }
                for name, maker in makers.items()
            ],
        },
        "workspaces": [{"name": RUN, **_volume(volume)}],
        "timeouts": {"pipeline": _NO_TIMEOUT},
    }
    distributed = [step for step in pipeline.steps if pods.is_distributed(step)]
    if distributed:
        spec["taskRunSpecs"] = [
            {"pipelineTaskName": tasks[step.name], "serviceAccountName": ACCOUNT} for step in distributed
        ]
    run = {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"generateName": f"{pipeline.name}-"},
        "spec": spec,
    }
    needed = [shipped]
    needed += _account(settings.namespace or "default") if distributed else []
    notes = [
        f"the volume {each.name!r} is left out: only claims that exist (pvc) are mounted"
        for each in pipeline.notebook.about.volumes
        if each.kind != "pvc"
    ]
    return Exported(
        needed=tuple(_placed(each, settings.namespace) for each in needed),
        run=_placed(run, settings.namespace),
        notes=tuple(notes),
    )


def task_names(steps: Sequence[Step]) -> dict[str, str]:
    """A name for each step's task: Tekton allows no `_`."""
    found: dict[str, str] = {}
    for step in steps:
        plain = re.sub("-+", "-", step.name.replace("_", "-")).strip("-")[: _LONGEST - 4] or "step"
        name, number = plain, 2
        while name in found.values():
            name, number = f"{plain}-{number}", number + 1
        found[step.name] = name
    return found


def result_name(metric: str) -> str:
    """The name of a metric's result: Tekton allows no `_` at its ends."""
    return metric.strip("_") or "metric"


def text_of(pipeline: Pipeline, parameter: Parameter) -> str:
    """A parameter's value as the text that reads as the same value."""
    value = pipeline.values.get(parameter.name, parameter.value)
    if isinstance(value, str) and parse_text(kind_of(parameter), value) == value:
        return value
    return repr(value)


def _image(pipeline: Pipeline, step: Step, settings: Settings) -> str:
    image = step.options.settings.image or settings.image or pipeline.notebook.about.image
    if not image:
        hint = "--image REF, or the tag image:REF; it needs Python and what the notebook imports"
        raise InvalidNotebook(f"step {step.name}", "it has no image", hint=hint)
    return image


def _maker(pipeline: Pipeline, metric: str) -> str | None:
    """The last step that gives a metric its value."""
    makers = [step.name for step in pipeline.steps if metric in flow_of(step.cells).changes]
    return makers[-1] if makers else None


def _declared(parameter: Parameter) -> Object:
    own = "" if parameter.required else f", {parameter.value!r} in the notebook"
    about = f"{kind_of(parameter)}{own}"
    return {"name": parameter.name, "type": "string", "description": about}


def _task(step: Step, common: _Common) -> Object:
    pipeline, tasks = common.pipeline, common.tasks
    volumes, mounts = pods.volumes_of(pipeline)
    results = [name for name, maker in common.makers.items() if maker == step.name]
    distributed = pods.is_distributed(step)
    values = {
        "ECHELON_PIPELINE": f"$(params.{_RUN_NAME})",
        "ECHELON_FOLDER": f"$(workspaces.{RUN}.path)",
        **{f"{PARAMETER}{each.name}": f"$(params.{each.name})" for each in pipeline.parameters},
        **{f"{RESULT}{name}": f"$(results.{result_name(name)}.path)" for name in results},
    }
    if distributed:
        values |= {"ECHELON_CLAIM": f"$(workspaces.{RUN}.claim)", "ECHELON_PROGRAM": common.program}
    env: list[Object] = [{"name": name, "value": value} for name, value in values.items()]
    if distributed:
        env += [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _POD.items()]
    else:
        env += secret_variables(step)
    container: Object = {
        "name": "step",
        "image": common.images[step.name],
        "command": [pods.PYTHON],
        "args": [f"{pods.MOUNTED}/{pods.PROGRAM}", "start" if distributed else "run", step.name],
        "env": env,
        "volumeMounts": [{"name": "program", "mountPath": pods.MOUNTED, "readOnly": True}, *mounts],
    }
    if not distributed and (wanted := pods.resources_of(step)):
        container["computeResources"] = wanted
    names = [_RUN_NAME, *(each.name for each in pipeline.parameters)]
    spec: Object = {
        "params": [{"name": name, "type": "string"} for name in names],
        "workspaces": [{"name": RUN, "mountPath": pods.WORKSPACE}],
        **(
            {"results": [{"name": result_name(name), "type": "string"} for name in results]}
            if results
            else {}
        ),
        "steps": [container],
        "volumes": [{"name": "program", "configMap": {"name": common.program}}, *volumes],
    }
    own = step.options.settings
    if own.label or own.annotation:
        spec["metadata"] = {"labels": dict(own.label or {}), "annotations": dict(own.annotation or {})}
    given = {_RUN_NAME: "$(context.pipelineRun.name)"} | {
        each.name: f"$(params.{each.name})" for each in pipeline.parameters
    }
    return {
        "name": tasks[step.name],
        **({"runAfter": [tasks[name] for name in step.after]} if step.after else {}),
        "params": [{"name": name, "value": value} for name, value in given.items()],
        "workspaces": [{"name": RUN, "workspace": RUN}],
        **({"retries": common.restarts} if common.restarts else {}),
        "timeout": _NO_TIMEOUT,
        "taskSpec": spec,
    }


def _volume(volume: RunClaim) -> Object:
    if volume.claim:
        return {"persistentVolumeClaim": {"claimName": volume.claim}}
    spec: Object = {
        "accessModes": ["ReadWriteMany" if volume.shared else "ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class:
        spec["storageClassName"] = volume.storage_class
    return {"volumeClaimTemplate": {"spec": spec}}


def _account(namespace: str) -> list[Object]:
    """What lets a distributed step make its workers, and nothing else."""
    about = {"name": ACCOUNT}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
    rules: list[dict[str, Any]] = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]
    group = "rbac.authorization.k8s.io/v1"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        {"apiVersion": group, "kind": "Role", "metadata": about, "rules": rules},
        {
            "apiVersion": group,
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def _placed(obj: Object, namespace: str | None) -> Object:
    if not namespace:
        return obj
    return {**obj, "metadata": {"namespace": namespace, **obj["metadata"]}}
