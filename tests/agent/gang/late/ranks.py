"""Ranks of PyTorch that train, in the way that the first argument names: the last one may be late."""

import os
import sys
import time

import torch
import torch.distributed as dist

way = sys.argv[1]
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
odd = ranks - 1
torch.set_num_threads(1)
dist.init_process_group("gloo")
half = dist.new_group(list(range(ranks // 2, ranks)))
tensor = torch.zeros(256)
print("trains", flush=True)
for step in range(1_000_000):
    time.sleep(0.005)  # all of them
    if rank == odd:
        if way in ("asleep", "group"):
            time.sleep(0.02)
        elif way == "loads" and step % 10 == 0:
            time.sleep(0.2)
    if way == "group" and rank >= ranks // 2:
        dist.all_reduce(tensor, group=half)  # type: ignore[arg-type]
    elif way == "buckets":
        time.sleep(0.02 * (rank == odd))
        for work in [dist.all_reduce(tensor, async_op=True) for _ in range(8)]:
            work.wait()  # type: ignore[union-attr]
    elif way != "group":
        dist.all_reduce(tensor)
