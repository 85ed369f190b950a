"""Ranks of PyTorch that hang, or would, in the way that the first argument names: the last one is the odd one
out. TIMEOUT, in seconds, is that of their process groups once they are made.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

way = sys.argv[1]
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
odd = ranks - 1


def wait_long():
    print("waits", flush=True)
    time.sleep(1000)


def load_batch():
    print("waits", flush=True)
    with Path(os.environ["PART"]).open("rb", buffering=0) as file:  # a pipe that nobody writes to
        file.read(1)


def compute():
    print("waits", flush=True)
    while True:
        pass


if way == "start" and rank == odd:
    wait_long()  # before it is in any group
print("waits" if way == "start" else "begins", flush=True)
dist.init_process_group("gloo")
tensor = torch.zeros(64, 64)
low, high = dist.new_group([0, odd]), dist.new_group([0, odd])
for _ in range(5):
    dist.all_reduce(tensor)
if "TIMEOUT" in os.environ:
    for group in (dist.group.WORLD, low, high) if rank in (0, odd) else (dist.group.WORLD,):
        timeout = timedelta(seconds=int(os.environ["TIMEOUT"]))
        dist.distributed_c10d._set_pg_timeout(timeout, group)  # type: ignore[arg-type]
if rank == odd:
    if way == "asleep":
        wait_long()
    elif way == "computes":
        compute()
    elif way == "reads":
        load_batch()
    elif way == "exits":
        sys.exit()
    elif way in ("smaller", "larger"):  # Gloo ends a rank that gets more than it waits for
        tensor = torch.zeros(32 if way == "smaller" else 128, 64)
print("waits", flush=True)
if way == "groups":
    if rank in (0, odd):
        for group in (low, high) if rank == 0 else (high, low):
            dist.all_reduce(tensor, group=group)  # type: ignore[arg-type]
elif way == "order" and rank == odd:
    dist.broadcast(tensor, 0)
elif way == "part" and rank != 0:  # only rank 0 calls it of the two that have to
    pass
elif way == "part":
    dist.all_reduce(tensor, group=low)  # type: ignore[arg-type]
elif way == "stopped" and rank == odd:
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    dist.all_reduce(tensor)
time.sleep(1000)
