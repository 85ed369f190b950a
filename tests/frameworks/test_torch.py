"""What torch's ranks find in their environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.frameworks.wiring import environments

from echelon.frameworks.torch import calls_torchrun, shell_calls_torchrun
from echelon.model.job import Job, Role
from echelon.model.resources import Resources


def job(**more: Any) -> Job:
    what: dict[str, Any] = {} if "command" in more else {"script": "train.py"}
    return Job(name="the-run", framework="torch", **what, **more)


def test_every_rank_knows_its_place(tmp_path: Path) -> None:
    found = environments(job(workers=2, procs=3), tmp_path)
    assert [env["RANK"] for env in found] == ["0", "1", "2", "3", "4", "5"]
    assert [env["LOCAL_RANK"] for env in found] == ["0", "1", "2", "0", "1", "2"]
    assert [env["GROUP_RANK"] for env in found] == ["0", "0", "0", "1", "1", "1"]
    for name, value in {
        "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "3",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        assert {env[name] for env in found} == {value}, name
    assert len({env["TORCHELASTIC_ERROR_FILE"] for env in found}) == 3


def test_workers_of_one_machine_that_share_its_devices_count_over_the_machine(tmp_path: Path) -> None:
    """A script takes the device of its LOCAL_RANK; with GPUs of its own, each worker counts them from 0."""
    names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    shared = environments(job(workers=3, procs=2), tmp_path, addresses=["10.0.0.1", "10.0.0.1", "10.0.0.2"])
    assert [tuple(env[name] for name in names) for env in shared] == [
        ("0", "4", "0"),
        ("1", "4", "0"),
        ("2", "4", "0"),
        ("3", "4", "0"),
        ("0", "2", "1"),
        ("1", "2", "1"),
    ]
    own = environments(
        job(workers=2, resources=Resources(gpus=1)), tmp_path, addresses=["10.0.0.1", "10.0.0.1"]
    )
    assert [tuple(env[name] for name in names) for env in own] == [("0", "1", "0"), ("0", "1", "1")]


def test_one_rank_can_meet_itself(tmp_path: Path) -> None:
    (env,) = environments(job(), tmp_path)
    assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"]) == ("0", "1", "10.0.0.1")


def test_the_contract_of_every_script(tmp_path: Path) -> None:
    found = environments(job(workers=2, procs=2, env={"CKPT": "{output}/ckpt/{run}"}), tmp_path, generation=3)
    for rank, env in enumerate(found):
        assert env["ECHELON_RUN"] == "the-run"
        assert (env["ECHELON_WORKER"], env["ECHELON_WORKERS"]) == (str(rank // 2), "2")
        assert (env["ECHELON_RANK"], env["ECHELON_RANKS"]) == (str(rank), "4")
        assert env["ECHELON_RESTART"] == "3"
        assert env["ECHELON_OUTPUT"] == "/results"
        assert env["CKPT"] == "/results/ckpt/the-run"
        assert env["PYTHONUNBUFFERED"] == "1"


def test_the_user_has_the_last_word(tmp_path: Path) -> None:
    said = {"MASTER_PORT": "29500", "NOTE": "{rank} {braces}"}
    (env,) = environments(job(env=said), tmp_path, inherited={"OMP_NUM_THREADS": "7", "HOME": "/home/me"})
    assert (env["MASTER_PORT"], env["NOTE"]) == ("29500", "{rank} {braces}")
    assert (env["OMP_NUM_THREADS"], env["HOME"]) == ("7", "/home/me")


def test_a_chief_is_the_first_rank_and_other_roles_are_no_part_of_the_training(tmp_path: Path) -> None:
    def role(name: str, *command: str) -> Role:
        return Role(name=name, workers=1, resources=Resources(), command=command)

    found = environments(job(workers=2, roles=(role("ps", "serve"), role("chief", "train"))), tmp_path)
    assert [env.get("RANK") for env in found] == ["0", "1", "2", None]
    assert [env.get("WORLD_SIZE") for env in found] == ["3", "3", "3", None]
    assert [env["ECHELON_RANK"] for env in found] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    "command",
    [
        ("torchrun", "train.py"),
        ("/opt/conda/bin/torchrun", "--nproc-per-node=2", "train.py"),
        ("python", "-m", "torch.distributed.run", "train.py"),
        ("python3", "-u", "-m", "torch.distributed.launch", "--use-env", "train.py"),
    ],
)
def test_a_command_that_calls_torchrun_is_started_once_per_worker(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    assert calls_torchrun(command)
    found = environments(job(command=command, workers=2, procs=4), tmp_path)
    assert len(found) == 2
    assert [env["PET_NODE_RANK"] for env in found] == ["0", "1"]
    for env in found:
        assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("2", "4")
        assert (env["PET_MASTER_ADDR"], env["PET_MASTER_PORT"]) == ("10.0.0.1", "1")
        assert "RANK" not in env, "torchrun sets it"


@pytest.mark.parametrize(
    "command", [("python", "train.py"), ("python", "-m", "train"), ("./torchrunner",), ("echo", "torchrun")]
)
def test_other_commands_start_ranks(command: tuple[str, ...]) -> None:
    assert not calls_torchrun(command)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("#!/bin/sh\nexec torchrun train.py", True),
        ("torchrun \\\n  --nproc_per_node=4 train.py", True),
        ("NCCL_DEBUG=INFO /opt/conda/bin/torchrun train.py", True),
        ("python -u -m torch.distributed.launch train.py", True),
        ("# torchrun train.py\npython train.py", False),
        ("echo 'once with torchrun train.py'\npython train.py", False),
        ("./torchrun.sh", False),
        ("python -m torch.distributed.running", False),
    ],
)
def test_a_shell_that_calls_torchrun(text: str, calls: bool) -> None:
    assert shell_calls_torchrun(text) is calls
