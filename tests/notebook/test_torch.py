"""A step with real PyTorch on two workers: the one that the gate runs; the examples have more."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.notebook.books import write_book

TRAIN = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for _ in range(20):
    x = torch.randn(8, 1)
    loss = ((net(x) - goal * x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weight = net.module.weight.item()
both = [None, None]
dist.all_gather_object(both, (weight, losses[-1] < losses[0]))
dist.destroy_process_group()
"""


@pytest.mark.core
@pytest.mark.slow
def test_two_workers_train_one_model(cli: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    cells = [
        ("step:load", "goal = 3.0"),
        ("step:train prev:load distribute:torch workers:2", TRAIN),
        ("step:use prev:train", "same = both[0][0] == both[1][0] == weight"),
        ("", "falls = all(fell for _, fell in both)\nclose = abs(weight - goal) < 0.5"),
        ("pipeline-metrics", "same, falls, close"),
    ]
    write_book(Path("ddp.ipynb"), cells)
    done = cli("notebook", "run", "ddp.ipynb")
    assert done.returncode == 0, done.stderr[-3000:]
    assert {"same: True", "falls: True", "close: True"} <= set(done.stdout.splitlines())
