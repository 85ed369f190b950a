"""MPIJob, of both controllers: the launcher's command starts the ranks on the workers.

echelon's agents are mpirun's remote shell, so that the workers need neither sshd nor its keys: what the
manifest has them run is not started."""

from __future__ import annotations

from dataclasses import replace

from echelon.kubeflow.kinds.policy import read_metadata, read_policy
from echelon.kubeflow.kinds.replicas import Part, manifest_of, read_replicas, settings_of
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.nodes import Node, child, fields, is_true, note, number, one_of, optional_text, refuse
from echelon.kubeflow.outside import Outside
from echelon.kubeflow.pod import Reader, Worker
from echelon.model.pods.pod import IMAGE
from echelon.model.settings import Settings

ROLES = {"Launcher": "launcher", "Worker": "worker"}
_V1 = ("slotsPerWorker", "cleanPodPolicy", "mpiReplicaSpecs", "mainContainer", "runPolicy")
_V2 = (
    "slotsPerWorker",
    "runPolicy",
    "mpiReplicaSpecs",
    "sshAuthMountPath",
    "launcherCreationPolicy",
    "mpiImplementation",
    "runLauncherAsWorker",
)
_IDLE = ("sleep", "infinity")  # what a worker's own container would run


def read_mpijob_v1(document: Node, outside: Outside) -> Manifest:
    """One of training-operator's."""
    return _read(document, _V1, outside)


def read_mpijob_v2(document: Node, outside: Outside) -> Manifest:
    """One of mpi-operator's."""
    return _read(document, _V2, outside)


def _read(document: Node, known: tuple[str, ...], outside: Outside) -> Manifest:
    notes: list[str] = []
    spec = child(document, "spec")
    parts = fields(spec, known)
    reader = Reader(
        container=optional_text(parts.get("mainContainer")), wired=lambda _name: False, default_command=_IDLE
    )
    replicas = read_replicas(child(spec, "mpiReplicaSpecs"), ROLES, reader, restart="Never", notes=notes)
    about = read_metadata(child(document, "metadata"), notes)
    launcher = next((part for part in replicas if part.role == "launcher"), None)
    if launcher is not None and launcher.worker.command == _IDLE:
        launcher = replace(launcher, worker=_with_entrypoint(launcher.worker, outside, notes))
    if launcher is None or not launcher.worker.command:
        where = child(spec, "mpiReplicaSpecs")
        raise refuse(where, "has no Launcher with a command", "its command calls mpirun")
    if "mpiImplementation" in parts:
        one_of(parts["mpiImplementation"], ("OpenMPI", "Intel", "MPICH"))
    if is_true(parts.get("runLauncherAsWorker")):
        notes.append(note(parts["runLauncherAsWorker"], "the launcher runs no ranks"))
    if "cleanPodPolicy" in parts:
        notes.append(note(parts["cleanPodPolicy"], "the pods end with the run, whose logs and results stay"))
    settings = Settings(
        framework="mpi",
        procs=number(parts.get("slotsPerWorker"), least=1) or 1,
        code=IMAGE,
        **about,
        **settings_of([_as_launcher(part, launcher) for part in replicas], notes),
        **read_policy(parts.get("runPolicy"), [launcher], notes),
    )
    return manifest_of("MPIJob", settings, replicas, notes)


def _with_entrypoint(worker: Worker, outside: Outside, notes: list[str]) -> Worker:
    """A launcher without a command, of which its image starts the arguments. An entrypoint that cannot be
    known prepares what the arguments call, in the images of mpi-operator's examples: they can do without.
    """
    entrypoint, usual = outside.find_start(worker.image) or ((), ())
    words = worker.args or usual
    if entrypoint:
        return replace(worker, command=entrypoint, args=words)
    if words:
        notes.append(f"launcher: its arguments are called without the entrypoint of {worker.image}, if any")
    return replace(worker, command=words, args=())


def _as_launcher(part: Part, launcher: Part) -> Part:
    """The run's command is the launcher's; the workers wait for what it starts on them."""
    worker = replace(part.worker, command=launcher.worker.command, args=launcher.worker.args)
    return replace(part, worker=worker)
