"""MPI: what worker 0 is started with, and which commands start ranks by themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.frameworks.wiring import environments, task_of

from echelon.agent.ranks.launching import launch as filling
from echelon.agent.ranks.launching.roll import Roll
from echelon.agent.task import START_RANK
from echelon.frameworks.mpi import calls_launcher, launch, source_calls_launcher
from echelon.model.engine.traits import Traits
from echelon.model.job import Job, Role
from echelon.model.resources import Resources
from echelon.model.settings import Settings
from echelon.model.surroundings import Surroundings
from echelon.model.world import Group, World
from echelon.preparation.prepare import prepare

JOB = Job(name="run", script="train.py", python="python3", framework="mpi", workers=3, procs=2)


def test_mpirun_starts_the_command_once_for_all_workers(tmp_path: Path) -> None:
    task = task_of(JOB, tmp_path)
    argv = filling.fill_argv(task.groups[0]["launch"]["argv"], task)
    assert argv[:3] == ["mpirun", "-n", "6"]
    assert argv[-2:] == ["python3", "train.py"]
    assert "rank" in argv
    (env,) = environments(JOB, tmp_path)
    shell = env["PRTE_MCA_plm_ssh_agent"]
    assert Path(shell).name == "ssh"
    assert env["OMPI_MCA_plm_rsh_agent"] == env["HYDRA_LAUNCHER_EXEC"] == shell
    assert env["PRTE_MCA_prte_default_hostfile"] == env["OMPI_MCA_orte_default_hostfile"]
    assert env["HYDRA_IFACE"] in ("lo", "lo0"), "workers of this machine meet on its loopback"


@pytest.mark.parametrize(
    ("addresses", "hosts"),
    [
        (["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["localhost slots=3", "worker-1 slots=1", "worker-2 slots=1"]),
        (["127.0.0.1"] * 3, ["localhost slots=5"]),  # processes of one machine
        (["10.0.0.1"] * 3, ["localhost slots=3", "worker-1 slots=1", "worker-2 slots=1"]),  # pods of one node
    ],
)
def test_the_hostfile_has_slots(tmp_path: Path, addresses: list[str], hosts: list[str]) -> None:
    job = Job(
        name="run",
        script="train.py",
        python="python3",
        framework="mpi",
        workers=2,
        roles=(Role(name="chief", workers=1, procs=3, resources=Resources()),),
    )
    task = task_of(job, tmp_path)
    roll = Roll(task, addresses, [[], [], []])
    texts = filling.file_texts(task, task.places[0], roll)
    by_name = {Path(path).name: text.splitlines() for path, text in texts.items()}
    assert by_name["hostfile"] == hosts
    assert by_name["hosts.hydra"] == [line.replace(" slots=", ":") for line in hosts]
    filling.write_files(task, task.places[0], roll)
    script = next(path for path in texts if path.endswith("/discover_hosts.sh"))
    printed = subprocess.run([script], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == by_name["hosts.hydra"], "as elastic Horovod reads it"


def test_one_rank_needs_no_launcher() -> None:
    world = World(groups=(Group(workers=1, procs=1),))
    assert launch(["./prog"], world, 0).argv == ("./prog",)
    assert launch(["./prog"], world, 0).per == "rank"


def test_a_command_that_starts_ranks_stays_as_it_is() -> None:
    world = World(groups=(Group(workers=3, procs=2),))
    for argv in (["mpirun", "prog"], ["/opt/bin/mpiexec.hydra", "-n", "4", "prog"], ["sh", "-c", "mpirun x"]):
        made = launch(argv, world, 0)
        assert (made.argv, made.per) == (tuple(argv), "leader")
    assert START_RANK in launch(["./prog"], world, 0).argv
    with_launcher = World(groups=(Group(role="launcher", workers=1, procs=1), *world.groups))
    assert launch(["./start.sh"], with_launcher, 0).argv == ("./start.sh",)


@pytest.mark.parametrize(
    ("argv", "calls"),
    [
        (["mpirun", "-n", "2", "x"], True),
        (["mpiexec.openmpi", "x"], True),
        (["bash", "-c", "cd /x && exec mpiexec -n 2 x"], True),
        (["bash", "-c", "./mpirun-notes.sh"], False),
        (["./a.out", "mpirun"], False),
        (["python", "-m", "mpi4py", "x.py"], False),
    ],
)
def test_which_commands_call_a_launcher(argv: list[str], calls: bool) -> None:
    assert calls_launcher(argv) is calls


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ('import subprocess\nsubprocess.run(["mpirun", "-n", "4", "prog"])\n', True),
        ('import os\nos.system("cd x; mpiexec prog")\n', True),
        ('"""Run with mpirun -n 4 python train.py."""\nfrom mpi4py import MPI\n', False),
        ("from mpi4py import MPI  # mpirun starts it\n", False),
        ("#!/bin/sh\nset -e\nexec mpirun prog $1\n", True),
        ("#!/bin/sh\n# mpirun is elsewhere\n./prog $1 &\n", False),
    ],
)
def test_which_scripts_call_a_launcher(source: str, calls: bool) -> None:
    assert source_calls_launcher(source.encode()) is calls


@pytest.mark.parametrize(
    ("settings", "framework", "starts_ranks"),
    [
        (Settings(command=["mpirun", "prog"]), "mpi", True),
        (Settings(command=["bash", "launch.sh"]), "mpi", True),
        (Settings(script="launch.sh"), "mpi", True),
        (Settings(script="launch.py"), "mpi", True),
        (Settings(script="train.py"), "mpi", False),
        (Settings(script="train.py", framework="plain"), "plain", False),
    ],
)
def test_what_a_job_runs_is_seen(
    tmp_path: Path, settings: Settings, framework: str, starts_ranks: bool
) -> None:
    (tmp_path / "launch.sh").write_text("exec mpirun prog\n")
    (tmp_path / "launch.py").write_text("import subprocess; subprocess.run(['mpirun', 'prog'])\n")
    (tmp_path / "train.py").write_text('"""mpirun python train.py"""\nfrom mpi4py import MPI\n')
    job = prepare(settings, Surroundings(folder=tmp_path, environment={}), Traits(place="here")).job
    assert (job.framework, job.starts_ranks) == (framework, starts_ranks)
