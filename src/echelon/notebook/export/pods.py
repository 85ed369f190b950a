"""What the pods of an exported pipeline run: one ConfigMap with the step runner and the pipeline. Pure, but
for reading echelon's own files.

The step runner needs a Python and nothing else, so that any image that has the notebook's libraries will do.
A distributed step's Job and Service are in the pipeline as templates: the step's pod fills in what is known
only there (`beside/jobs.py`)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from echelon.agent.ranks.launching.launch import environment
from echelon.agent.ranks.launching.roll import Roll
from echelon.agent.task import SCHEMA, Task
from echelon.bundle.zipapp import archive_of
from echelon.frameworks import launch
from echelon.model.resources import Resources
from echelon.model.world import Group, World
from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.analysis.parameters import kind_of
from echelon.notebook.analysis.pipeline import Pipeline, Step
from echelon.notebook.analysis.tags import GPU
from echelon.notebook.beside.task import MODULES, PIPELINE
from echelon.notebook.execution.asking import secret_variables
from echelon.notebook.execution.program import program_files, specification
from echelon.notebook.kept.folder import PipelineFolder
from echelon.values import frozen

Object = dict[str, Any]

PROGRAM, MOUNTED, WORKSPACE = "program.zip", "/echelon", "/workspace/run"
PYTHON = "python3"
MOST = 1_000_000  # bytes in a ConfigMap, with a margin for its names
_PORT = 2222
_FOR_PODS = ("jobs", "parameters", "sources", "task")
_KEPT = ("repeats", "cells", "calls", "deferred", "coordinated", "legacy_keras")
_SET_IN_PODS = ("ECHELON_RUN", "ECHELON_OUTPUT", "ECHELON_RESTART", "TORCHELASTIC_ERROR_FILE")
_MAIN = b'''"""Runs steps of an exported notebook. Written by echelon: change the notebook, not this file."""

import sys

program = sys.path[0]
sys.path[0] = program + "/lib"
from echelon.notebook.beside.task import main

# A notebook may import echelon itself: these few files of it must not stand in its way.
for name in [name for name in sys.modules if name.partition(".")[0] == "echelon"]:
    del sys.modules[name]
del sys.path[0]
sys.path.append(program + "/figures")
sys.exit(main(program))
'''


@frozen
class Pods:
    """What the user chose for the pods of a pipeline."""

    images: Mapping[str, str]  # of each step
    shared: bool = False  # the volume can be mounted on several nodes at once


def program_archive(modules: Mapping[str, bytes]) -> bytes:
    """The step runner, as a zip that Python runs, with modules that the notebook imports."""
    sources = {name: content for name, content in program_files().items() if name.partition("/")[1]}
    for name in _FOR_PODS:
        sources[f"lib/echelon/notebook/beside/{name}.py"] = (
            files("echelon.notebook.beside") / f"{name}.py"
        ).read_bytes()
    sources |= {f"{MODULES}/{name}": content for name, content in modules.items()}
    return archive_of({**sources, "__main__.py": _MAIN})


def is_distributed(step: Step) -> bool:
    """Whether a step runs in pods of its own."""
    return step.size.workers > 1 or step.size.coordinated


def config_map(pipeline: Pipeline, pods: Pods, program: bytes) -> Object:
    """The ConfigMap; raises InvalidNotebook if the notebook is too large for one. Another content has another
    name, since runs of the old one may be under way.
    """
    document = _document(pipeline)
    for step in pipeline.steps:
        if is_distributed(step):
            document["steps"][step.name] |= {
                "service": _service(),
                "job": _job(pipeline, step, pods),
                "processes": processes_of(step),
            }
    text = json.dumps(document, indent=1)
    encoded = base64.b64encode(program).decode()
    if len(text) + len(encoded) > MOST:
        raise InvalidNotebook(
            pipeline.notebook.path.name,
            f"its cells ({len(text)} bytes) and modules ({len(program)}) are more than a ConfigMap holds",
            hint="move data out of the cells, and modules into the image",
        )
    digest = hashlib.sha256(program + text.encode()).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{pipeline.name}-{digest[:10]}"},
        "immutable": True,
        "data": {PIPELINE: text},
        "binaryData": {PROGRAM: encoded},
    }


def resources_of(step: Step) -> Object:
    """What each worker of a step gets."""
    own = step.options.settings
    asked = {"cpu": own.cpus, "memory": own.memory, **(own.resource or {}), GPU: step.gpus or None}
    limits = {name: str(amount) for name, amount in asked.items() if amount is not None}
    return {"limits": limits, "requests": dict(limits)} if limits else {}


def volumes_of(pipeline: Pipeline) -> tuple[list[Object], list[Object]]:
    """The claims that the notebook's metadata names, as volumes and where they are mounted."""
    claims = [each for each in pipeline.notebook.about.volumes if each.kind == "pvc"]
    numbered = [(f"claim-{number}", each) for number, each in enumerate(claims)]
    return (
        [{"name": name, "persistentVolumeClaim": {"claimName": each.name}} for name, each in numbered],
        [{"name": name, "mountPath": each.mount_point} for name, each in numbered],
    )


def processes_of(step: Step) -> list[list[dict[str, str]]]:
    """The variables of every process of every worker; `{job}` is the Job's name."""
    world = world_of(step)
    groups = [
        {
            "role": group.role,
            "workers": group.workers,
            "procs": group.procs,
            "launch": {
                "argv": [],
                "wiring": dict(launch(step.size.framework, [PYTHON], world, number).wiring),
            },
        }
        for number, group in enumerate(world.groups)
    ]
    paths = dict.fromkeys(("run", "cwd", "output", "logs", "reports", "secret"), "")
    task = Task({"schema": SCHEMA, "groups": groups, "leader": {"host": "", "port": 0}, **paths})
    hosts = [f"{{job}}-{place.worker}.{{job}}" for place in task.places]
    ports = [[_PORT + local for local in range(place.procs)] for place in task.places]
    roll = Roll(task, hosts, ports)
    return [
        [
            {
                name: text
                for name, text in environment({}, task, place, local, 0, roll, "", set()).items()
                if name not in _SET_IN_PODS
            }
            for local in range(place.procs)
        ]
        for place in task.places
    ]


def world_of(step: Step) -> World:
    """The workers of a step, by role."""
    size = step.size
    procs = step.gpus if size.framework == "torch" and step.gpus else 1
    workers = Group(workers=size.workers, procs=procs, resources=Resources(gpus=step.gpus))
    if not size.coordinated:
        return World(groups=(workers,))
    chief = Group(role="chief", workers=1, procs=1)
    servers = Group(role="ps", workers=size.parameter_servers, procs=1, essential=False)
    return World(groups=(chief, workers, servers))


def _document(pipeline: Pipeline) -> Object:
    """The pipeline as the step runner reads it."""
    nowhere = PipelineFolder(Path())
    parameters = {each.name: each for each in pipeline.parameters}
    cells = {each.cell for each in pipeline.parameters}
    after = [number for number, code in enumerate(pipeline.prelude, 1) if code.cell in cells]
    steps = {}
    for step in pipeline.steps:
        told = specification(pipeline, step, nowhere, {})
        steps[step.name] = {
            "before": sorted(step.before),
            "wanted": [*step.flow.inputs, *step.flow.perhaps],
            "outputs": list(step.flow.read_later),
            "specification": {name: told[name] for name in _KEPT},
        }
    return {
        "schema": 1,
        "notebook": pipeline.notebook.path.name,
        "prelude": [{"cell": code.cell, "text": code.text} for code in pipeline.prelude],
        "given_after": max(after, default=0),
        "parameters": {name: {"kind": kind_of(each), "cell": each.cell} for name, each in parameters.items()},
        "metrics": list(pipeline.metrics),
        "steps": steps,
    }


def _service() -> Object:
    """The workers' names, which each has as soon as it has an address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "{job}"},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": "{job}"},
        },
    }


def _job(pipeline: Pipeline, step: Step, pods: Pods) -> Object:
    """The workers. A failure of one is the step's: the engine decides whether to start it again."""
    count = sum(group.workers for group in world_of(step).groups)
    volumes, mounts = volumes_of(pipeline)
    container = {
        "name": "step",
        "image": pods.images[step.name],
        "command": [PYTHON],
        "args": [f"{MOUNTED}/{PROGRAM}", "work", step.name],
        "env": [{"name": "ECHELON_JOB", "value": "{job}"}, *secret_variables(step)],
        "resources": resources_of(step),
        "volumeMounts": [
            {"name": "program", "mountPath": MOUNTED, "readOnly": True},
            {"name": "run", "mountPath": WORKSPACE},
            *mounts,
        ],
    }
    spec: Object = {
        "subdomain": "{job}",
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [
            {"name": "program", "configMap": {"name": "{program}"}},
            {"name": "run", "persistentVolumeClaim": {"claimName": "{claim}"}},
            *volumes,
        ],
    }
    if not pods.shared:
        # The volume can be mounted on one node only: that of the pod which starts the workers.
        beside = {"matchLabels": {"tekton.dev/pipelineRun": "{pipeline}"}}
        term = {"labelSelector": beside, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "{job}", "labels": {"app.kubernetes.io/part-of": pipeline.name}},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimit": 0,
            "template": {
                "metadata": {
                    "labels": dict(step.options.settings.label or {}),
                    "annotations": dict(step.options.settings.annotation or {}),
                },
                "spec": spec,
            },
        },
    }
