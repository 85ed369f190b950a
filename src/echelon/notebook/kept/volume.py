"""The volume through which the steps of a pipeline run in a cluster hand on variables and files: one that is
made for the run, or one that the user names. Every pipeline run has a folder of its own on it.

Pods of several nodes can use it only if it is ReadWriteMany. One that is ReadWriteOnce binds all steps that
run at the same time to one node."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from echelon.engines.abilities import Volumes
from echelon.errors import InvalidJob, Unavailable
from echelon.model.engine.cluster import Cluster
from echelon.model.engine.volume import MODES
from echelon.model.pods.pod import NEW_SIZE, Output, parse_output
from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.values import frozen

if TYPE_CHECKING:  # who lists pipelines reads no notebook
    from echelon.notebook.analysis.cells import About
    from echelon.notebook.analysis.pipeline import Step

MOUNT = "/pipeline"  # where the steps of a pipeline run have it
RUN_LABEL = "notebook.echelon.dev/run"  # of a volume that was made for a pipeline run, and of all its pods
VOLUME_LABEL = "notebook.echelon.dev/volume"  # of what its steps are made of: the uid of that volume
SHARED, ONE_NODE = MODES["rwx"], MODES["rwo"]
_KALE_MODES = {"rwm": SHARED, "rwo": ONE_NODE}


@frozen
class VolumeRequest:
    """What the user or the notebook says of the volume; `output` names one, or says how to make one."""

    output: Output
    mode: str | None = SHARED  # of one that is made; None leaves it, and the class, to what there is


@frozen
class RunVolume:
    """The volume of a pipeline run, as its record has it."""

    claim: str
    path: str
    made: bool  # for this run: it goes when the run is removed
    one_node: bool = False
    uid: str = ""  # of one that was made: any user may give a volume its name and label

    def __str__(self) -> str:
        return f"pvc:{self.claim}/{self.path}"


def wanted_volume(text: str | None, mode: str | None, about: About) -> VolumeRequest:
    """What is wanted: by the flags, then by what the notebook says as Kale writes it."""
    output = Output(size=NEW_SIZE) if text is None else parse_output(text, "volume")
    if output.claim is not None and mode is not None:
        hint = "leave it out: the volume has its mode"
        raise InvalidJob("volume_mode", mode, f"is not for volume {output.claim}, which exists", hint=hint)
    if output.claim is None and output.storage_class is None and about.storage_class:
        output = Output(size=output.size, storage_class=about.storage_class)
    chosen = MODES[mode] if mode is not None else _KALE_MODES.get(about.access_mode)
    return VolumeRequest(output=output, mode=chosen or (SHARED if output.storage_class else None))


def settle_mode(wanted: VolumeRequest, shared: Sequence[str]) -> VolumeRequest:
    """Where neither mode nor class is said: ReadWriteMany of a class that is known to have it (`shared`),
    else ReadWriteOnce of the cluster's default. Pure.
    """
    if wanted.output.claim is not None or wanted.mode is not None:
        return wanted
    if not shared:
        return replace(wanted, mode=ONE_NODE)
    return VolumeRequest(output=replace(wanted.output, storage_class=shared[0]), mode=SHARED)


def open_volume(wanted: VolumeRequest, run: str, volumes: Volumes, *, dry_run: bool = False) -> RunVolume:
    """Find the volume that is named, or make one, which has the run's name."""
    if wanted.mode is None and wanted.output.claim is None:
        wanted = settle_mode(wanted, volumes.shared_classes())
    output, mode = wanted.output, wanted.mode or SHARED
    if output.claim is None:
        uid = ""
        if not dry_run:
            made = volumes.create(
                run,
                size=output.size,
                mode=mode,
                storage_class=output.storage_class,
                labels={RUN_LABEL: run},
            )
            uid = made.uid
        return RunVolume(claim=run, path=run, made=True, one_node=mode != SHARED, uid=uid)
    found = volumes.read(output.claim)
    # Another machine may have run one of the same name: what it left there must not be found.
    path = "/".join(filter(None, (output.path, f"{run}-{secrets.token_hex(2)}")))
    return RunVolume(claim=found.name, path=path, made=False, one_node=binds(found.name, found.modes))


def binds(name: str, modes: Sequence[str]) -> bool:
    """Whether pods that use a volume must be on one node; raises if it cannot serve a pipeline at all."""
    if SHARED in modes:
        return False
    if ONE_NODE in modes:
        return True
    raise Unavailable(
        f"volume {name} is {' and '.join(modes) or 'of no known mode'}: steps cannot hand on anything there",
        hint="name one that is ReadWriteMany or ReadWriteOnce (`echelon volume ls`)",
    )


def check_one_node(step: Step, cpus: float, memory: float, volume: str, cluster: Cluster) -> None:
    """Raise if the workers of a step, each with so much, do not fit on any one node, and must. Pure."""
    count = step.size.workers + (1 + step.size.parameter_servers if step.size.coordinated else 0)
    if count == 1 or not cluster.known or not cluster.nodes:
        return
    fits = any(
        node.cpus >= count * cpus
        and node.memory >= count * memory
        and len(node.gpus) >= step.size.workers * step.gpus
        for node in cluster.nodes
    )
    if not fits:
        raise InvalidNotebook(
            f"step {step.name}",
            f"its {count} workers do not fit on one node, and {volume} can be used by pods of one node only "
            "(ReadWriteOnce)",
            hint="--volume new:10Gi@CLASS with a class that has ReadWriteMany (`echelon doctor --on k8s` "
            "names some), or fewer or smaller workers",
        )


def bound_to_one_node(run: str) -> dict[str, Any]:
    """A pod template: on the node where other pods of the pipeline run are, if there are any."""
    term = {"labelSelector": {"matchLabels": {RUN_LABEL: run}}, "topologyKey": "kubernetes.io/hostname"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"spec": {"affinity": {"podAffinity": required}}}
