"""A launcher of the user's that calls `horovodrun`: it finds the workers without an option, and there is no
SSH. The workers have addresses of their own, as in pods."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.agent.conftest import Agents
from tests.agent.remote.launched import describe, lines, start_all, verdict
from tests.conftest import PATIENCE

from echelon.agent.remote.horovodrun_program import names_hosts
from echelon.frameworks.mpi import launch_once

REAL = f"""#!{sys.executable}
import sys
from horovod.runner.launch import run_commandline
if __name__ == "__main__":
    sys.exit(run_commandline())
"""
TRAIN = """
import horovod.torch as hvd, torch
hvd.init()
total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum)
here = f"local {hvd.local_rank()} of {hvd.local_size()}"
print(f"rank {hvd.rank()} of {hvd.size()} {here} sum {total.item():g}")
"""


def program(folder: Path, text: str) -> Path:
    folder.mkdir()
    path = folder / "horovodrun"
    path.write_text(text)
    path.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["-np", "4", "python", "train.py"], False),
        (["-np", "4", "-H", "a:2,b:2", "python", "train.py"], True),
        (["-np", "4", "--hosts=a:2,b:2", "python", "train.py"], True),
        (["--verbose", "--hostfile", "hosts", "-np", "4", "python", "train.py"], True),
        (["-np", "4", "--verbose", "python", "train.py", "--hosts", "all"], False),
        (["-np", "4", "./train", "--hosts", "all"], False),
    ],
)
def test_whether_the_caller_names_hosts(words: list[str], given: bool) -> None:
    assert names_hosts(words) is given


def test_horovodrun_is_told_the_workers_or_said_to_be_missing(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = program(tmp_path / "here", '#!/bin/sh\necho "$@"; cat "$2"\n')
    script = (
        f"PATH=$PATH:{here} horovodrun -np 6 python train.py | sed s#$ECHELON_HOSTFILE#FILE#\n"
        "horovodrun -np 6 python train.py; echo $?\n"
    )
    describe(agents, launch_once(["sh", "-c", script]))
    monkeypatch.setenv("PATH", os.defpath)
    start_all(agents, monkeypatch)
    assert verdict(agents)["outcome"] == "succeeded", lines(agents)
    assert sorted(line for _, _, line in lines(agents)) == [
        "--hostfile FILE -np 6 python train.py",
        "127",
        "localhost slots=2",
        "there is no horovodrun here; `echelon run --framework horovod SCRIPT` needs none",
        "worker-1 slots=1",
        "worker-2 slots=3",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("horovod")
def test_real_horovod_starts_ranks_on_all_workers(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{program(tmp_path / 'here', REAL)}:{os.environ['PATH']}")
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", str(int(5 * PATIENCE)))
    (agents.folder / "train.py").write_text(TRAIN)
    launcher = f"horovodrun -np 2 --disable-cache --network-interface lo {sys.executable} train.py"
    describe(agents, launch_once(["sh", "-c", launcher]))
    agents.task["groups"] = [agents.task["groups"][1]] * 2  # of one rank each: importing torch takes long
    agents.describe_again()
    for worker in range(2):  # with this machine's name, which Gloo looks up
        monkeypatch.setenv("ECHELON_POD_IP", f"127.0.0.{worker + 1}")
        agents.start(worker)
    assert verdict(agents, 2)["outcome"] == "succeeded", lines(agents, 2)
    text = "\n".join(line for _, _, line in lines(agents, 2))
    assert all(f"rank {rank} of 2 local 0 of 1 sum 3" in text for rank in range(2)), text
