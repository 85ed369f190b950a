"""A model whose parameters are sharded over all ranks (FSDP2)."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))  # it makes the process group, too
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
torch.manual_seed(dist.get_rank() + 1)
for number in range(1, 21):
    x = torch.randn(64, 8, device=device)
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number % 10 == 0:
        print(f"step={number}/20 loss={loss.item():.4f}", flush=True)
shard = model[0].weight.to_local()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} holds {len(shard)} of 32 rows", flush=True)
dist.destroy_process_group()
