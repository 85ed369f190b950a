"""What JAX's processes find in their environment. JAX's own code is asked in `test_real_jax.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.frameworks.wiring import environments

from echelon.model.job import Job, Role
from echelon.model.resources import Resources


def job(**more: Any) -> Job:
    return Job(name="the-run", script="train.py", framework="jax", **more)


def test_every_process_knows_its_place(tmp_path: Path) -> None:
    found = environments(job(workers=2, procs=2), tmp_path)
    assert [env["JAX_PROCESS_ID"] for env in found] == ["0", "1", "2", "3"]
    assert [env["OMPI_COMM_WORLD_RANK"] for env in found] == ["0", "1", "2", "3"]
    for name, value in {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1",
        "JAX_NUM_PROCESSES": "4",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_MCA_orte_hnp_uri": "",
        "COORDINATOR_ADDRESS": "10.0.0.1",
        "COORDINATOR_PORT": "1",
        "NUM_PROCESSES": "4",
        "MASTER_ADDR": "10.0.0.1",  # a script that loads its data with PyTorch
    }.items():
        assert {env[name] for env in found} == {value}, name


def test_an_address_of_the_newer_kind_is_told_from_its_port(tmp_path: Path) -> None:
    (env, _) = environments(job(workers=2), tmp_path, addresses=["fe80::1", "fe80::2"])
    assert (env["JAX_COORDINATOR_ADDRESS"], env["COORDINATOR_ADDRESS"]) == ("[fe80::1]:1", "fe80::1")


def test_devices(tmp_path: Path) -> None:
    """One process has all GPUs of its worker; of several each has one, as long as they last."""

    def devices(procs: int) -> list[str]:
        found = environments(job(procs=procs, resources=Resources(gpus=4)), tmp_path)
        return [env["JAX_LOCAL_DEVICE_IDS"] for env in found]

    assert devices(1) == ["0,1,2,3"]
    assert devices(4) == ["0", "1", "2", "3"]
    assert devices(8) == ["0,1,2,3"] * 8
    (env,) = environments(job(), tmp_path)
    assert "JAX_LOCAL_DEVICE_IDS" not in env


def test_processes_that_share_the_devices_of_a_machine_count_over_it(tmp_path: Path) -> None:
    found = environments(job(workers=3), tmp_path, addresses=["10.0.0.1", "10.0.0.1", "10.0.0.2"])
    assert [env["OMPI_COMM_WORLD_LOCAL_RANK"] for env in found] == ["0", "1", "0"]


def test_another_role_is_no_part_of_it(tmp_path: Path) -> None:
    role = Role(name="evaluator", workers=1, resources=Resources(), command=("python", "judge.py"))
    found = environments(job(workers=1, roles=(role,)), tmp_path)
    assert [env.get("JAX_NUM_PROCESSES") for env in found] == ["1", None]
