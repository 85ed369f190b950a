"""MPIJobs of both controllers, as jobs of echelon's."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.errors import InvalidJob
from echelon.kubeflow import Manifest, Outside, on_this_machine, read_manifest
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.resources import Amount

JobOf = Callable[[str], Job]
Read = Callable[[str], Manifest]

BENCHMARKS = """
    apiVersion: kubeflow.org/v2beta1
    kind: MPIJob
    metadata: {name: tensorflow-benchmarks}
    spec:
      slotsPerWorker: 2
      sshAuthMountPath: /home/mpiuser/.ssh
      runPolicy: {cleanPodPolicy: Running, backoffLimit: 2, ttlSecondsAfterFinished: 60}
      mpiReplicaSpecs:
        Launcher:
          replicas: 1
          restartPolicy: OnFailure
          template:
            spec:
              containers:
                - name: launcher
                  image: my/benchmarks:1
                  command: [mpirun, --allow-run-as-root, -np, "4", -bind-to, none]
                  args: [python, scripts/benchmarks.py, --model=resnet101]
                  resources: {limits: {cpu: 1}}
        Worker:
          replicas: 2
          template:
            spec:
              containers:
                - name: worker
                  image: my/benchmarks:1
                  resources: {limits: {nvidia.com/gpu: 2, cpu: 4}}
"""
VERSIONS = {
    "kubeflow.org/v2beta1": BENCHMARKS,
    "kubeflow.org/v1": BENCHMARKS.replace("v2beta1", "v1").replace(
        "sshAuthMountPath: /home/mpiuser/.ssh", "mainContainer: "
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_launchers_command_is_the_runs(job_of: JobOf, version: str) -> None:
    job = job_of(VERSIONS[version])
    assert (job.framework, job.workers, job.procs, job.restarts) == ("mpi", 2, 2, 2)
    assert job.command == ("mpirun", "--allow-run-as-root", "-np", "4", "-bind-to", "none")
    assert job.args == ("python", "scripts/benchmarks.py", "--model=resnet101")
    assert job.resources.gpus == 2
    (launcher,) = job.roles
    assert (launcher.name, launcher.workers, launcher.resources.gpus) == ("launcher", 1, 0)
    assert launcher.resources.cpus == Amount(request=1, limit=1)


def test_fields_of_the_other_controller_are_refused(job_of: JobOf) -> None:
    mixed = BENCHMARKS.replace("v2beta1", "v1")
    with pytest.raises(InvalidJob, match=r"spec\.sshAuthMountPath: 'sshAuthMountPath' is not a known field"):
        job_of(mixed)


def test_without_a_command_of_the_launcher_there_is_nothing_to_run(job_of: JobOf) -> None:
    silent = BENCHMARKS.replace("command: [mpirun,", "ports: [] # [mpirun,").replace(
        "args: [python", "tty: true # ["
    )
    with pytest.raises(InvalidJob, match=r"spec\.mpiReplicaSpecs: .*has no Launcher with a command"):
        job_of(silent)


def test_a_launcher_that_has_arguments_alone_has_its_images_entrypoint(tmp_path: Path) -> None:
    """As in mpi-operator's examples. Where the image cannot be asked, its arguments are the command."""
    text = textwrap.dedent(BENCHMARKS).replace("command: [mpirun,", "args: [mpirun,")
    path = tmp_path / "job.yaml"
    path.write_text(text.replace("args: [python, ", "stdin: true # ["))
    words = ("mpirun", "--allow-run-as-root", "-np", "4", "-bind-to", "none")
    for start, command, args in (
        ((("/entrypoint.sh",), ()), ("/entrypoint.sh",), words),
        (((), ("bash",)), words, ()),
        (None, words, ()),
    ):
        manifest = read_manifest(path, Outside(find_start=lambda _image, start=start: start))  # type: ignore[misc]
        assert manifest is not None
        job = to_job(manifest.settings, name="x")
        assert (job.command, job.args) == (command, args)
        told = [note for note in manifest.notes if note.startswith("launcher: its arguments are called")]
        assert len(told) == (0 if args else 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_files_of_etc_mpi_are_those_of_the_launch_on_this_machine(read: Read, version: str) -> None:
    """Also in a shell's line; what --map names there is more important."""
    line = 'sh, -c, "mpirun --hostfile /etc/mpi/hostfile true && horovodrun --host-discovery-script '
    text = VERSIONS[version].replace("mpirun, --allow-run-as-root", line + '/etc/mpi/discover_hosts.sh true"')
    manifest = read(text)
    known = ("/etc/mpi", "/mine/hosts")

    def command(**maps: str) -> str:
        places = {f"/etc/mpi/{name}": path for name, path in maps.items()}
        found = on_this_machine(
            manifest, manifest.settings, places, Path("/srv"), lambda path: path in (*known, "scripts")
        )
        return " ".join(map(str, found.settings.command or ()))

    manifest = replace(manifest, settings=replace(manifest.settings, args=None))
    assert "--hostfile {file:hostfile} true" in command()
    assert "--host-discovery-script {file:discover_hosts.sh} true" in command()
    assert "--hostfile /mine/hosts true" in command(hostfile="/mine/hosts")
