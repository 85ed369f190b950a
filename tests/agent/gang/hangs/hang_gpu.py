"""Ranks of PyTorch with NCCL that hang, in the way that the first argument names, on one GPU: the last one is
the odd one out. NCCL takes each rank for a machine of its own, so that they may share the GPU. TIMEOUT, in
seconds, is that of its watchdog.
"""

import os
import sys
import time
from datetime import timedelta

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ["NCCL_HOSTID"] = f"machine-{rank}"
os.environ["NCCL_SOCKET_IFNAME"] = "lo"

import torch  # noqa: E402 - NCCL reads its variables when it is loaded
import torch.distributed as dist  # noqa: E402

way = sys.argv[1]
odd = ranks - 1
torch.cuda.set_device(0)
timeout = timedelta(seconds=int(os.environ.get("TIMEOUT", "600")))
dist.init_process_group("nccl", device_id=torch.device("cuda", 0), timeout=timeout)
tensor = torch.zeros(64, 64, device="cuda")
for _ in range(5):
    dist.all_reduce(tensor)
torch.cuda.synchronize()
print("waits", flush=True)
if rank == odd and way == "asleep":
    time.sleep(1000)
elif rank == odd and way == "sizes":
    dist.all_reduce(torch.zeros(128, 64, device="cuda"))
elif rank == odd and way == "order":
    dist.broadcast(tensor, 0)
else:
    dist.all_reduce(tensor)
torch.cuda.synchronize()  # it spins
time.sleep(1000)
