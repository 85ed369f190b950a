"""Real PyTorch under the local engine: ranks find each other, and a failure is told from its consequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE

import echelon

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]

ALL_REDUCE = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
# One write a line: ranks under torchrun share a pipe, and print() writes the end of line apart.
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} local {os.environ['LOCAL_RANK']} "
      f"of {os.environ['LOCAL_WORLD_SIZE']} node {os.environ['GROUP_RANK']} sum {value.item():g}\\n")
dist.barrier()
dist.destroy_process_group()
"""

# The others hear of it before the rank has ended, and a busy machine may delay that.
FAILS = """
import atexit, sys, time, torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    dist.init_process_group("gloo")
    if dist.get_rank() != 2:
        atexit.register(time.sleep, 30)
    for step in range(10**6):
        if dist.get_rank() == 2 and step == 50:
            raise ValueError("a sample is broken")
        dist.all_reduce(torch.ones(1))
main()
"""


@pytest.mark.core
def test_ranks_on_several_workers_find_each_other() -> None:
    Path("train.py").write_text(ALL_REDUCE)
    run = echelon.run("train.py", workers=2, procs=2)
    status = run.wait(3 * PATIENCE)
    assert status.state == "succeeded", status
    assert status.framework == "torch"  # by its imports
    lines = sorted(line.text for line in run.logs() if line.text.startswith("rank"))
    assert lines == [
        "rank 0 of 4 local 0 of 4 node 0 sum 10",
        "rank 1 of 4 local 1 of 4 node 0 sum 10",
        "rank 2 of 4 local 2 of 4 node 0 sum 10",
        "rank 3 of 4 local 3 of 4 node 0 sum 10",
    ]


@pytest.mark.parametrize("called", ["by a command", "by a script", "as a module"])
def test_what_calls_torchrun_is_started_once_per_worker(called: str) -> None:
    Path("train.py").write_text(ALL_REDUCE)
    Path("launch.sh").write_text("torchrun train.py\n")
    settings: dict[str, dict[str, Any]] = {
        "by a command": {"command": ["torchrun", "train.py"]},
        "by a script": {"script": "launch.sh"},
        "as a module": {"module": "torch.distributed.run", "args": ["train.py"]},
    }
    run = echelon.run(**settings[called], workers=2, procs=2)
    status = run.wait(3 * PATIENCE)
    assert status.state == "succeeded", status
    lines = [line.text for line in run.logs() if line.text.startswith("rank")]
    assert len(lines) == 4
    assert all("sum 10" in line for line in lines)


@pytest.mark.parametrize("recorded", [True, False])
def test_the_rank_that_failed_first_is_named_with_its_exception(recorded: bool) -> None:
    """With torch's error file, and without: then torch has put its rank before each line of the traceback."""
    Path("train.py").write_text(FAILS if recorded else FAILS.replace("@record\n", ""))
    status = echelon.run("train.py", workers=2, procs=2).wait(3 * PATIENCE)
    assert status.state == "failed"
    cause = status.root_cause
    assert cause is not None
    assert (cause.rank, cause.worker) == (2, 1)
    assert cause.exit_code in (1, 134)  # torch's own threads sometimes abort a rank that is on its way out
    assert "ValueError: a sample is broken" in cause.summary
    assert cause.error == "ValueError: a sample is broken"
    assert any("a sample is broken" in line for line in cause.tail)
    assert all(other.consequence for other in cause.others), cause.others
